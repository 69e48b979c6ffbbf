"""Cleaner of compacted logs: pick the dirtiest log, compact it, swap the new segments in.

    step       what happens
    pick       choose the log with the largest dirty share of those that are due (log/cleanable)
    compact    run log/compaction in a process of its own, at the configured rate
    swap       group by group: rename the new segment's files durably from .cleaned to .swap; then,
               in one step, the old files to .deleted and the new ones to their final names
    save       write to cleaner-offset-checkpoint up to where the log is clean

    crash during     leaves                the next start
    compact          .cleaned files        removes them
    swap             .swap files           replaces the segments whose records they hold
    before save      a clean log           cleans it once more

A log with an invalid batch is uncleanable until the broker restarts; a full disk postpones its
cleaning.  While a log is cleaned, none of its segments is deleted; before it is truncated, `stop`
is awaited.  Kafka: LogCleaner, LogCleanerManager.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from collections.abc import Awaitable, Callable, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING

from kserver.errors import NO_ROOM, NoRoom, StorageError
from kserver.log import checkpoint, cleanable
from kserver.log.cleanable import Dirty
from kserver.log.compaction import CannotClean, Compacted, Job, compact, remove_cleaned
from kserver.log.leftovers import stage_swap
from kserver.model import NO_TIMESTAMP, Offset, TopicPartition
from kserver.world.rate_limiter import RateLimiter

if TYPE_CHECKING:
    from kserver.config.broker import BrokerConfig
    from kserver.log.log import Log
    from kserver.log.segment import LogSegment
    from kserver.world import World

log = logging.getLogger(__name__)

_NEVER_MS = (1 << 63) - 1
_SHORTEST_PAUSE_S = 0.01
_NO_ROOM = {*NO_ROOM, errno.ENOMEM}


class Cleaner:
    """Cleans the dirtiest logs; `save` writes a checkpoint of the directory that holds the log."""

    def __init__(
        self,
        world: World,
        logs: Mapping[TopicPartition, Log],
        config: Callable[[], BrokerConfig],
        save: Callable[[Log, str], Awaitable[None]],
    ) -> None:
        self.uncleanable: dict[Log, CannotClean] = {}
        self.cleanings = 0
        self.read_bytes = 0
        self.written_bytes = 0
        self.longest_s = 0.0
        self._disk = world.disk
        self._clock = world.clock
        self._logs = logs
        self._config = config
        self._save = save
        self._running: dict[Log, asyncio.Task[None]] = {}
        self._wake = asyncio.Event()

    def is_cleaning(self, partition_log: Log) -> bool:
        return partition_log in self._running

    async def stop(self, partition_log: Log) -> None:
        """Cancel the cleaning of the log and wait until it has ended; swapped segments stay."""
        self.forget(partition_log)
        if (task := self._running.get(partition_log)) is not None:
            await asyncio.wait([task])

    def forget(self, partition_log: Log) -> None:
        """Cancel the cleaning of a deleted log, without waiting for it."""
        self.uncleanable.pop(partition_log, None)
        if (task := self._running.get(partition_log)) is not None:
            task.cancel()

    async def run(self) -> None:
        if not self._config().log_cleaner_enable:
            return
        async with asyncio.TaskGroup() as cleanings:
            while True:
                self._wake.clear()
                while len(self._running) < self._config().log_cleaner_threads:
                    due = await self._dirtiest()
                    if due is None:
                        break
                    self._running[due] = cleanings.create_task(self._supervise(due))
                pause_s = max(self._config().log_cleaner_backoff_ms / 1000, _SHORTEST_PAUSE_S)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._wake.wait()

    def dirtiness(self, partition_log: Log, decided: Offset) -> Dirty:
        """Return the dirty range of the log; every transaction below `decided` is decided, even
        after a crash."""
        return cleanable.dirty(
            partition_log.segments,
            partition_log.config,
            cleaned_to=partition_log.cleaned_to or 0,
            log_start_offset=partition_log.log_start_offset,
            limit=min(decided, partition_log.recovery_point),
            now_ms=self._clock.now_ms(),
        )

    async def _dirtiest(self) -> Log | None:
        due = []
        for partition_log in list(self._logs.values()):
            if (
                "compact" not in partition_log.config.cleanup_policy
                or partition_log.failure is not None
            ):
                continue
            if partition_log in self._running or partition_log in self.uncleanable:
                continue
            if partition_log.config.max_compaction_lag_ms < _NEVER_MS:
                await self._date(partition_log)
            dirty = self.dirtiness(partition_log, partition_log.last_stable_offset)
            if partition_log.failure is None and dirty.is_due(partition_log.config):
                due.append((dirty.ratio, partition_log))
        return max(due, key=itemgetter(0), default=(0, None))[1]

    async def _date(self, partition_log: Log) -> None:
        """Read the first timestamp of sealed segments, which are loaded without it."""
        cleaned_to = partition_log.cleaned_to or 0
        undated = [
            segment
            for segment in partition_log.segments[:-1]
            if segment.first_timestamp == NO_TIMESTAMP and segment.end_offset > cleaned_to
        ]

        def read() -> None:
            for segment in undated:
                for _, header in segment.headers():
                    segment.first_timestamp = header.max_timestamp
                    break

        if undated:
            try:
                await self._disk.offload(read)
            except OSError as error:
                partition_log.failed(error)

    async def _supervise(self, partition_log: Log) -> None:
        try:
            await self._clean(partition_log)
        except CannotClean as error:
            log.error("%s: uncleanable: %s", partition_log.topic_partition, error)
            self.uncleanable[partition_log] = error
        except NoRoom as error:
            log.warning("%s: cleaning postponed: %s", partition_log.topic_partition, error)
        except StorageError as error:
            # The directory went offline, or the log was deleted: both were logged already.
            log.info("%s: cleaning skipped: %s", partition_log.topic_partition, error)
        except OSError as error:
            # An OSError without errno comes from the process, which may have run out of memory.
            if error.errno is not None and error.errno not in _NO_ROOM:
                partition_log.failed(error)
            log.warning("%s: cleaning postponed: %s", partition_log.topic_partition, error)
        else:
            # Not after a failure: then the next cleaning waits for the backoff.
            self._wake.set()
        finally:
            del self._running[partition_log]

    async def _clean(self, partition_log: Log) -> None:
        started = asyncio.get_running_loop().time()
        # If a crash lost the marker of a transaction, the transaction would be open again.  Its
        # records must not have displaced older ones, so only what is decided before the flush
        # counts.
        decided = partition_log.last_stable_offset
        await partition_log.flush()
        dirty = self.dirtiness(partition_log, decided)
        config = self._config()
        threads = max(1, config.log_cleaner_threads)
        sources = {
            segment.base_offset: segment
            for segment in partition_log.segments
            if segment.base_offset < dirty.end_offset
        }
        job = Job(
            directory=partition_log.directory,
            bases=tuple(sources),
            first_dirty=dirty.first_offset,
            end_offset=dirty.end_offset,
            config=partition_log.config,
            now_ms=self._clock.now_ms(),
            aborted=tuple(partition_log.aborted(0, dirty.end_offset)),
            last_of={
                producer_id: (entry.batches[-1].last_offset if entry.batches else None, entry.epoch)
                for producer_id, entry in partition_log.producers.producers.items()
            },
            map_bytes=int(
                config.log_cleaner_dedupe_buffer_size
                * config.log_cleaner_io_buffer_load_factor
                / threads
            ),
            buffer_bytes=max(1, config.log_cleaner_io_buffer_size // threads),
        )
        rate_limiter = RateLimiter(config.log_cleaner_io_max_bytes_per_second / threads)
        try:
            done = await self._disk.compute(compact, self._disk, rate_limiter, job)
            # Cleaning makes gaps.  Recovery takes a gap above the recovery point for damage by a
            # crash.
            await self._save(partition_log, checkpoint.RECOVERY_POINTS)
            for group in done.groups:
                if group.has_changed:
                    await self._put_in_place(
                        partition_log, [sources[base] for base in group.sources]
                    )
            # A crash must not bring back an emptied segment: below the cleaned offset no cleaning
            # looks for old records again.
            await self._disk.offload(lambda: self._disk.sync_directory(partition_log.directory))
        except (OSError, StorageError):
            if partition_log.failure is None:
                await self._disk.offload(
                    lambda: remove_cleaned(self._disk, partition_log.directory, sources)
                )
            raise
        partition_log.cleaned_to = done.cleaned_to
        self._count(partition_log, dirty, done, asyncio.get_running_loop().time() - started)
        await self._save(partition_log, checkpoint.CLEANED)

    async def _put_in_place(self, partition_log: Log, sources: list[LogSegment]) -> None:
        """Swap the new segment in; a cancelled caller waits, or the next start would have to finish
        it."""

        async def swap() -> None:
            base = sources[0].base_offset
            await self._disk.offload(lambda: stage_swap(self._disk, partition_log.directory, base))
            partition_log.replace_segments(sources)

        swapping = asyncio.ensure_future(swap())
        try:
            await asyncio.shield(swapping)
        except asyncio.CancelledError:
            # The log may have been deleted meanwhile; then errors are expected.
            with contextlib.suppress(OSError, StorageError):
                await swapping
            raise

    def _count(self, partition_log: Log, dirty: Dirty, done: Compacted, elapsed_s: float) -> None:
        self.cleanings += 1
        self.read_bytes += done.read_bytes
        self.written_bytes += done.written_bytes
        self.longest_s = max(self.longest_s, elapsed_s)
        log.info(
            "%s: cleaned from offset %d to %d: %d keys, %d bytes read, %d written, %.1f s",
            partition_log.topic_partition,
            dirty.first_offset,
            done.cleaned_to,
            done.keys,
            done.read_bytes,
            done.written_bytes,
            elapsed_s,
        )
