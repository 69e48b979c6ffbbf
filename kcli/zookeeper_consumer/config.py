"""Configuration of the first paper's consumer: Kafka 0.8's keys, besides those of present
consumers.

Pure: a table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from kcli.client.old_config_names import CONSUMER_NAMES, Names
from kcli.client.settings import Settings
from kserver.config.setting import Type, at_least, setting, settings_of
from kserver.errors import ConfigError

_NAME = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True, init=False, repr=False, eq=False)
class PaperConfig(Settings):
    """Kafka 0.8's defaults, except that offsets are written as often as today: it was once a
    minute. The backoff was that of zookeeper.sync.time.ms.
    """

    _old_names: ClassVar[Names] = {
        name: meaning for name, meaning in CONSUMER_NAMES.items() if name == "auto.commit.enable"
    }

    zookeeper_connect: str = setting(
        "zookeeper.connect", "127.0.0.1:2181", doc="host:port,... of ZooKeeper, perhaps a /chroot"
    )
    zookeeper_session_timeout_ms: int = setting(
        "zookeeper.session.timeout.ms",
        6000,
        at_least(1),
        doc="time without a heartbeat after which other members take a member's partitions",
    )
    zookeeper_connection_timeout_ms: int | None = setting(
        "zookeeper.connection.timeout.ms",
        None,
        type=Type.INT,
        doc="how long to wait for ZooKeeper at the start; the session's timeout if not set",
    )
    rebalance_max_retries: int = setting(
        "rebalance.max.retries",
        4,
        at_least(0),
        doc="number of retries while another member still owns a partition",
    )
    rebalance_backoff_ms: int = setting(
        "rebalance.backoff.ms", 2000, at_least(1), doc="maximum wait before each retry"
    )
    group_id: str = setting("group.id", "", doc="group")
    enable_auto_commit: bool = setting(
        "enable.auto.commit",
        True,
        doc="commit offsets periodically, and when a partition is released",
    )
    auto_commit_interval_ms: int = setting(
        "auto.commit.interval.ms", 5000, at_least(1), doc="interval between commits"
    )
    consumer_id: str = setting(
        "consumer.id", "", doc="id of a member within its group; generated if not set"
    )


def split(properties: Mapping[str, str]) -> tuple[PaperConfig, dict[str, str]]:
    """Split into this consumer's configuration, and keys for the inner consumer. Raises
    ConfigError.
    """
    own = settings_of(PaperConfig).keys() | PaperConfig._old_names.keys()
    config = PaperConfig.of({key: value for key, value in properties.items() if key in own})
    for key, name in (("group.id", config.group_id), ("consumer.id", config.consumer_id)):
        if name and (not _NAME.fullmatch(name) or name in (".", "..")):
            raise ConfigError(
                f"Invalid value {name} for configuration {key}: it names a znode; use only "
                "letters, digits, '.', '_' and '-'"
            )
    return config, {key: value for key, value in properties.items() if key not in own}
