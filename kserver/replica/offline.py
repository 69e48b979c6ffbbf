"""Partitions that the controller assigns to this broker and that it cannot host, by cause.

    failed     the log directory that has the log, or would have it, is offline
    missing    the log was here, and may not begin empty (log/missing)
    waiting    no log directory has room for a new log; tried again once one has

Each is kept with its topic id, since another topic of the same name may be hosted.
(Kafka: HostedPartition.Offline.)
"""

from __future__ import annotations

import logging
from uuid import UUID

from kserver.errors import NoRoom, StorageError
from kserver.log.missing import MissingLog
from kserver.model import TopicPartition

log = logging.getLogger(__name__)


class OfflinePartitions:
    """The three sets, each with the topic id by partition."""

    def __init__(self) -> None:
        self.failed: dict[TopicPartition, UUID] = {}
        self.missing: dict[TopicPartition, UUID] = {}
        self.waiting: dict[TopicPartition, UUID] = {}

    def add(self, key: TopicPartition, topic_id: UUID, error: StorageError) -> None:
        """Note why a partition cannot be hosted; each cause is logged once."""
        if isinstance(error, NoRoom):
            if self.waiting.get(key) != topic_id:
                log.error("%s: offline until there is free space: %s", key, error)
                self.waiting[key] = topic_id
        elif isinstance(error, MissingLog):
            if self.missing.get(key) != topic_id:
                log.error("%s: log is missing, the partition stays offline: %s", key, error)
                self.missing[key] = topic_id
        else:
            log.error("%s: offline: %s", key, error)
            self.failed[key] = topic_id

    def has(self, key: TopicPartition, topic_id: UUID) -> bool:
        return topic_id in (self.failed.get(key), self.missing.get(key), self.waiting.get(key))

    def note_created(self, key: TopicPartition) -> None:
        """Forget the partition: a new log was created for it."""
        self.failed.pop(key, None)
        self.waiting.pop(key, None)
        if self.missing.pop(key, None) is not None:
            log.warning("%s: starting with an empty log, replicating from the leader", key)

    def note_deleted(self, key: TopicPartition) -> None:
        """Forget the partition, as the controller has ordered its deletion; but a log on a failed
        disk is still there, and stays in `failed`.
        """
        self.missing.pop(key, None)
        self.waiting.pop(key, None)
