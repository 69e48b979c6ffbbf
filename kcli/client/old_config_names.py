"""Names of client configs in Kafka 0.8, and their present equivalents.

Pure: tables; texts in, texts and warnings out.

An old name is accepted with a warning that has its present name; if the present name is set too, it
wins. Configs that 0.8 counted in other units, or kept in ZooKeeper, are ignored.

Source: the configuration of Kafka 0.8.2's documentation, for the Scala clients and for the first
releases of Java's producer.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

_SAME: Mapping[str, str] = MappingProxyType({})


class CurrentName(NamedTuple):
    """Present keys, and new spellings of values."""

    keys: tuple[str, ...]
    values: Mapping[str, str] = _SAME


class RemovedName(NamedTuple):
    """No present key has the same meaning; `instead` is the alternative."""

    instead: str


Names: TypeAlias = Mapping[str, CurrentName | RemovedName]

_WITHOUT_LIMIT = {"-1": str(2**63 - 1)}
_JAVA = "org.apache.kafka.common.serialization."
_ENCODERS = {
    "kafka.serializer.DefaultEncoder": _JAVA + "ByteArraySerializer",
    "kafka.serializer.StringEncoder": _JAVA + "StringSerializer",
}
_OF_GROUPS = RemovedName("groups no longer need ZooKeeper, and neither does this key")

CLIENT_NAMES: Names = {"metadata.broker.list": CurrentName(("bootstrap.servers",))}
PRODUCER_NAMES: Names = {
    **CLIENT_NAMES,
    "request.required.acks": CurrentName(("acks",)),
    "queue.buffering.max.ms": CurrentName(("linger.ms",)),
    "producer.type": CurrentName(("linger.ms",), {"sync": "0", "async": "5000"}),
    "compression.codec": CurrentName(
        ("compression.type",), {"0": "none", "1": "gzip", "2": "snappy"}
    ),
    "compressed.topics": RemovedName("compression.type holds for all topics of a producer"),
    "message.send.max.retries": CurrentName(("retries",)),
    "topic.metadata.refresh.interval.ms": CurrentName(("metadata.max.age.ms",), _WITHOUT_LIMIT),
    "queue.buffering.max.messages": RemovedName("buffer.memory says how many bytes may wait"),
    "queue.enqueue.timeout.ms": CurrentName(("max.block.ms",), _WITHOUT_LIMIT),
    "batch.num.messages": RemovedName("batch.size says how many bytes go together"),
    "key.serializer.class": CurrentName(("key.serializer",), _ENCODERS),
    "serializer.class": CurrentName(("value.serializer", "key.serializer"), _ENCODERS),
    "metadata.fetch.timeout.ms": CurrentName(("max.block.ms",)),
    "timeout.ms": CurrentName(("request.timeout.ms",)),
    "block.on.buffer.full": RemovedName("max.block.ms says how long send may wait for memory"),
}
CONSUMER_NAMES: Names = {
    **CLIENT_NAMES,
    "auto.commit.enable": CurrentName(("enable.auto.commit",)),
    "fetch.message.max.bytes": CurrentName(("max.partition.fetch.bytes",)),
    "fetch.wait.max.ms": CurrentName(("fetch.max.wait.ms",)),
    "refresh.leader.backoff.ms": CurrentName(("retry.backoff.ms",)),
    "socket.receive.buffer.bytes": CurrentName(("receive.buffer.bytes",)),
    "socket.timeout.ms": CurrentName(("request.timeout.ms",)),
    "consumer.timeout.ms": RemovedName("poll has a timeout of its own"),
    "queued.max.message.chunks": RemovedName("fetch.max.bytes says how much is fetched ahead"),
    "num.consumer.fetchers": RemovedName("each broker that is read from has a fetcher"),
    "zookeeper.connect": RemovedName("bootstrap.servers says where the brokers are"),
    "consumer.id": _OF_GROUPS,
    "dual.commit.enabled": _OF_GROUPS,
    "offsets.storage": _OF_GROUPS,
    "offsets.channel.backoff.ms": _OF_GROUPS,
    "offsets.channel.socket.timeout.ms": _OF_GROUPS,
    "offsets.commit.max.retries": _OF_GROUPS,
    "rebalance.backoff.ms": _OF_GROUPS,
    "rebalance.max.retries": _OF_GROUPS,
    "zookeeper.connection.timeout.ms": _OF_GROUPS,
    "zookeeper.session.timeout.ms": _OF_GROUPS,
    "zookeeper.sync.time.ms": _OF_GROUPS,
}

OLD_VALUES: Mapping[tuple[str, str], str] = {
    ("auto.offset.reset", "smallest"): "earliest",
    ("auto.offset.reset", "largest"): "latest",
}
"""Renamed values of keys that kept their names."""


def current_configs(configs: Mapping[str, str], names: Names) -> tuple[dict[str, str], list[str]]:
    """Return the configs under present names, and a warning for each renamed or ignored one."""
    now = {key: OLD_VALUES.get((key, value), value) for key, value in configs.items()}
    warnings = [
        f"{key}={configs[key]} is a value of Kafka 0.8; use {key}={value}"
        for key, value in now.items()
        if value != configs[key]
    ]
    # In the table's order: of two old names for one key the first wins.
    for old, meaning in names.items():
        if old not in now:
            continue
        value = now.pop(old)
        if isinstance(meaning, RemovedName):
            warnings.append(f"{old} is a config of Kafka 0.8 and is ignored: {meaning.instead}")
            continue
        value = meaning.values.get(value, value)
        warnings += (
            f"{old} is a config of Kafka 0.8 and is ignored because {key} is set"
            if key in now
            else f"{old} is a config of Kafka 0.8; use {key}={value}"
            for key in meaning.keys
        )
        now = dict.fromkeys(meaning.keys, value) | now
    return now, warnings
