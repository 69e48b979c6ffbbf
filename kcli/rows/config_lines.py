"""Configurations as the words and lines of `k configs`, and the records that a change may lose.

Pure: values in, lines or rows out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kcli.command.options import Refused
from kcli.rows.shapes import RowField, RowShape

if TYPE_CHECKING:
    from kcli.client.admin.admin import ConfigEntry
    from kcli.client.admin.scram import NewCredential, ScramMechanism
    from kserver.errors import KafkaError
    from kserver.model import QuotaEntity

TYPES = (
    "topics",
    "clients",
    "users",
    "brokers",
    "ips",
    "client-metrics",
    "groups",
    "broker-loggers",
)
QUOTA_TYPES = {"users": "user", "clients": "client-id", "ips": "ip"}
"""Entity types of the protocol."""

CLIENT_QUOTAS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)
QUOTAS = {
    "users": CLIENT_QUOTAS,
    "clients": CLIENT_QUOTAS,
    "ips": ("connection_creation_rate",),
}

# As in Kafka, a comma within brackets is not a separator.
_OUTSIDE = r"(?=[^\]]*(?:\[|$))"
_KEY = re.compile(r"[a-zA-Z0-9._-]*")

SETTINGS = RowShape(
    "k.configs.describe",
    1,
    "A setting of a topic, a broker or another resource.",
    (
        RowField("entity_type", "string", "What has it: topics, brokers, broker-loggers, ..."),
        RowField(
            "entity_name",
            "string or null",
            "Its name; null for the default of all brokers.",
        ),
        RowField("name", "string", "The key."),
        RowField("value", "string or null", "Its value; null where it is unset or not shown."),
        RowField("source", "string", "Where the value stands, such as DYNAMIC_TOPIC_CONFIG."),
        RowField("type", "string", "BOOLEAN, INT, ...; UNKNOWN where the broker does not tell."),
        RowField("read_only", "boolean", "Whether only a restart changes it."),
        RowField("sensitive", "boolean", "Whether its value is not shown."),
        RowField(
            "synonyms",
            "list of string",
            "Every place that gives it a value, as SOURCE:KEY=VALUE, the one that counts first.",
        ),
        RowField("documentation", "string or null", "What the broker says that it does."),
    ),
)

BOUNDS = RowShape(
    "k.configs.quotas",
    1,
    "A quota of clients: of a user, a client id, both, or an address.",
    (
        RowField("user", "string or null", "Whose; empty for all users without one of their own."),
        RowField("client_id", "string or null", "Whose; empty for all client ids likewise."),
        RowField("ip", "string or null", "Whose; empty for all addresses likewise."),
        RowField("name", "string", "The key."),
        RowField("value", "number", "The bound."),
    ),
)


_CREDENTIAL = re.compile(r"(?:iterations=(-?[0-9]*),)?password=(.*)")


class Entity(NamedTuple):
    """A type and a name: "" is the default of the type, None all entities."""

    type: str
    name: str | None

    def __str__(self) -> str:
        return f"{singular(self.type)} {self.name}" if self.name else f"all {self.type} by default"


def singular(type: str) -> str:
    """Return `topic` of `topics`; Kafka removes the last letter of `client-metrics` too."""
    return type[:-1]


def additions(text: str) -> dict[str, str]:
    """Parse `k=v,k=[v1,v2]`. Raises Refused."""
    pairs = [re.split(rf"\s*=\s*{_OUTSIDE}", pair) for pair in re.split(f",{_OUTSIDE}", text)]
    if any(len(pair) != 2 for pair in pairs):
        raise Refused(
            "requirement failed: Invalid entity config: all configs to be added must be in the "
            'format "key=val" or  "key=[val1,val2]" to group values which contain commas.'
        )
    return {key.strip(): re.sub(r"[\[\]]", "", value).strip() for key, value in pairs}


def check_keys(keys: Iterable[str]) -> None:
    for key in keys:
        if not _KEY.fullmatch(key):
            raise Refused(f"Invalid character found for config key: {key}")


def credential(user: str, mechanism: str, text: str) -> NewCredential:
    """Parse `[iterations=N,password=P]`, without the brackets. Raises Refused, without the password
    in its text.
    """
    from kcli.client.admin.scram import (
        DEFAULT_ITERATIONS,
        MIN_ITERATIONS,
        NewCredential,
        ScramMechanism,
    )

    match = _CREDENTIAL.fullmatch(text)
    if match is None or match[1] in ("", "-"):
        raise Refused(f"Invalid credential property {mechanism}=[hidden]")
    iterations = DEFAULT_ITERATIONS if match[1] in (None, "-1") else int(match[1])
    if iterations < MIN_ITERATIONS:
        raise Refused(
            f"Iterations {iterations} is less than the minimum {MIN_ITERATIONS} required for "
            f"{mechanism}"
        )
    return NewCredential(user, ScramMechanism[attribute(mechanism)], match[2], iterations)


def attribute(mechanism: str) -> str:
    return mechanism.replace("-", "_")


def credential_line(user: str, credentials: Mapping[ScramMechanism, int] | KafkaError) -> str:
    from kserver.errors import KafkaError

    if isinstance(credentials, KafkaError):
        kind = credentials.code.name.title().replace("_", "")
        text = f"Error retrieving SCRAM credential configs for user-principal '{user}': "
        return f"{text}{kind}Exception: {credentials.message}"
    each = ", ".join(f"{mechanism}=iterations={count}" for mechanism, count in credentials.items())
    return f"SCRAM credential configs for user-principal '{user}' are {each}"


def heading(entity: Entity, everything: bool) -> str:
    if not entity.name:
        return f"Default configs for {entity.type} in the cluster are:"
    return f"{'All' if everything else 'Dynamic'} configs for {entity} are:"


def absent(entity: Entity) -> str:
    kind = singular(entity.type)
    return f"The {kind} '{entity.name}' doesn't exist and doesn't have dynamic config."


def line(entry: ConfigEntry) -> str:
    value = "null" if entry.value is None else entry.value
    sensitive = str(entry.is_sensitive).lower()
    return (
        f"  {entry.name}={value} sensitive={sensitive} synonyms={{{', '.join(_synonyms(entry))}}}"
    )


def _synonyms(entry: ConfigEntry) -> list[str]:
    return [
        f"{s.source.name}:{s.name}={'null' if s.value is None else s.value}" for s in entry.synonyms
    ]


def row(entity: Entity, entry: ConfigEntry) -> dict[str, Any]:
    return {
        "entity_type": entity.type,
        "entity_name": entity.name or None,
        "name": entry.name,
        "value": entry.value,
        "source": entry.source.name,
        "type": entry.type.name,
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
        "synonyms": _synonyms(entry),
        "documentation": entry.documentation,
    }


def quota_line(entity: QuotaEntity, bounds: Mapping[str, float]) -> str:
    from kserver.config.setting import java_double

    names = zip(("user-principal", "client-id", "ip"), entity, strict=True)
    who = ", ".join(
        f"{kind} '{_one_line(name)}'" if name else f"the default {kind}"
        for kind, name in names
        if name is not None
    )
    quotas = ", ".join(f"{key}={java_double(bound)}" for key, bound in sorted(bounds.items()))
    return f"Quota configs for {who} are {quotas}"


def _one_line(name: str) -> str:
    """Return a name, which clients choose, in one line."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)


def quota_rows(entity: QuotaEntity, bounds: Mapping[str, float]) -> list[dict[str, Any]]:
    return [{**entity._asdict(), "name": key, "value": bounds[key]} for key in sorted(bounds)]


def step(entity: Entity, key: str, entry: ConfigEntry | None, value: str | None) -> str:
    """Describe a change of one key, with its present `entry`; a value of None deletes it."""
    now = "" if entry is None or entry.value is None else f", now {entry.value}"
    if value is None:
        return f"take {key} away from {entity}{now}"
    shown = "[hidden]" if entry is not None and entry.is_sensitive else value
    return f"set {key}={shown} for {entity}{now}"


def loss(key: str, entry: ConfigEntry | None, value: str | None) -> str | None:
    """Return which records may be lost once the key has this value, or none; None if none are."""
    before = None if entry is None else entry.value
    after = value if value is not None else _fallback(entry)
    base = key.removeprefix("log.")
    if after == before:
        return None
    if base in ("retention.ms", "retention.bytes"):
        limit = "older" if base.endswith("ms") else "more"
        shrinks = before is None or _limit(after) < _limit(before)
        return f"records that are {limit} are deleted" if shrinks else None
    if base == "cleanup.policy":
        gained = set(_entries(after)) - set(_entries(before))
        if "compact" in gained:
            return "only the newest record of each key is kept"
        return "records beyond the retention are deleted" if "delete" in gained else None
    if key == "unclean.leader.election.enable" and (after or "").lower() == "true":
        return "a leader that is behind may lose records"
    return None


def _fallback(entry: ConfigEntry | None) -> str | None:
    """Return the value of a key once its effective value is deleted."""
    return entry.synonyms[1].value if entry is not None and len(entry.synonyms) > 1 else None


def _limit(text: str | None) -> float:
    """Parse a limit; no value and invalid ones count as no limit, since the broker will refuse
    them.
    """
    try:
        limit = int(text or "")
    except ValueError:
        return float("inf")
    return float("inf") if limit < 0 else limit


def _entries(text: str | None) -> Sequence[str]:
    return [entry.strip() for entry in (text or "").split(",")]
