"""What the cluster's znodes hold beside its topics: quotas, settings of brokers and groups,
features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from types import MappingProxyType

from kserver import znodes
from kserver.controller import quotas
from kserver.controller.store import ZnodeStore, together
from kserver.metadata import Features
from kserver.model import NO_BROKER, BrokerId, QuotaEntity


async def read_broker_configs(
    store: ZnodeStore, brokers: Iterable[BrokerId]
) -> Mapping[BrokerId, Mapping[str, str]]:
    """What was set for each of these while it ran, and at NO_BROKER for all."""
    found: dict[BrokerId, Mapping[str, str]] = {}
    for broker in (NO_BROKER, *brokers):
        name = znodes.DEFAULT_ENTITY if broker == NO_BROKER else str(broker)
        stored = await store.find(znodes.config_path(znodes.BROKER_CONFIGS, name))
        if stored is not None:
            found[broker] = znodes.decode_config(znodes.BROKER_CONFIGS, name, stored[0])
    return found


async def read_group_configs(store: ZnodeStore) -> Mapping[str, Mapping[str, str]]:
    """By group."""
    names = await store.children(f"/config/{znodes.GROUP_CONFIGS}") or []
    paths = [partial(store.find, znodes.config_path(znodes.GROUP_CONFIGS, n)) for n in names]
    found = {
        znodes.unsanitized(name): znodes.decode_config(znodes.GROUP_CONFIGS, name, stored[0])
        for name, stored in zip(names, await together(paths), strict=True)
        if stored is not None
    }
    return MappingProxyType({name: values for name, values in found.items() if values})


async def read_quotas(store: ZnodeStore) -> Mapping[QuotaEntity, Mapping[str, float]]:
    users = await store.children(f"/config/{znodes.USER_CONFIGS}") or []
    names = [(znodes.USER_CONFIGS, user) for user in users]
    for kind in (znodes.CLIENT_CONFIGS, znodes.IP_CONFIGS):
        names += [(kind, name) for name in await store.children(f"/config/{kind}") or []]
    for user in users:
        below = znodes.config_path(znodes.USER_CONFIGS, f"{user}/clients")
        names += [
            (znodes.USER_CONFIGS, f"{user}/clients/{client_id}")
            for client_id in await store.children(below) or []
        ]
    paths = [partial(store.find, znodes.config_path(*name)) for name in names]
    bounds = {
        znodes.quota_entity(*name): quotas.bounds(znodes.decode_config(*name, found[0]))
        for name, found in zip(names, await together(paths), strict=True)
        if found is not None
    }
    return quotas.held(bounds)


async def read_features(store: ZnodeStore) -> Features | None:
    """None where there is no znode yet."""
    found = await store.find(znodes.FEATURES)
    if found is None:
        return None
    data, stat = found
    return Features(znodes.decode_features(data), stat.version)
