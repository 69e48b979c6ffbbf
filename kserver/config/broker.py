"""The broker's configuration."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from kserver.config.sections.cleaner import CleanerSettings
from kserver.config.sections.general import GeneralSettings
from kserver.config.sections.groups import GroupSettings
from kserver.config.sections.kraft import KRaftSettings
from kserver.config.sections.log import LogSettings
from kserver.config.sections.metrics import MetricsSettings
from kserver.config.sections.network import NetworkSettings
from kserver.config.sections.quotas import QuotaSettings
from kserver.config.sections.replication import ReplicationSettings
from kserver.config.sections.sasl import SaslSettings
from kserver.config.sections.security import SecuritySettings
from kserver.config.sections.share_groups import ShareGroupSettings
from kserver.config.sections.tiered import TieredSettings
from kserver.config.sections.tls import TlsSettings
from kserver.config.sections.transactions import TransactionSettings
from kserver.config.sections.zookeeper import ZooKeeperSettings
from kserver.config.setting import GivenValue, Layer, Setting, Source, given_in, settings_of


@dataclass(frozen=True, kw_only=True, repr=False)
class BrokerConfig(
    GeneralSettings,
    NetworkSettings,
    LogSettings,
    CleanerSettings,
    ReplicationSettings,
    GroupSettings,
    ShareGroupSettings,
    TransactionSettings,
    QuotaSettings,
    SecuritySettings,
    SaslSettings,
    TlsSettings,
    ZooKeeperSettings,
    KRaftSettings,
    MetricsSettings,
    TieredSettings,
):
    """Everything that server.properties says."""

    explicit: Mapping[str, str] = field(default_factory=dict, compare=False)
    """The keys that were given, as text."""

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Where values come from, the strongest first."""
        return (
            Layer(Source.STATIC_BROKER_CONFIG, self.explicit),
            Layer(Source.DEFAULT_CONFIG, _defaults()),
        )

    def given(self, setting: Setting) -> list[GivenValue]:
        return given_in(self.layers, setting)


@functools.cache
def _defaults() -> Mapping[str, str | None]:
    return {s.name: s.render(s.default) for s in settings_of(BrokerConfig).values()}
