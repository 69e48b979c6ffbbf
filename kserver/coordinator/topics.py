"""The coordinators' topics: the partition of a key, and the configs to create them with.

Pure: values only.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from kserver.config.broker import BrokerConfig
from kserver.errors import ErrorCode, KafkaError
from kserver.model import CONSUMER_OFFSETS

MAX_KEY_BYTES = (1 << 15) - 1
"""In UTF-8: a record's key cannot hold a longer group id or transactional id."""
MAX_CACHED_LENGTH = 255
"""Maximum length of a cached key, in characters, so that clients cannot fill the memory."""

ANY_NUMBER = 1 << 15


@dataclass(frozen=True, slots=True)
class CoordinatorTopic:
    partitions: int
    replication_factor: int
    config: Mapping[str, str]


def partition_of(key: str, partitions: int) -> int:
    """Return the absolute value of Java's `String.hashCode`, modulo the partitions (Kafka:
    Utils.abs, where the number without an absolute value in Java counts as 0).

    Raises INVALID_REQUEST for an id that is too long for a record, as nothing could be stored for
    it.
    """
    if len(key) <= MAX_CACHED_LENGTH:
        return _remembered(key, partitions)
    if len(key) > MAX_KEY_BYTES or len(key.encode()) > MAX_KEY_BYTES:
        text = f"An id is longer than the {MAX_KEY_BYTES} bytes that a record can hold."
        raise KafkaError(ErrorCode.invalid_request, text)
    return _computed(key, partitions)


def _computed(key: str, partitions: int) -> int:
    utf_16 = key.encode("utf-16-be", "surrogatepass")
    code = 0
    for at in range(0, len(utf_16), 2):
        code = (31 * code + (utf_16[at] << 8 | utf_16[at + 1])) & 0xFFFFFFFF
    if code >> 31:
        code = (1 << 32) - code
    return 0 if code >> 31 else code % partitions


_remembered = functools.lru_cache(maxsize=10_000)(_computed)


def coordinator_topic(name: str, config: BrokerConfig) -> CoordinatorTopic:
    """Return the config of the topic for its creation on first use (Kafka:
    AutoTopicCreationManager).

    A broker that no other can join creates it with one replica: it could not with Kafka's default
    of three.  Otherwise nothing is created before there are as many brokers as replicas.
    """
    most = 1 if config.zookeeper_connect is None else ANY_NUMBER
    if name == CONSUMER_OFFSETS:
        return CoordinatorTopic(
            config.offsets_topic_num_partitions,
            min(config.offsets_topic_replication_factor, most),
            {
                "cleanup.policy": "compact",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
                "compression.type": "producer",
            },
        )
    replicas = min(config.transaction_state_log_replication_factor, most)
    return CoordinatorTopic(
        config.transaction_state_log_num_partitions,
        replicas,
        {
            "unclean.leader.election.enable": "false",
            "compression.type": "uncompressed",
            "cleanup.policy": "compact",
            "min.insync.replicas": str(min(config.transaction_state_log_min_isr, replicas)),
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
        },
    )
