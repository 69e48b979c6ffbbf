"""All logs of a broker: opens and makes them, keeps them flushed, trimmed and checkpointed.

    lock       the log directories are this process', and what they say of their broker is read
    identify   they are this broker's
    open       every log is recovered, or loaded after a clean stop; several at once per directory
    run        flush what is due, delete what is old, write the checkpoints, remove files in time
    close      every log is flushed and closed; a directory where all went well is marked clean

A directory whose disk fails goes offline with its logs: they refuse everything, the others serve
on.  When the last one fails, `run` ends with StorageError and the broker stops.  A log that is
damaged in a way that no crash explains ends the start instead: someone must look at it.

Kafka: LogManager.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from kserver.errors import NO_ROOM, DiskFull, KafkaError, StorageError, storage_error
from kserver.log import checkpoint
from kserver.log.cleaner import Cleaner
from kserver.log.directory import LogDirectory, parse_log_name
from kserver.log.log import Log, LogHome
from kserver.log.recovery import DamagedLog
from kserver.metrics.meters import Histogram
from kserver.model import BrokerId, Offset, TopicPartition

if TYPE_CHECKING:
    from kserver.config.broker import BrokerConfig
    from kserver.config.topic import TopicConfig
    from kserver.world import World

log = logging.getLogger(__name__)

T = TypeVar("T")

_CHECKPOINTS: Mapping[str, Callable[[Log], Offset | None]] = {
    checkpoint.RECOVERY_POINTS: attrgetter("recovery_point"),
    checkpoint.LOG_STARTS: attrgetter("log_start_offset"),
    checkpoint.HIGH_WATERMARKS: attrgetter("high_watermark"),
    checkpoint.CLEANED: attrgetter("cleaned_to"),
}
_SHORTEST_PERIOD_S = 0.01
_RETRY_S = 1.0
_ROOM_BYTES = 1 << 20
_ROOM_AFTER_S = 5.0
"""A disk has room again when so much is free, and nothing was refused for so long."""


class LogManager:
    def __init__(self, world: World, config: BrokerConfig) -> None:
        self.logs: dict[TopicPartition, Log] = {}
        self.stored_broker_id: BrokerId | None = None
        """What meta.properties says; None in new directories."""
        self._world = world
        self._disk = world.disk
        self.config = config
        self._home = LogHome(world.disk, world.random, self, config.producer_id_expiration_ms)
        self._directories = [LogDirectory(self._disk, path) for path in config.log_directories]
        self._directory_of: dict[str, LogDirectory] = {}
        """By a log's path."""
        self._flush_due: dict[Log, None] = {}
        self._wake_flusher = asyncio.Event()
        self._removals: list[tuple[float, str]] = []
        """When to remove which file or directory."""
        self._wake_remover = asyncio.Event()
        self._all_failed: asyncio.Future[None] | None = None
        self.on_offline: Callable[[Sequence[TopicPartition]], None] = lambda _: None
        """Told of the logs of a directory that failed, once they refuse everything."""
        self.flush_times_ms = Histogram()
        self.cleaner = Cleaner(world, self.logs, lambda: self.config, self._write_of)

    # Start

    async def lock(self) -> None:
        """Raises StorageError when another broker has a directory, or none can be used."""
        for directory in self._directories:
            try:
                stored = await self._disk.offload(directory.lock)
            except OSError as error:
                self._fail(directory, error)
                continue
            if stored is not None and stored.broker_id is not None:
                if self.stored_broker_id not in (None, stored.broker_id):
                    raise StorageError(
                        f"{directory.path} is broker {stored.broker_id}'s, other log.dirs are"
                        f" broker {self.stored_broker_id}'s: remove one of them from log.dirs"
                    )
                self.stored_broker_id = stored.broker_id
        self._online()

    def unlock(self) -> None:
        for directory in self._directories:
            directory.unlock()

    def identify(self, broker_id: BrokerId, cluster_id: str) -> None:
        for directory in self._online():
            try:
                directory.identify(broker_id, cluster_id)
            except OSError as error:
                self._fail(directory, error)

    async def open(self, topic_config: Callable[[str], TopicConfig]) -> None:
        """Recover or load every log.  Raises DamagedLog, StorageError."""
        await _together([self._open_directory(d, topic_config) for d in self._online()])
        self._online()

    async def _open_directory(
        self, directory: LogDirectory, topic_config: Callable[[str], TopicConfig]
    ) -> None:
        async def open_log(name: str) -> None:
            topic_partition = parse_log_name(name)
            config = topic_config(topic_partition.topic)
            self._add(await self._disk.offload(lambda: self._load(directory, name, config)))

        try:
            names = await self._disk.offload(directory.begin)
            await self._each(names, open_log)
            for path in await self._disk.offload(directory.deleted):
                self._remove_at(0, path)
        except (OSError, StorageError) as error:
            if isinstance(error, DamagedLog):
                raise
            self._fail(directory, error)

    def _load(self, directory: LogDirectory, name: str, config: TopicConfig) -> Log:
        """In a thread."""
        topic_partition = parse_log_name(name)
        path = directory.log_path(topic_partition)
        stored = directory.stored_offsets(topic_partition)
        opened = Log.open(
            self._home, path, topic_partition, config, self._world.clock.now_ms(), stored
        )
        self._directory_of[path] = directory
        return opened

    def _add(self, opened: Log) -> None:
        other = self.logs.get(opened.topic_partition)
        if other is not None:
            raise DamagedLog(
                f"{opened.topic_partition} is in both {other.directory} and {opened.directory}:"
                " remove the older of the two directories"
            )
        self.logs[opened.topic_partition] = opened

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
    ) -> Log:
        """A new log in the directory with the fewest that has room.  Raises StorageError.

        While a directory is offline only a partition that `is_new` gets a log: that of another may
        be there.
        """
        if not is_new and any(d.failure for d in self._directories):
            raise StorageError(
                f"{topic_partition} may be in one of the log directories that are offline:"
                f" {', '.join(d.path for d in self._directories if d.failure)}"
            )
        cordoned = self.config.cordoned_log_dirs
        online = [d for d in self._online() if d.path not in cordoned] or self._online()
        load = Counter(map(id, self._directory_of.values()))
        for directory in sorted(online, key=lambda d: load[id(d)]):
            try:
                return self._create_in(directory, topic_partition, topic_id, config)
            except DiskFull as error:
                self._refused(directory, error)
                last = error
        raise last

    def _create_in(
        self,
        directory: LogDirectory,
        topic_partition: TopicPartition,
        topic_id: UUID,
        config: TopicConfig,
    ) -> Log:
        path = directory.log_path(topic_partition)
        try:
            made = Log.open(self._home, path, topic_partition, config, self._world.clock.now_ms())
            made.write_topic_id(topic_id)
        except (OSError, StorageError) as error:
            full = storage_error(path, error) if isinstance(error, OSError) else error
            if not isinstance(full, DiskFull):
                raise self._fail(directory, error) from error
            self._disk.remove_tree(path)
            raise full from error
        self._directory_of[path] = directory
        self.logs[topic_partition] = made
        self.flush_soon(made)
        return made

    def delete(self, topic_partition: TopicPartition) -> None:
        """Forget the log; its directory is renamed, and removed after `file.delete.delay.ms`."""
        gone = self.logs.pop(topic_partition, None)
        if gone is None:
            return
        gone.abandon()
        self.cleaner.forget(gone)
        self._flush_due.pop(gone, None)
        directory = self._directory_of.pop(gone.directory)
        path = directory.deleted_path(topic_partition, self._world.random)
        try:
            self._disk.rename(gone.directory, path)
        except OSError as error:
            raise self._fail(directory, error) from error
        self._remove_at(gone.config.file_delete_delay_ms, path)

    def configure(self, config: BrokerConfig) -> None:
        """The broker's settings are others: so are those of topics that fall back to them."""
        self.config = config
        expiration_ms = config.producer_id_expiration_ms
        self._home = replace(self._home, producer_expiration_ms=expiration_ms)
        of_overrides: dict[frozenset[tuple[str, str]], TopicConfig] = {}
        for one in self.logs.values():
            explicit = one.config.explicit
            key = frozenset(explicit.items())
            if key not in of_overrides:
                of_overrides[key] = one.config.upon(config)
            one.reconfigure(of_overrides[key])
            one.producers.expiration_ms = expiration_ms

    # What logs ask for (Housekeeping)

    def flush_soon(self, wanted: Log) -> None:
        self._flush_due[wanted] = None
        self._wake_flusher.set()

    def remove_later(self, owner: Log, paths: Sequence[str]) -> None:
        for path in paths:
            self._remove_at(owner.config.file_delete_delay_ms, path)

    async def stop_cleaning(self, log: Log) -> None:
        await self.cleaner.stop(log)

    async def recovery_point_lowered(self, lowered: Log) -> None:
        await self._write_of(lowered, checkpoint.RECOVERY_POINTS)

    async def _write_of(self, one: Log, name: str) -> None:
        """Raises StorageError."""
        if one.failure is not None:
            raise one.failure
        directory = self._directory_of[one.directory]
        try:
            await directory.write_offsets(name, partial(self._offsets, name, directory))
        except OSError as error:
            if name == checkpoint.RECOVERY_POINTS:
                raise self._fail(directory, error) from error
            self._not_written(directory, error)

    def disk_full(self, refused: Log, error: DiskFull) -> None:
        directory = self._directory_of.get(refused.directory)
        if directory is not None:
            self._refused(directory, error)

    def disk_failed(self, failed: Log, error: StorageError) -> None:
        directory = self._directory_of.get(failed.directory)
        if directory is not None:
            self._fail(directory, error)

    # While it runs

    async def run(self) -> None:
        """Ends only with StorageError: no directory is left."""
        config = self.config
        self._all_failed = asyncio.get_running_loop().create_future()
        await _together(
            [
                self._until_all_failed(self._all_failed),
                self._flush_when_due(),
                self._remove_when_due(),
                self.cleaner.run(),
                self._every(self._flush_period_ms, self._flush_aged),
                self._every(lambda: 1000, self._look_for_room),
                self._every(lambda: config.log_retention_check_interval_ms, self._delete_old),
                self._every(
                    lambda: config.log_flush_offset_checkpoint_interval_ms,
                    self._write_recovery_points,
                ),
                self._every(
                    lambda: config.log_flush_start_offset_checkpoint_interval_ms,
                    self.write_log_starts,
                ),
                self._every(
                    lambda: config.replica_high_watermark_checkpoint_interval_ms,
                    self._write_high_watermarks,
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
            await self._each(due, self._flush)
            # One that was deleted meanwhile is in no directory.
            kept = [(self._directory_of.get(one.directory), one.topic_partition) for one in due]
            if not all(directory is None or directory.knows(tp) for directory, tp in kept):
                # A crash must not take a new log for one whose checkpoint was lost.
                await self._write(checkpoint.RECOVERY_POINTS)

    async def _flush(self, one: Log) -> None:
        try:
            await self.flush(one)
            one.flushed_ms = self._world.clock.now_ms()
        except DiskFull as error:
            self.disk_full(one, error)
            asyncio.get_running_loop().call_later(_RETRY_S, self.flush_soon, one)
        except StorageError:
            pass  # its directory went offline through `disk_failed`, or it was deleted

    async def flush(self, one: Log) -> None:
        """As the log does it, timed; raises StorageError."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await one.flush()
        self.flush_times_ms.add((loop.time() - began_s) * 1000)

    def _flush_period_ms(self) -> int:
        """How often to look for unflushed records that are older than `flush.ms`."""
        shortest = min((one.config.flush_ms for one in self.logs.values()), default=1000)
        return min(shortest, self.config.log_flush_scheduler_interval_ms, 1000)

    async def _flush_aged(self) -> None:
        now_ms = self._world.clock.now_ms()
        for one in self.logs.values():
            if one.recovery_point == one.log_end_offset:
                one.flushed_ms = now_ms
            elif now_ms - one.flushed_ms >= one.config.flush_ms:
                self.flush_soon(one)

    async def _delete_old(self) -> None:
        for one in list(self.logs.values()):
            now_ms = self._world.clock.now_ms()
            # A log that is being truncated refuses; its turn comes again, and that of one that is
            # being cleaned.
            if not self.cleaner.is_cleaning(one):
                with contextlib.suppress(KafkaError, StorageError):
                    one.delete_old_segments(now_ms)
            one.producers.expire(now_ms)
            await asyncio.sleep(0)

    async def _write_recovery_points(self) -> None:
        await self._write(checkpoint.RECOVERY_POINTS)

    async def write_log_starts(self) -> None:
        """Where logs start now is on disk afterwards."""
        await self._write(checkpoint.LOG_STARTS)

    async def _write_high_watermarks(self) -> None:
        await self._write(checkpoint.HIGH_WATERMARKS)

    async def _write(self, name: str) -> None:
        for directory in self._directories:
            if directory.failure is None:
                try:
                    await directory.write_offsets(name, partial(self._offsets, name, directory))
                except OSError as error:
                    self._not_written(directory, error)

    def _not_written(self, directory: LogDirectory, error: OSError) -> None:
        """A checkpoint is as it was; on a full disk that will do until there is room."""
        if error.errno in NO_ROOM:
            self._refused(directory, DiskFull(str(error)))
        else:
            self._fail(directory, error)

    def _offsets(self, name: str, directory: LogDirectory) -> dict[TopicPartition, Offset]:
        offset_of = _CHECKPOINTS[name]
        offsets = {one.topic_partition: offset_of(one) for one in self.logs_in(directory)}
        return {tp: offset for tp, offset in offsets.items() if offset is not None}

    def _remove_at(self, delay_ms: int, path: str) -> None:
        self._removals.append((asyncio.get_running_loop().time() + delay_ms / 1000, path))
        self._wake_remover.set()

    async def _remove_when_due(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._wake_remover.clear()
            now = loop.time()
            due = [path for deadline, path in self._removals if deadline <= now]
            self._removals = [entry for entry in self._removals if entry[0] > now]
            if due:
                await self._disk.offload(partial(self._remove, due))
            next_deadline = min((deadline for deadline, _ in self._removals), default=None)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(next_deadline):
                    await self._wake_remover.wait()

    def _remove(self, paths: Sequence[str]) -> None:
        """In a thread.  What cannot be removed now is removed by the next start."""
        for path in paths:
            try:
                if self._disk.is_directory(path):
                    self._disk.remove_tree(path)
                else:
                    self._disk.remove(path)
            except FileNotFoundError:
                pass  # its directory was deleted meanwhile
            except OSError as error:
                log.warning("%s cannot be removed: %s", path, error)

    # Stop

    async def close(self) -> None:
        """After this the directories may be used by others, once `unlock` was called."""
        await _together([self._close_directory(d) for d in self._directories if not d.failure])

    async def _close_directory(self, directory: LogDirectory) -> None:
        try:
            await self._each(self.logs_in(directory), Log.close)
            for name in _CHECKPOINTS:
                await directory.write_offsets(name, partial(self._offsets, name, directory))
            await self._disk.offload(directory.mark_clean)
        except (OSError, StorageError) as error:
            log.error("%s was not closed cleanly: %s", directory.path, error)

    # Directories

    def _online(self) -> list[LogDirectory]:
        """Raises StorageError when there is none."""
        online = [directory for directory in self._directories if directory.failure is None]
        if not online:
            raise self._no_directory_left()
        return online

    def _no_directory_left(self) -> StorageError:
        failures = "; ".join(str(d.failure) for d in self._directories)
        return StorageError(f"all log directories have failed: {failures}")

    @property
    def directories(self) -> Sequence[LogDirectory]:
        """In the order of log.dirs; those that failed say how."""
        return self._directories

    def logs_in(self, directory: LogDirectory) -> list[Log]:
        directory_of = self._directory_of
        return [one for one in self.logs.values() if directory_of[one.directory] is directory]

    def _refused(self, directory: LogDirectory, error: DiskFull) -> None:
        """Something was not written for lack of room; told once until there is room again."""
        if directory.full_at_s is None:
            log.error("%s is full, what needs room is refused: %s", directory.path, error)
        directory.full_at_s = asyncio.get_running_loop().time()

    async def _look_for_room(self) -> None:
        now_s = asyncio.get_running_loop().time()
        for directory in self._directories:
            if directory.failure is None and directory.is_quiet_since(now_s - _ROOM_AFTER_S):
                path = directory.path
                try:
                    free_bytes = await self._disk.offload(partial(self._disk.free_bytes, path))
                except OSError as error:
                    self._fail(directory, error)
                    continue
                if free_bytes >= _ROOM_BYTES:
                    log.info("%s has room again", path)
                    directory.full_at_s = None

    def _fail(self, directory: LogDirectory, error: Exception) -> StorageError:
        """Take a directory offline, with all its logs."""
        if directory.failure is None:
            failure = StorageError(f"{directory.path}: {error}")
            log.error("%s goes offline: %s", directory.path, error)
            directory.failure = failure
            gone = self.logs_in(directory)
            for one in gone:
                one.fail(failure)
                del self.logs[one.topic_partition]
                self._flush_due.pop(one, None)
            self.on_offline([one.topic_partition for one in gone])
            failed = all(other.failure is not None for other in self._directories)
            if failed and self._all_failed is not None and not self._all_failed.done():
                self._all_failed.set_exception(self._no_directory_left())
        return directory.failure

    async def _each(self, items: Iterable[T], work: Callable[[T], Awaitable[None]]) -> None:
        """`work` on every item, `num.recovery.threads.per.data.dir` at a time."""
        left = iter(items)

        async def worker() -> None:
            for item in left:
                await work(item)

        await _together([worker() for _ in range(self.config.num_recovery_threads_per_data_dir)])


async def _together(parts: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run all; of their errors the first is raised."""
    try:
        async with asyncio.TaskGroup() as tasks:
            for part in parts:
                tasks.create_task(part)
    except BaseExceptionGroup as errors:
        raise _first(errors) from None


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first
