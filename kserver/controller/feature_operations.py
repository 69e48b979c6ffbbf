"""Updates of features: by clients' requests, and to levels that every live broker supports.

`features` has the rules.  (Kafka: KafkaController.processFeatureUpdates,
maybeSetupFeatureVersioning.)
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from types import MappingProxyType

from kserver import znodes
from kserver.cluster_config import stored
from kserver.cluster_config.config_manager import ConfigManager
from kserver.cluster_config.znode_store import error_of, not_controller
from kserver.controller import features
from kserver.controller.claimed_store import ClaimedStore
from kserver.controller.context import ControllerContext
from kserver.errors import KafkaError, UnreadableZnode
from kserver.metadata import Features
from kserver.model import BrokerId
from kserver.world.zookeeper import Create, SetData

log = logging.getLogger(__name__)


class FeatureOperations:
    def __init__(
        self,
        context: ControllerContext,
        store: ClaimedStore,
        configs: ConfigManager,
        broker_id: BrokerId,
    ) -> None:
        self._context = context
        self._store = store
        self._configs = configs
        self._id = broker_id

    async def update(
        self, updates: Sequence[features.Update], validate_only: bool
    ) -> list[KafkaError | None]:
        """Update all features or none.  The changes are in effect when this returns."""
        before = self._configs.features
        broker_features = {id_: broker.features for id_, broker in self._context.brokers.items()}
        levels, errors = features.plan(updates, before.levels, self._id, broker_features)
        if not self._context.is_active:
            return [not_controller() for _ in updates]
        if validate_only or any(errors) or levels == before.levels:
            return errors

        write = SetData(znodes.FEATURES, znodes.encode_features(levels), before.epoch)
        error = await error_of(self._store.write([write]))
        if error is not None:
            return [error for _ in updates]
        log.info("features updated: %s", levels or "none")
        after = Features(MappingProxyType(levels), before.epoch + 1)
        self._configs.features_changed(after)
        return errors

    async def agree(self) -> None:
        """Lower features to levels that every live broker supports; in a new cluster, set the
        newest. Raises ConnectionLost."""
        try:
            stored_features = await stored.read_features(self._store)
        except UnreadableZnode as error:
            log.error("%s; features keep their previous values", error)
            return
        before = features.NEWEST if stored_features is None else stored_features.levels
        broker_features = [broker.features for broker in self._context.brokers.values()]
        levels = features.known_to_all(before, broker_features)
        data = znodes.encode_features(levels)
        if stored_features is None:
            await self._store.write([Create(znodes.FEATURES, data)])
            epoch = 0
        elif levels != stored_features.levels:
            log.info(
                "features lowered to the levels that every broker supports: %s", levels or "none"
            )
            await self._store.write([SetData(znodes.FEATURES, data, stored_features.epoch)])
            epoch = stored_features.epoch + 1
        else:
            return
        self._configs.features_changed(Features(MappingProxyType(levels), epoch))
