"""Features of the cluster and their levels (KIP-584): `admin.features`.

describe    ApiVersions (key 18), of any broker or of one
update      UpdateFeatures (57), by the controller
"""

from __future__ import annotations

import datetime
import enum
from collections.abc import Mapping
from typing import Any, NamedTuple

from kcli.client.cluster import Cluster, To
from kcli.client.config import AdminConfig
from kcli.client.errors import refusal_of
from kcli.client.offsets import missing_from_response
from kserver.errors import ErrorCode, KafkaError
from kserver.model import BrokerId
from kserver.wire import versions
from kserver.wire.api_key import ApiKey

# First version of UpdateFeatures with upgrade types and validate_only.
KINDS = 1
# First version with one outcome for all updates.
AS_ONE = 2


class UpgradeType(enum.IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3
    """Allowed even if metadata is lost."""


class FeatureUpdate(NamedTuple):
    """A level of 0 disables the feature."""

    level: int
    type: UpgradeType = UpgradeType.UPGRADE


class FeatureMetadata(NamedTuple):
    """`supported`: lowest and highest level that the broker supports; `finalized`: the cluster's
    level; `epoch`: number of changes to the finalized levels, None if the broker does not report
    it.
    """

    supported: dict[str, tuple[int, int]]
    finalized: dict[str, int]
    epoch: int | None


class FeatureAdmin:
    def __init__(self, cluster: Cluster, config: AdminConfig) -> None:
        self._cluster = cluster
        self._config = config

    async def describe(self, broker: BrokerId | None = None) -> FeatureMetadata:
        async def attempt() -> FeatureMetadata:
            peer = await self._cluster.peer(To.ANY if broker is None else broker)
            new = versions.request(ApiKey.API_VERSIONS, peer.version(ApiKey.API_VERSIONS))
            response = await peer.call(new(client_software_name="k", client_software_version="1"))
            if response.error_code != ErrorCode.none:
                raise KafkaError(response.error_code)
            epoch = getattr(response, "finalized_features_epoch", -1)
            return FeatureMetadata(
                {
                    f.name: (f.min_version, f.max_version)
                    for f in _of(response, "supported_features")
                },
                {f.name: f.max_version_level for f in _of(response, "finalized_features")},
                epoch if epoch >= 0 else None,
            )

        return await self._cluster.retry("describeFeatures", self._deadline(), attempt)

    async def update(
        self, updates: Mapping[str, FeatureUpdate], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        """Return the outcome by feature. A broker that applies all or none refuses each with the
        same error.
        """
        timeout = datetime.timedelta(milliseconds=self._config.request_timeout_ms)

        async def attempt() -> dict[str, KafkaError | None]:
            whom = To.ANY if self._config.bootstrap_controllers else To.CONTROLLER
            peer = await self._cluster.peer(whom)
            version = peer.version(ApiKey.UPDATE_FEATURES)
            if validate_only and version < KINDS:
                raise KafkaError(
                    ErrorCode.unsupported_version, f"{peer} cannot try an update of features"
                )
            new = versions.request(ApiKey.UPDATE_FEATURES, version)
            response = await peer.call(
                new(
                    timeout=timeout,
                    feature_updates=[
                        new.feature_updates(
                            feature=name,
                            max_version_level=level,
                            allow_downgrade=kind is not UpgradeType.UPGRADE,
                            upgrade_type=kind,
                        )
                        for name, (level, kind) in updates.items()
                    ],
                    validate_only=validate_only,
                )
            )
            refusal = refusal_of(response)
            if refusal is not None and refusal.code is ErrorCode.not_controller:
                self._cluster.forget_controller()
                raise refusal
            if refusal is not None or version >= AS_ONE:
                return dict.fromkeys(updates, refusal)
            results = {result.feature: refusal_of(result) for result in response.results}
            return {name: results.get(name, missing_from_response()) for name in updates}

        return await self._cluster.retry("updateFeatures", self._deadline(), attempt)

    def _deadline(self) -> float:
        return self._cluster.deadline(self._config.default_api_timeout_ms)


def _of(response: Any, field: str) -> Any:
    return getattr(response, field, ())
