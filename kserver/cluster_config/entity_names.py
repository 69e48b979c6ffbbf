"""Names of znodes below /config for entities with any characters: groups, and entities of quotas.

Pure: names in, names out.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

from kserver import znodes
from kserver.model import QuotaEntity


def quota_entity_name(entity: QuotaEntity) -> tuple[str, str]:
    """Return type and name for `config_path`; the name is a path below its type."""
    if entity.ip is not None:
        return znodes.IP_CONFIGS, _quota_name(entity.ip)
    if entity.user is None:
        return znodes.CLIENT_CONFIGS, _quota_name(entity.client_id or "")
    if entity.client_id is None:
        return znodes.USER_CONFIGS, _quota_name(entity.user)
    name = f"{_quota_name(entity.user)}/clients/{_quota_name(entity.client_id)}"
    return znodes.USER_CONFIGS, name


def quota_entity(entity_type: str, name: str) -> QuotaEntity:
    """Return the entity of a type and name; the inverse of `quota_entity_name`."""
    if entity_type == znodes.IP_CONFIGS:
        return QuotaEntity(ip=_quota_name_from(name))
    if entity_type == znodes.CLIENT_CONFIGS:
        return QuotaEntity(client_id=_quota_name_from(name))
    user, _, client_id = name.partition("/clients/")
    return QuotaEntity(_quota_name_from(user), _quota_name_from(client_id) if client_id else None)


def sanitized(name: str) -> str:
    """Return the name as Kafka's Sanitizer writes it: like Java's URLEncoder, but with `*` encoded
    and spaces as %20."""
    return quote(name, safe="").replace("~", "%7E")


def unsanitized(text: str) -> str:
    return unquote(text)


def _quota_name(name: str) -> str:
    return sanitized(name) if name else znodes.DEFAULT_ENTITY


def _quota_name_from(text: str) -> str:
    return "" if text == znodes.DEFAULT_ENTITY else unsanitized(text)
