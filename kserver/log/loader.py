"""Load the logs in the log directories at a start: recover them, or open them after a clean stop.

    problem                                      consequence
    a log is damaged in a way that no crash      the log is refused, with the remedy; its directory
    explains                                     stays online
    a partition is in two directories            the start fails: the right one is not known
    the same, and one of its logs is empty       that log is removed: its creation failed
    and has no topic id
    the limit on open files is too low           the start fails
    two topics of the same name                  the older topic's log is set aside: the topic was
                                                 deleted and created again while the log's directory
                                                 was offline
    recovery of a log finds the disk full        it is retried after the other logs are open and
                                                 the deleted logs have been removed

Kafka: LogManager.loadLogs.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kserver.errors import (
    RAISE_OPEN_FILES,
    NoDescriptor,
    NoRoom,
    StorageError,
    storage_error,
)
from kserver.log.checkpoint import PARTITION_METADATA
from kserver.log.concurrency import each, run_all
from kserver.log.directory import LogDirectory, parse_log_name
from kserver.log.log import Log, LogHome
from kserver.log.recovery import DamagedLog
from kserver.log.segment import FILES_A_LOG
from kserver.model import TopicPartition

if TYPE_CHECKING:
    from kserver.config.topic import TopicConfig
    from kserver.world import World

log = logging.getLogger(__name__)


class LogLoader:
    """The loading of one start: `run` fills `logs`, and `directory_of` by a log's path."""

    def __init__(
        self,
        world: World,
        home: LogHome,
        directories: Sequence[LogDirectory],
        topic_config: Callable[[str], TopicConfig],
        threads: int,
        fail: Callable[[LogDirectory, Exception], StorageError],
        *,
        logs: dict[TopicPartition, Log],
        directory_of: dict[str, LogDirectory],
    ) -> None:
        """Load `threads` logs at a time in each directory; `fail` takes a directory offline."""
        self._clock = world.clock
        self._disk = world.disk
        self._boot_id = world.boot_id
        self._home = home
        self._directories = directories
        self._topic_config = topic_config
        self._threads = threads
        self._fail = fail
        self._logs = logs
        self._directory_of = directory_of
        self.left_over: list[str] = []
        """Paths to remove: deleted logs, and logs of abandoned moves."""

    async def run(self) -> None:
        """Load every log.  Raises DamagedLog if a partition is in two directories."""
        await run_all([self._open_directory(d) for d in self._directories if not d.failure])
        for directory in self._directories:
            for topic_partition in sorted(directory.damaged & self._logs.keys()):
                raise _twice(self._logs[topic_partition].directory, directory, topic_partition)
        await self._settle_moves()

    async def _open_directory(self, directory: LogDirectory) -> None:
        without_room: list[str] = []

        async def open_log(name: str) -> None:
            try:
                await self._open(directory, parse_log_name(name))
            except (OSError, StorageError) as error:
                refused = storage_error(directory.path, error)
                if isinstance(refused, NoDescriptor) or not isinstance(refused, NoRoom):
                    raise
                log.warning("%s: loading postponed until there is free space: %s", name, error)
                without_room.append(name)

        names: list[str] = []
        try:
            names = await self._disk.offload(directory.begin)
            await each(names, open_log, self._threads)
            deleted = await self._disk.offload(directory.deleted)
            if without_room:
                for path in deleted:
                    await self._disk.offload(partial(self._disk.remove_tree, path))
            else:
                self.left_over += deleted
            for name in without_room:
                await self._open(directory, parse_log_name(name))
        except (OSError, StorageError) as error:
            if isinstance(error, DamagedLog):
                raise
            if isinstance(storage_error(directory.path, error), NoDescriptor):
                # No disk has failed, and the next start may open what this one cannot.
                raise StorageError(
                    f"{directory.path} has {len(names)} log(s); each needs at least"
                    f" {FILES_A_LOG} open files, more than the limit allows:"
                    f" {RAISE_OPEN_FILES}"
                ) from error
            self._fail(directory, error)

    async def _open(self, directory: LogDirectory, topic_partition: TopicPartition) -> None:
        path = directory.log_path(topic_partition)
        load = partial(
            Log.open,
            self._home,
            path,
            topic_partition,
            self._topic_config(topic_partition.topic),
            self._clock.now_ms(),
            directory.stored_offsets(topic_partition, self._boot_id),
        )
        try:
            opened = await self._disk.offload(load)
        except DamagedLog as error:
            log.error("%s: log is damaged, the partition stays offline: %s", topic_partition, error)
            directory.damaged.add(topic_partition)
            return
        if directory.failure:
            # It went offline meanwhile: `_set_aside` could not rename a log in it.
            opened.abandon()
            return
        other = self._logs.get(topic_partition)
        if other is not None:
            obsolete = self._obsolete(other, opened)
            if obsolete is None:
                raise _twice(other.directory, directory, topic_partition)
            if obsolete is opened:
                await self._set_aside(opened, directory, other)
                return
        self._logs[topic_partition] = opened
        self._directory_of[path] = directory
        if other is not None:
            await self._set_aside(other, self._directory_of.pop(other.directory), opened)

    def _obsolete(self, first: Log, second: Log) -> Log | None:
        """Return which of a partition's two logs to set aside, or None if that is not known."""
        for partition_log in (first, second):
            if _is_incomplete(partition_log):
                return partition_log
        if None in (first.topic_id, second.topic_id) or first.topic_id == second.topic_id:
            return None
        return second if self._created_ms(second) <= self._created_ms(first) else first

    def _created_ms(self, partition_log: Log) -> int:
        return self._disk.modified_ms(f"{partition_log.directory}/{PARTITION_METADATA}")

    async def _set_aside(self, obsolete: Log, directory: LogDirectory, present: Log) -> None:
        """Rename a former topic's log; remove one that is incomplete.

        If that fails, `directory` goes offline, not the one that is being read.
        """
        obsolete.abandon()
        of, path = obsolete.topic_partition, obsolete.directory
        try:
            if _is_incomplete(obsolete):
                await self._disk.offload(partial(self._disk.remove_tree, path))
                log.info("%s: removed %s, whose creation had failed", of, path)
                return
            rename = partial(directory.rename, path, of, "stray", self._home.random, durably=True)
            renamed = await self._disk.offload(rename)
        except OSError as error:
            self._fail(directory, error)
            return
        log.warning(
            "%s: the log in %s is of a former topic (topic id %s, the newer log %s has %s); it was"
            " renamed to %s",
            of,
            path,
            obsolete.topic_id,
            present.directory,
            present.topic_id,
            renamed,
        )

    async def _settle_moves(self) -> None:
        """Complete or abandon the moves that a crash interrupted.

        If the old log is gone, the new one is complete and takes its place.
        """
        futures_by_partition: dict[TopicPartition, list[tuple[LogDirectory, str]]] = defaultdict(
            list
        )
        for directory in self._directories:
            if not directory.failure:
                for topic_partition, path in await self._disk.offload(directory.futures):
                    futures_by_partition[topic_partition].append((directory, path))
        for topic_partition, futures in futures_by_partition.items():
            (directory, path), *others = futures
            if topic_partition in self._logs:
                self.left_over += [future for _, future in futures]
            elif any(d.failure or topic_partition in d.damaged for d in self._directories):
                log.warning("ignoring %s until its old log is available again", path)
            elif others:
                raise DamagedLog(
                    f"{topic_partition} has no log, and was to be moved to each of"
                    f" {', '.join(path for _, path in futures)}: rename the one that is newest to"
                    f" {topic_partition}, and move the others away"
                )
            else:
                log.info("%s: move to %s completed", topic_partition, directory.path)
                await self._take_future(directory, path, topic_partition)

    async def _take_future(
        self, directory: LogDirectory, path: str, topic_partition: TopicPartition
    ) -> None:
        def rename() -> None:
            self._disk.rename(path, directory.log_path(topic_partition))
            self._disk.sync_directory(directory.path)

        try:
            await self._disk.offload(rename)
            await self._open(directory, topic_partition)
        except (OSError, StorageError) as error:
            self._fail(directory, error)


def _is_incomplete(partition_log: Log) -> bool:
    """Whether the disk was full before the log's topic id was written.

    The log is removed then, but a power loss can undo the removal.
    """
    return partition_log.topic_id is None and partition_log.log_end_offset == 0


def _twice(path: str, directory: LogDirectory, topic_partition: TopicPartition) -> DamagedLog:
    return DamagedLog(
        f"{topic_partition} is in both {path} and {directory.log_path(topic_partition)}:"
        " move the older of the two directories away"
    )
