"""All logs of a broker: opens and creates them, flushes them, applies retention, checkpoints.

    lock       lock the log directories, and read which broker they belong to
    identify   claim them for this broker
    open       recover every log, or load it after a clean stop; several at once per directory
    run        flush, apply retention, write the checkpoints and remove files when each is due
    close      flush and close every log; mark each directory without errors as clean

A directory whose disk fails goes offline with its logs, which refuse everything; the others stay
online.  When the last one fails, `run` raises StorageError and the broker stops.

Kafka: LogManager.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING
from uuid import UUID

from kserver.errors import NO_DESCRIPTOR, NO_ROOM, KafkaError, NoRoom, StorageError, storage_error
from kserver.log import checkpoint
from kserver.log.cleaner import Cleaner
from kserver.log.concurrency import each, run_all
from kserver.log.directory import LogDirectory
from kserver.log.loader import LogLoader
from kserver.log.log import Log, LogHome
from kserver.log.missing import MissingLogs
from kserver.log.recovery import NOTHING_STORED, StoredOffsets
from kserver.log.removals import Removals
from kserver.metrics.meters import Histogram
from kserver.model import BrokerId, Offset, TopicPartition

if TYPE_CHECKING:
    from kserver.config.broker import BrokerConfig
    from kserver.config.topic import TopicConfig
    from kserver.world import World

log = logging.getLogger(__name__)

_CHECKPOINTS: Mapping[str, Callable[[Log], Offset | None]] = {
    checkpoint.RECOVERY_POINTS: attrgetter("recovery_point"),
    checkpoint.LOG_STARTS: attrgetter("log_start_offset"),
    checkpoint.HIGH_WATERMARKS: attrgetter("high_watermark"),
    checkpoint.CLEANED: attrgetter("cleaned_to"),
}
_SHORTEST_PERIOD_S = 0.01
_RETRY_S = 1.0


class LogManager:
    def __init__(self, world: World, config: BrokerConfig) -> None:
        self.logs: dict[TopicPartition, Log] = {}
        self.futures: dict[TopicPartition, Log] = {}
        """Logs that are to replace one in another directory (replica/move)."""
        self.stored_broker_id: BrokerId | None = None
        """Broker id in meta.properties; None in new directories."""
        self.stored_cluster_id: str | None = None
        self.incarnation_id = f"{world.random.getrandbits(128):032x}"
        """Id of this start, noted in the directories by `open`."""
        self.earlier_incarnations: frozenset[str] = frozenset()
        """Starts that have ended, since this one holds the lock on their directories."""
        self.may_lack_records = False
        """Whether a machine crash may have lost unflushed records, or a directory is new
        (log/incarnation).  Set by `open`, cleared once the controller knows it."""
        self._world = world
        self._disk = world.disk
        self.config = config
        self._home = LogHome(world.disk, world.random, self, config.producer_id_expiration_ms)
        self._directories = [LogDirectory(self._disk, path) for path in config.log_directories]
        self.missing = MissingLogs(self._directories)
        self._directory_of: dict[str, LogDirectory] = {}
        """Directory of each log, by the log's path."""
        self._flush_due: dict[Log, None] = {}
        self._wake_flusher = asyncio.Event()
        self._removals = Removals(world.disk)
        self._all_failed: asyncio.Future[None] | None = None
        self.on_offline: Callable[[Sequence[TopicPartition]], None] = lambda _: None
        """Called with the logs of a directory that failed, once they refuse everything."""
        self.on_directory_failed: Callable[[], None] = lambda: None
        """Called for each directory that fails."""
        self.flush_times_ms = Histogram()
        self.cleaner = Cleaner(world, self.logs, lambda: self.config, self._write_of)

    # Start

    async def lock(self) -> None:
        """Raise StorageError if another broker uses a directory, or if none can be used."""
        for directory in self._directories:
            try:
                stored = await self._disk.offload(directory.lock)
            except OSError as error:
                self._fail(directory, error)
                continue
            if stored is not None and stored.broker_id is not None:
                if self.stored_broker_id not in (None, stored.broker_id):
                    raise StorageError(
                        f"{directory.path} belongs to broker {stored.broker_id}, others belong to"
                        f" broker {self.stored_broker_id}: remove one of them from log.dirs"
                    )
                self.stored_broker_id = stored.broker_id
                self.stored_cluster_id = stored.cluster_id or self.stored_cluster_id
        self._online()

    def unlock(self) -> None:
        for directory in self._directories:
            directory.unlock()

    def identify(self, broker_id: BrokerId, cluster_id: str) -> None:
        random, is_embedded = self._world.random, self.config.zookeeper_connect is None
        for directory in self._online():
            try:
                directory.identify(broker_id, cluster_id, random, is_embedded=is_embedded)
            except OSError as error:
                self._fail(directory, error)

    async def open(self, topic_config: Callable[[str], TopicConfig]) -> None:
        """Recover or load every log.  Raises DamagedLog, StorageError."""
        loader = LogLoader(
            self._world,
            self._home,
            self._directories,
            topic_config,
            self.config.num_recovery_threads_per_data_dir,
            self._fail,
            logs=self.logs,
            directory_of=self._directory_of,
        )
        await loader.run()
        for path in loader.left_over:
            self._removals.add(0, path)
        self.missing.find(self.logs, self._world.boot_id)
        await self._begin_incarnation()
        self._online()

    async def _begin_incarnation(self) -> None:
        boot_id = self._world.boot_id
        for directory in self._online():
            begin = partial(directory.begin_incarnation, boot_id, self.incarnation_id)
            try:
                await self._disk.offload(begin)
            except OSError as error:
                self._not_written(directory, error)
            self.may_lack_records |= directory.may_lack_records(boot_id)
            self.earlier_incarnations |= frozenset(directory.last.ids)

    # One log

    def get(self, topic_partition: TopicPartition) -> Log | None:
        return self.logs.get(topic_partition)

    def create(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        config: TopicConfig,
        *,
        is_new: bool = True,
        may_begin_empty: bool = True,
    ) -> Log:
        """Create a log in the directory that has the fewest of those that accept it.

        While a directory is offline, only a partition that `is_new` gets a log, since the log of
        another may be there.  Raises MissingLog if there was a log here, unless `may_begin_empty`;
        StorageError.
        """
        self.missing.check(topic_partition, is_new=is_new, may_begin_empty=may_begin_empty)
        cordoned = self.config.cordoned_log_dirs
        online = [d for d in self._online() if d.path not in cordoned] or self._online()
        load = Counter(map(id, self._directory_of.values() if len(online) > 1 else ()))
        for directory in sorted(online, key=lambda d: load[id(d)]):
            try:
                path = directory.log_path(topic_partition)
                new_log = self._make(directory, path, topic_partition, topic_id, config)
            except StorageError as error:
                if isinstance(error, NoRoom):
                    directory.refused(error)
                elif not is_new:
                    raise
                last = error
            else:
                self.logs[topic_partition] = new_log
                self.missing.forget(topic_partition)
                return new_log
        raise last

    def _make(
        self,
        directory: LogDirectory,
        path: str,
        topic_partition: TopicPartition,
        topic_id: UUID | None,
        config: TopicConfig,
        stored: StoredOffsets = NOTHING_STORED,
    ) -> Log:
        now_ms = self._world.clock.now_ms()
        try:
            directory.check_there()
            new_log = Log.open(self._home, path, topic_partition, config, now_ms, stored)
            if topic_id is not None:
                new_log.write_topic_id(topic_id)
        except (OSError, StorageError) as error:
            full = storage_error(path, error)
            if not isinstance(full, NoRoom):
                raise self._fail(directory, error) from error
            try:
                self._disk.remove_tree(path)
            except OSError as cause:
                # Listing a directory takes a descriptor; the next try copes with files left over.
                if cause.errno not in NO_DESCRIPTOR:
                    raise self._fail(directory, cause) from cause
            raise full from error
        self._directory_of[path] = directory
        self.flush_soon(new_log)
        return new_log

    def delete(self, topic_partition: TopicPartition) -> None:
        """Forget the log; its directory is renamed, and removed after `file.delete.delay.ms`."""
        if (old_log := self.logs.pop(topic_partition, None)) is None:
            self._delete_damaged(topic_partition)
            return
        self.drop_future(topic_partition)
        self._give_up(old_log)

    async def forget_deleted(self) -> None:
        """Make deletions durable.  Remove deleted logs from the checkpoints too, so that after a
        crash their offsets do not count for later logs of the same name.  (Kafka:
        LogManager.asyncDelete)"""
        for name in _CHECKPOINTS:
            await self._write(name)
        await self._in_each(LogDirectory.sync)

    def _delete_damaged(self, topic_partition: TopicPartition) -> None:
        self.missing.forget(topic_partition)
        for directory in self._directories:
            if topic_partition in directory.damaged:
                directory.damaged.remove(topic_partition)
                damaged = directory.log_path(topic_partition)
                path = self._rename(directory, damaged, topic_partition, "delete", durably=False)
                self._removals.add(self.config.log_segment_delete_delay_ms, path)

    def set_aside(self, topic_partition: TopicPartition) -> str:
        """Forget the log but keep its files, in a renamed directory; return its new path."""
        old_log = self.logs.pop(topic_partition)
        self.drop_future(topic_partition)
        return self._let_go(old_log, "stray", durably=True)

    def _give_up(self, old_log: Log, *, durably: bool = False) -> None:
        path = self._let_go(old_log, "delete", durably=durably)
        self._removals.add(old_log.config.file_delete_delay_ms, path)

    def _let_go(self, old_log: Log, suffix: str, *, durably: bool) -> str:
        """Rename the log's directory, and return its new path.  Raises StorageError."""
        old_log.abandon()
        self.cleaner.forget(old_log)
        self._flush_due.pop(old_log, None)
        directory = self._directory_of.pop(old_log.directory)
        return self._rename(
            directory, old_log.directory, old_log.topic_partition, suffix, durably=durably
        )

    def _rename(
        self, directory: LogDirectory, path: str, key: TopicPartition, suffix: str, *, durably: bool
    ) -> str:
        try:
            return directory.rename(path, key, suffix, self._world.random, durably=durably)
        except OSError as error:
            raise self._fail(directory, error) from error

    # Moves between directories

    def directory_of(self, partition_log: Log) -> LogDirectory:
        return self._directory_of[partition_log.directory]

    def create_future(self, current: Log, directory: LogDirectory) -> Log:
        """Create an empty log that is to replace `current` once filled.  Raises StorageError."""
        topic_partition = current.topic_partition
        self.drop_future(topic_partition)
        path = directory.future_path(topic_partition, self._world.random)
        stored = StoredOffsets(log_start_offset=current.segments[0].base_offset)
        future = self._make(
            directory, path, topic_partition, current.topic_id, current.config, stored
        )
        self.futures[topic_partition] = future
        return future

    def drop_future(self, topic_partition: TopicPartition) -> None:
        """Abandon the move, if there is one; durably, so that the next start does not finish it."""
        if (future := self.futures.pop(topic_partition, None)) is not None:
            self._give_up(future, durably=True)

    async def write_checkpoints(self, partition_log: Log) -> None:
        """Write everything that the next start must know of this log.  Raises StorageError."""
        for name in _CHECKPOINTS:
            await self._write_of(partition_log, name)

    def take_future(self, current: Log) -> Log:
        """Let the future log, which has all of `current`, take its place.

        Blocks on the disk: a crash must find either the old log or the new one.
        """
        topic_partition = current.topic_partition
        future = self.futures[topic_partition]
        directory = self.directory_of(future)
        path = directory.log_path(topic_partition)
        self._give_up(current, durably=True)
        del self.futures[topic_partition]
        try:
            self._disk.rename(future.directory, path)
            self._disk.sync_directory(directory.path)
        except OSError as error:
            raise self._fail(directory, error) from error
        del self._directory_of[future.directory]
        self._removals.moved(future.directory, path)
        future.relocate(path)
        self._directory_of[path] = directory
        self.logs[topic_partition] = future
        return future

    def configure(self, config: BrokerConfig) -> None:
        """Apply a changed broker config, also to the topics that use its defaults."""
        self.config = config
        expiration_ms = config.producer_id_expiration_ms
        self._home = replace(self._home, producer_expiration_ms=expiration_ms)
        of_overrides: dict[frozenset[tuple[str, str]], TopicConfig] = {}
        for partition_log in self.logs.values():
            key = frozenset(partition_log.config.explicit.items())
            if key not in of_overrides:
                of_overrides[key] = partition_log.config.upon(config)
            partition_log.reconfigure(of_overrides[key])
            partition_log.producers.expiration_ms = expiration_ms

    # Housekeeping, on request of logs

    def flush_soon(self, partition_log: Log) -> None:
        self._flush_due[partition_log] = None
        self._wake_flusher.set()

    def remove_later(self, owner: Log, paths: Sequence[str]) -> None:
        for path in paths:
            self._removals.add(owner.config.file_delete_delay_ms, path)

    async def stop_cleaning(self, log: Log) -> None:
        await self.cleaner.stop(log)

    async def recovery_point_lowered(self, lowered: Log) -> None:
        await self._write_of(lowered, checkpoint.RECOVERY_POINTS)

    async def _write_of(self, partition_log: Log, name: str) -> None:
        """Write a checkpoint of the log's directory.  Raises StorageError."""
        if partition_log.failure is not None:
            raise partition_log.failure
        directory = self._directory_of[partition_log.directory]
        try:
            await self._write_offsets(directory, name)
        except OSError as error:
            self._not_written(directory, error)
            if name == checkpoint.RECOVERY_POINTS:
                raise storage_error(directory.path, error) from error

    def no_room(self, refused: Log, error: NoRoom) -> None:
        if (directory := self._directory_of.get(refused.directory)) is not None:
            directory.refused(error)

    def disk_failed(self, failed: Log, error: StorageError) -> None:
        if (directory := self._directory_of.get(failed.directory)) is not None:
            self._fail(directory, error)

    # While it runs

    async def run(self) -> None:
        """Run until the last directory fails, which raises StorageError."""
        config = self.config
        self._all_failed = asyncio.get_running_loop().create_future()
        self._online()
        await self._make_room()
        await run_all(
            [
                self._until_all_failed(self._all_failed),
                self._flush_when_due(),
                self._removals.run(),
                self.cleaner.run(),
                self._every(self._flush_period_ms, self._flush_aged),
                self._every(lambda: 1000, partial(self._in_each, self._look_after_directory)),
                self._every(lambda: config.log_retention_check_interval_ms, self._delete_old),
                self._every(
                    lambda: config.log_flush_offset_checkpoint_interval_ms,
                    partial(self._write, checkpoint.RECOVERY_POINTS),
                ),
                self._every(
                    lambda: config.log_flush_start_offset_checkpoint_interval_ms,
                    self.write_log_starts,
                ),
                self._every(
                    lambda: config.replica_high_watermark_checkpoint_interval_ms,
                    partial(self._write, checkpoint.HIGH_WATERMARKS),
                ),
            ]
        )

    async def _until_all_failed(self, failed: asyncio.Future[None]) -> None:
        await failed

    async def _every(
        self, period_ms: Callable[[], int], job: Callable[[], Awaitable[None]]
    ) -> None:
        while True:
            await asyncio.sleep(max(period_ms() / 1000, _SHORTEST_PERIOD_S))
            await job()

    async def _flush_when_due(self) -> None:
        while True:
            await self._wake_flusher.wait()
            self._wake_flusher.clear()
            due, self._flush_due = list(self._flush_due), {}
            await each(due, self._flush, self.config.num_recovery_threads_per_data_dir)
            # A log that was deleted meanwhile is in no directory.
            flushed = [(self._directory_of.get(log.directory), log.topic_partition) for log in due]
            del due  # keeping it while waiting would keep the files of a deleted log open
            if not all(directory is None or directory.knows(tp) for directory, tp in flushed):
                # After a crash, a new log must not look like one whose checkpoint was lost.
                await self._write(checkpoint.RECOVERY_POINTS)

    async def _flush(self, partition_log: Log) -> None:
        try:
            await self.flush(partition_log)
            partition_log.flushed_ms = self._world.clock.now_ms()
        except NoRoom as error:
            self.no_room(partition_log, error)
            asyncio.get_running_loop().call_later(_RETRY_S, self.flush_soon, partition_log)
        except StorageError:
            pass  # its directory went offline through `disk_failed`, or it was deleted

    async def flush(self, partition_log: Log) -> None:
        """Flush a log, and record the time it took.  Raises StorageError."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await partition_log.flush()
        self.flush_times_ms.add((loop.time() - began_s) * 1000)

    def _flush_period_ms(self) -> int:
        """Return how often to look for unflushed records that are older than `flush.ms`."""
        shortest = min((log.config.flush_ms for log in self.logs.values()), default=1000)
        return min(shortest, self.config.log_flush_scheduler_interval_ms, 1000)

    async def _flush_aged(self) -> None:
        now_ms = self._world.clock.now_ms()
        for partition_log in self.logs.values():
            if partition_log.recovery_point == partition_log.log_end_offset:
                partition_log.flushed_ms = now_ms
            elif now_ms - partition_log.flushed_ms >= partition_log.config.flush_ms:
                self.flush_soon(partition_log)

    async def _make_room(self) -> None:
        """Delete at once what is due on a disk that is full at the start, without waiting for
        `log.retention.check.interval.ms` or `file.delete.delay.ms`."""
        for directory in self._directories:
            try:
                if directory.failure is not None or directory.has_room():
                    continue
            except OSError as error:
                self._fail(directory, error)
                continue
            log.warning("log directory %s is full; applying retention now", directory.path)
            for partition_log in self.logs_in(directory):
                self._delete_old_of(partition_log)
            await self._removals.remove_all(directory.path)

    async def _delete_old(self) -> None:
        for partition_log in list(self.logs.values()):
            # A log that is being cleaned is skipped until the next check.
            if not self.cleaner.is_cleaning(partition_log):
                self._delete_old_of(partition_log)
            partition_log.producers.expire(self._world.clock.now_ms())
            await asyncio.sleep(0)

    def _delete_old_of(self, partition_log: Log) -> None:
        # A log that is being truncated refuses; the next check tries again.
        with contextlib.suppress(KafkaError, StorageError):
            partition_log.delete_old_segments(self._world.clock.now_ms())

    async def write_log_starts(self) -> None:
        """Write the log start offsets to disk."""
        await self._write(checkpoint.LOG_STARTS)

    async def _write(self, name: str) -> None:
        await self._in_each(lambda directory: self._write_offsets(directory, name))

    async def _in_each(self, work: Callable[[LogDirectory], Awaitable[None]]) -> None:
        for directory in self._directories:
            if directory.failure is None:
                try:
                    await work(directory)
                except OSError as error:
                    self._not_written(directory, error)

    async def _write_offsets(self, directory: LogDirectory, name: str) -> None:
        """Write a checkpoint of the directory.  Raises OSError."""
        # The cleaned offset, which explains gaps, must be durable before a recovery point above it:
        # recovery takes an unexplained gap below the recovery point for lost files.
        before = [checkpoint.CLEANED] if name == checkpoint.RECOVERY_POINTS else []
        for file_name in (*before, name):
            await directory.write_offsets(file_name, partial(self._offsets, file_name, directory))

    def _not_written(self, directory: LogDirectory, error: OSError) -> None:
        """Handle a checkpoint write that failed; on a full disk the old one stays valid."""
        if error.errno in NO_ROOM:
            directory.refused(error)
        else:
            self._fail(directory, error)

    def _offsets(self, name: str, directory: LogDirectory) -> dict[TopicPartition, Offset]:
        offset_of = _CHECKPOINTS[name]
        offsets = {log.topic_partition: offset_of(log) for log in self.logs_in(directory)}
        if name == checkpoint.LOG_STARTS:
            # Records that are deleted during a move must stay deleted in the new directory.
            for partition_log in self.logs_in(directory):
                current = self.logs.get(partition_log.topic_partition, partition_log)
                offsets[partition_log.topic_partition] = current.log_start_offset
        return {tp: offset for tp, offset in offsets.items() if offset is not None}

    # Stop

    async def close(self) -> None:
        """Flush and close all logs; after `unlock`, others may use the directories.  Raises
        StorageError, after all were tried, if one was not closed cleanly."""
        open_ = [directory for directory in self._directories if not directory.failure]
        failures: list[str] = []
        await run_all([self._close_directory(directory, failures) for directory in open_])
        if failures:
            raise StorageError("\n".join(failures))

    async def _close_directory(self, directory: LogDirectory, failures: list[str]) -> None:
        threads = self.config.num_recovery_threads_per_data_dir
        try:
            await each(self.logs_in(directory), Log.close, threads)
            for name in _CHECKPOINTS:
                await self._write_offsets(directory, name)
            await self._disk.offload(directory.mark_clean)
        except (OSError, StorageError) as error:
            failures.append(f"{directory.path} was not closed cleanly: {error}")

    # Directories

    def _online(self) -> list[LogDirectory]:
        """Return the directories that work; raises StorageError if none does."""
        online = [directory for directory in self._directories if directory.failure is None]
        if not online:
            raise self._no_directory_left()
        return online

    def _no_directory_left(self) -> StorageError:
        failures = (str(directory.failure) for directory in self._directories)
        return StorageError(f"all log directories have failed: {'; '.join(failures)}")

    @property
    def directories(self) -> Sequence[LogDirectory]:
        """All directories, in the order of log.dirs; the failed ones have `failure` set."""
        return self._directories

    def logs_in(self, directory: LogDirectory) -> list[Log]:
        """Return the logs in the directory, and those on their way to it."""
        logs = (*self.logs.values(), *self.futures.values())
        return [log for log in logs if self._directory_of[log.directory] is directory]

    async def _look_after_directory(self, directory: LogDirectory) -> None:
        await self._disk.offload(directory.check_there)
        if directory.is_full:
            # DeleteRecords, which makes room, could not write them.
            await self._write_offsets(directory, checkpoint.LOG_STARTS)
        await directory.look_for_room()

    def _fail(self, directory: LogDirectory, error: Exception) -> StorageError:
        """Take a directory offline, with all its logs."""
        if directory.failure is None:
            # With the remedy; not as NoRoom, which callers would retry.
            failure = StorageError(str(storage_error(directory.path, error)))
            log.error("log directory %s went offline: %s", directory.path, error)
            directory.failure = failure
            logs = self.logs_in(directory)
            for partition_log in logs:
                partition_log.fail(failure)
                key = partition_log.topic_partition
                of = self.futures if partition_log is self.futures.get(key) else self.logs
                del of[key]
                self._flush_due.pop(partition_log, None)
            self.on_offline([log.topic_partition for log in logs])
            self.on_directory_failed()
            failed = all(other.failure is not None for other in self._directories)
            if failed and self._all_failed is not None and not self._all_failed.done():
                self._all_failed.set_exception(self._no_directory_left())
        return directory.failure
