"""Reads the cluster's configuration from its znodes: quotas, configs of brokers and groups,
features."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

from kserver import znodes
from kserver.cluster_config import quotas
from kserver.cluster_config.entity_names import quota_entity, unsanitized
from kserver.cluster_config.znode_store import ZnodeStore, gather
from kserver.metadata import Features
from kserver.model import NO_BROKER, BrokerId, QuotaEntity

ReadOverrides: TypeAlias = Callable[[str, str], Awaitable[Mapping[str, str] | None]]
"""Returns the overrides of an entity by type and name (`znodes.config_path`); None if it is
unreadable or does not exist."""


async def read_broker_configs(
    read: ReadOverrides, brokers: Iterable[BrokerId]
) -> Mapping[BrokerId, Mapping[str, str]]:
    """Return the dynamic configs of these brokers, and at NO_BROKER the cluster-wide defaults."""
    configs: dict[BrokerId, Mapping[str, str]] = {}
    for broker in (NO_BROKER, *brokers):
        name = znodes.DEFAULT_ENTITY if broker == NO_BROKER else str(broker)
        overrides = await read(znodes.BROKER_CONFIGS, name)
        if overrides is not None:
            configs[broker] = overrides
    return configs


async def read_group_configs(
    store: ZnodeStore, read: ReadOverrides
) -> Mapping[str, Mapping[str, str]]:
    """Return overrides by group."""
    names = await store.children(f"/config/{znodes.GROUP_CONFIGS}") or []
    reads = [partial(read, znodes.GROUP_CONFIGS, name) for name in names]
    values_by_name = zip(names, await gather(reads), strict=True)
    return MappingProxyType({unsanitized(n): values for n, values in values_by_name if values})


async def read_quotas(
    store: ZnodeStore, read: ReadOverrides
) -> Mapping[QuotaEntity, Mapping[str, float]]:
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
    values = await gather([partial(read, *name) for name in names])
    bounds = {
        quota_entity(*name): quotas.bounds(overrides)
        for name, overrides in zip(names, values, strict=True)
        if overrides is not None
    }
    return quotas.without_empty(bounds)


async def read_features(store: ZnodeStore) -> Features | None:
    """Return the finalized features; None if there is no znode yet.  Raises UnreadableZnode."""
    znode = await store.find(znodes.FEATURES)
    if znode is None:
        return None
    data, stat = znode
    return Features(znodes.decode_features(data), stat.version)
