"""One log directory: its owner, the logs in it, and its checkpoints.

    .lock                               held while a broker uses the directory
    meta.properties                     the owner: broker and cluster
    .kafka_cleanshutdown                the last stop was clean; exists from `mark_clean` to `begin`
    incarnation.msgpack                 the last starts; see log/incarnation
    recovery-point-offset-checkpoint    of each log; see log/checkpoint
    log-start-offset-checkpoint
    replication-offset-checkpoint
    cleaner-offset-checkpoint
    topic-0                             the log of partition 0
    topic-0.<32 hex digits>-future      a log that is to replace one in another directory
    topic-0.<32 hex digits>-delete      a deleted log, until its files are removed
    topic-0.<32 hex digits>-stray       a log of a topic that the cluster does not have: it is kept

Synchronous methods that access the disk should run in a thread; `look_for_room` and `write_offsets`
start one themselves.  Kafka: LogManager, CleanShutdownFileHandler.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import posixpath
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kserver.errors import NO_ROOM, StorageError
from kserver.log import checkpoint, incarnation
from kserver.log.checkpoint import (
    CLEANED,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    MetaProperties,
)
from kserver.log.recovery import CLEAN_SHUTDOWN, StoredOffsets
from kserver.model import BrokerId, Offset, TopicPartition

if TYPE_CHECKING:
    from random import Random

    from kserver.world.disk import Disk, Lock

log = logging.getLogger(__name__)

LOCK = ".lock"
_CLEAN_SHUTDOWN_CONTENT = b'{"version":0,"brokerEpoch":-1}'
_PARTITION = re.compile(r"([a-zA-Z0-9._-]+)-([0-9]+)")
_FUTURE = re.compile(r"(.+)\.[0-9a-f]{32}-future")
_DELETED = re.compile(r".+-[0-9]+\.[0-9a-f]{32}-delete")
_STRAY = re.compile(r".+-[0-9]+\.[0-9a-f]{32}-stray")
_MAX_NAME_BYTES = 255
_ROOM_BYTES = 1 << 20
_ROOM_AFTER_S = 5.0
"""A full disk has room again with `_ROOM_BYTES` free and no write refused for `_ROOM_AFTER_S`."""

WRONG_CLUSTER = (
    "The broker is trying to join the wrong cluster. Configured zookeeper.connect may be wrong."
)
"""Kafka's text (InconsistentClusterIdException)."""


class LogDirectory:
    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self.failure: StorageError | None = None
        self.damaged: set[TopicPartition] = set()
        """Partitions whose logs were refused at the start; their checkpoint entries are kept."""
        self.missing: dict[TopicPartition, Offset] = {}
        """Partitions that had a log here and have none in any directory, with the highest offset in
        any checkpoint.  Their checkpoint entries are kept until they have a log again."""
        self.id = ""
        """directory.id once `identify` has returned; empty if a full disk refused to store it."""
        self._full_at_s: float | None = None
        """Loop time of the last write that was refused for lack of space; None while there is
        space."""
        self._disk = disk
        self._lock: Lock | None = None
        self._clean = False
        self.last = incarnation.NONE
        """Previous starts, once `begin` has read them."""
        self._stored: dict[str, dict[TopicPartition, Offset]] = {}
        self._written: dict[str, Mapping[TopicPartition, Offset]] = {}
        self._writing: dict[str, asyncio.Future[None]] = {}

    @property
    def is_full(self) -> bool:
        """Whether a write was refused for lack of space, and none was known to be free since."""
        return self._full_at_s is not None

    def refused(self, error: Exception) -> None:
        """Note a write that was refused for lack of space; logs only the first one until there is
        space."""
        if self._full_at_s is None:
            log.error("log directory %s is full; writes are refused: %s", self.path, error)
        self._full_at_s = asyncio.get_running_loop().time()

    def check_there(self) -> None:
        """Raise FileNotFoundError if the directory was removed.

        Writes to its open files would be lost, and it must not be created again.
        """
        path = self._file(checkpoint.META_PROPERTIES)
        if not self._disk.exists(path):
            raise FileNotFoundError(
                errno.ENOENT, "The log directory was removed while the broker was using it", path
            )

    def has_room(self) -> bool:
        """Whether at least `_ROOM_BYTES` are free.  Raises OSError."""
        return self._disk.free_bytes(self.path) >= _ROOM_BYTES

    async def look_for_room(self) -> None:
        """If the directory has been full for a while, accept new logs again once its disk has free
        space.  Raises OSError.
        """
        now_s = asyncio.get_running_loop().time()
        if self._full_at_s is None or now_s - self._full_at_s < _ROOM_AFTER_S:
            return
        if await self._disk.offload(self.has_room):
            log.info("log directory %s has free space again", self.path)
            self._full_at_s = None

    async def sync(self) -> None:
        """Make renamed and removed logs durable.  Raises OSError."""
        await self._disk.offload(lambda: self._disk.sync_directory(self.path))

    def lock(self) -> MetaProperties | None:
        """Create the directory if it is missing, lock it, and return the content of
        meta.properties.

        Raises StorageError if another broker holds the lock, OSError if the disk fails.
        """
        if not self._disk.exists(self.path):
            self._disk.make_directories(self.path)
            self._disk.sync_directory(posixpath.dirname(self.path) or ".")
        try:
            self._lock = self._disk.lock(f"{self.path}/{LOCK}")
        except BlockingIOError as error:
            raise StorageError(
                f"{self.path} is used by another broker, which holds the lock on {LOCK}: stop it,"
                " or set other log.dirs for this one"
            ) from error
        return checkpoint.read_meta_properties(self._disk, self._file(checkpoint.META_PROPERTIES))

    def unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def identify(
        self, broker_id: BrokerId, cluster_id: str, random: Random, *, is_embedded: bool = False
    ) -> None:
        """Claim the directory for this broker, and give it a directory id if it has none.

        `is_embedded`: the cluster id is that of this broker's own metadata store.  Raises
        StorageError if another broker or cluster owns the directory.
        """
        path = self._file(checkpoint.META_PROPERTIES)
        stored = checkpoint.read_meta_properties(self._disk, path)
        if stored is not None and stored.cluster_id not in (None, cluster_id):
            remedy = (
                "The metadata store belongs to another cluster: restore the one that belongs to"
                " these logs, or move it away and rebuild it from the logs with k storage rebuild."
                if is_embedded
                else WRONG_CLUSTER
            )
            raise StorageError(
                f"The Cluster ID {cluster_id} doesn't match stored clusterId {stored.cluster_id} in"
                f" {path}. {remedy}"
            )
        if stored is not None and stored.broker_id not in (None, broker_id):
            raise StorageError(
                f"Configured broker.id {broker_id} doesn't match stored broker.id"
                f" {stored.broker_id} in {path}. If you moved your data, make sure your configured"
                f" broker.id matches. If you intend to create a new broker, give it empty log.dirs"
                f" of its own."
            )
        version = stored.version if stored is not None else 0
        directory_id = stored.directory_id if stored is not None else None
        directory_id = directory_id or checkpoint.random_id(random)
        properties = MetaProperties(broker_id, cluster_id, version, directory_id)
        if stored != properties:
            try:
                checkpoint.write_meta_properties(self._disk, path, properties)
            except OSError as error:
                if stored != properties._replace(directory_id=None) or error.errno not in NO_ROOM:
                    raise
                return
        self.id = directory_id

    def begin(self) -> list[str]:
        """Read the checkpoints, remove the marker of a clean stop, and return the names of the
        logs."""
        marker = self._file(CLEAN_SHUTDOWN)
        self._clean = self._disk.exists(marker)
        if self._clean:
            # A crash while the logs are being opened must count as a crash.
            self._disk.remove(marker)
            self._disk.sync_directory(self.path)
        for name in (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANED):
            self._stored[name] = checkpoint.read_offsets(self._disk, self._file(name))
        path = self._file(incarnation.FILE)
        if self._disk.exists(path):
            self.last = incarnation.decode(self._disk.read_file(path))
        names = []
        for name in self._disk.list(self.path):
            if self._disk.is_directory(self._file(name)):
                if _PARTITION.fullmatch(name):
                    names.append(name)
                elif _STRAY.fullmatch(name):
                    log.warning("ignoring %s, a log that was set aside", self._file(name))
                elif not (_DELETED.fullmatch(name) or _FUTURE.fullmatch(name)):
                    log.warning("ignoring %s, not a log directory", self._file(name))
        return names

    def begin_incarnation(self, boot_id: str, incarnation_id: str) -> None:
        """Record this start.  Call it after `begin`, which reads the previous ones.  Raises
        OSError."""
        path = self._file(incarnation.FILE)
        now = self.last.next(boot_id, incarnation_id)
        self._disk.replace_file(path, incarnation.encode(now))

    def may_lack_records(self, boot_id: str) -> bool:
        """Whether acknowledged records may be lost: no clean stop, and another boot since."""
        return not self._clean and self.last.boot_id != boot_id

    def topic_partitions(self) -> list[TopicPartition]:
        """Return the partitions that have a log here."""
        names = [name for name in self._disk.list(self.path) if _PARTITION.fullmatch(name)]
        return [parse_log_name(n) for n in names if self._disk.is_directory(self._file(n))]

    def deleted(self) -> list[str]:
        """Return the paths of deleted logs whose files are not removed yet."""
        names = self._disk.list(self.path)
        return [self._file(name) for name in names if _DELETED.fullmatch(name)]

    def futures(self) -> list[tuple[TopicPartition, str]]:
        """Return the partition and path of each log of a move into this directory."""
        names = [(name, _FUTURE.fullmatch(name)) for name in self._disk.list(self.path)]
        return [
            (parse_log_name(match[1]), self._file(name))
            for name, match in names
            if match is not None and _PARTITION.fullmatch(match[1])
        ]

    @property
    def checkpointed(self) -> set[TopicPartition]:
        """Partitions that the checkpoints listed at the start."""
        return {tp for offsets in self._stored.values() for tp in offsets}

    def stored_offsets(self, topic_partition: TopicPartition, boot_id: str) -> StoredOffsets:
        def of(name: str) -> Offset | None:
            return self._stored[name].get(topic_partition)

        return StoredOffsets(
            self._clean,
            of(RECOVERY_POINTS),
            of(LOG_STARTS),
            of(HIGH_WATERMARKS) or 0,
            of(CLEANED),
            boot_id != "" and self.last.boot_id == boot_id,
        )

    def knows(self, topic_partition: TopicPartition) -> bool:
        """Whether the checkpoint of recovery points lists the partition."""
        return topic_partition in self._written.get(RECOVERY_POINTS, self._stored[RECOVERY_POINTS])

    async def write_offsets(
        self, name: str, now: Callable[[], Mapping[TopicPartition, Offset]]
    ) -> None:
        """Replace a checkpoint with the offsets that `now()` returns, unless they are equal.

        Waits first until no write of that checkpoint is running.  Raises OSError.
        """
        while name in self._writing:
            await asyncio.shield(self._writing[name])
        stored = self._stored.get(name, {})
        refused = (*self.damaged, *self.missing)
        offsets = {tp: stored[tp] for tp in refused if tp in stored} | dict(now())
        if self._written.get(name, self._stored.get(name)) == offsets:
            return
        self._writing[name] = asyncio.get_running_loop().create_future()
        writing = asyncio.ensure_future(self._write(name, offsets))
        # Retrieve the error even if the caller was cancelled, so that asyncio does not log it.
        writing.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        await asyncio.shield(writing)

    async def _write(self, name: str, offsets: Mapping[TopicPartition, Offset]) -> None:
        try:
            await self._disk.offload(
                lambda: checkpoint.write_offsets(self._disk, self._file(name), offsets)
            )
            self._written[name] = offsets
        finally:
            self._writing.pop(name).set_result(None)

    def mark_clean(self) -> None:
        """Record a clean stop: all logs are closed and the checkpoints written."""
        self._disk.replace_file(self._file(CLEAN_SHUTDOWN), _CLEAN_SHUTDOWN_CONTENT)

    def log_path(self, topic_partition: TopicPartition) -> str:
        return self._file(str(topic_partition))

    def future_path(self, topic_partition: TopicPartition, random: Random) -> str:
        """Return a path for a log that is being moved here; too long for the disk if the topic name
        is."""
        return self._file(f"{topic_partition}.{random.getrandbits(128):032x}-future")

    def rename(
        self, path: str, of: TopicPartition, suffix: str, random: Random, *, durably: bool = False
    ) -> str:
        """Rename the log in `path` to make room for another of its partition, and return its new
        path.

        `suffix` is `delete` for a log that was deleted and waits for the removal of its files,
        `stray` for a log that no request deleted.  A long topic name is truncated as Kafka does.
        Raises OSError.
        """
        ending = f"-{of.partition}.{random.getrandbits(128):032x}-{suffix}"
        renamed = self._file(of.topic[: _MAX_NAME_BYTES - len(ending)] + ending)
        self._disk.rename(path, renamed)
        if durably:
            self._disk.sync_directory(self.path)
        return renamed

    def _file(self, name: str) -> str:
        return f"{self.path}/{name}"


def parse_log_name(name: str) -> TopicPartition:
    match = _PARTITION.fullmatch(name)
    assert match is not None, name
    return TopicPartition(match[1], int(match[2]))
