"""Keeps compacted logs clean: picks the dirtiest, lets it be compacted, puts the result in place.

    picked      the log with the largest dirty share of those that are due (log/cleanable)
    compacted   log/compaction in a process of its own, at the pace that is allowed
    in place    group by group: the new segment's files are renamed from .cleaned to .swap, and
                durably so; then, at once, the old ones to .deleted and the new to their own names
    saved       cleaner-offset-checkpoint says up to where the log is clean

    crash while      leaves                the next start
    compacted        .cleaned files        removes them
    in place         .swap files           puts them in place of the segments that they hold
    before saved     a clean log           cleans it once more

A log of which a batch makes no sense is uncleanable until the broker starts again; a full disk puts
its cleaning off.  While a log is cleaned none of its segments is deleted; before it is truncated,
`stop` is awaited.  Kafka: LogCleaner, LogCleanerManager.
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
from kserver.world.pace import Pace

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
    """`save` writes a checkpoint of the directory that the log is in."""

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

    def is_cleaning(self, one: Log) -> bool:
        return one in self._running

    async def stop(self, one: Log) -> None:
        """No cleaning of the log runs any more; what it had put in place stays."""
        self.forget(one)
        if (task := self._running.get(one)) is not None:
            await asyncio.wait([task])

    def forget(self, one: Log) -> None:
        """It was deleted: what a cleaning made of it is of no use."""
        self.uncleanable.pop(one, None)
        if (task := self._running.get(one)) is not None:
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

    def dirtiness(self, one: Log, decided: Offset) -> Dirty:
        """All transactions below `decided` are, by what a crash leaves there."""
        return cleanable.dirty(
            one.segments,
            one.config,
            cleaned_to=one.cleaned_to or 0,
            log_start_offset=one.log_start_offset,
            limit=min(decided, one.recovery_point),
            now_ms=self._clock.now_ms(),
        )

    async def _dirtiest(self) -> Log | None:
        due = []
        for one in list(self._logs.values()):
            if "compact" not in one.config.cleanup_policy or one.failure is not None:
                continue
            if one in self._running or one in self.uncleanable:
                continue
            if one.config.max_compaction_lag_ms < _NEVER_MS:
                await self._date(one)
            dirty = self.dirtiness(one, one.last_stable_offset)
            if one.failure is None and dirty.is_due(one.config):
                due.append((dirty.ratio, one))
        return max(due, key=itemgetter(0), default=(0, None))[1]

    async def _date(self, one: Log) -> None:
        """Sealed segments were loaded without their first timestamp."""
        cleaned_to = one.cleaned_to or 0
        undated = [
            segment
            for segment in one.segments[:-1]
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
                one.failed(error)

    async def _supervise(self, one: Log) -> None:
        try:
            await self._clean(one)
        except CannotClean as error:
            log.error("%s: uncleanable: %s", one.topic_partition, error)
            self.uncleanable[one] = error
        except NoRoom as error:
            log.warning("%s: cleaning postponed: %s", one.topic_partition, error)
        except StorageError as error:
            # Its directory went offline, or it was deleted, and that was told already.
            log.info("%s: cleaning skipped: %s", one.topic_partition, error)
        except OSError as error:
            # One without a number tells of the process, which may have had too little memory.
            if error.errno is not None and error.errno not in _NO_ROOM:
                one.failed(error)
            log.warning("%s: cleaning postponed: %s", one.topic_partition, error)
        else:
            # After a failure, the next one waits as long as after having found nothing to do.
            self._wake.set()
        finally:
            del self._running[one]

    async def _clean(self, one: Log) -> None:
        started = asyncio.get_running_loop().time()
        # A marker that a crash takes back would leave its transaction open, whose records must not
        # have cost older ones their place.
        decided = one.last_stable_offset
        await one.flush()
        dirty = self.dirtiness(one, decided)
        config = self._config()
        threads = max(1, config.log_cleaner_threads)
        sources = {
            segment.base_offset: segment
            for segment in one.segments
            if segment.base_offset < dirty.end_offset
        }
        job = Job(
            directory=one.directory,
            bases=tuple(sources),
            first_dirty=dirty.first_offset,
            end_offset=dirty.end_offset,
            config=one.config,
            now_ms=self._clock.now_ms(),
            aborted=tuple(one.aborted(0, dirty.end_offset)),
            last_of={
                producer_id: (known.batches[-1].last_offset if known.batches else None, known.epoch)
                for producer_id, known in one.producers.producers.items()
            },
            map_bytes=int(
                config.log_cleaner_dedupe_buffer_size
                * config.log_cleaner_io_buffer_load_factor
                / threads
            ),
            buffer_bytes=max(1, config.log_cleaner_io_buffer_size // threads),
        )
        pace = Pace(config.log_cleaner_io_max_bytes_per_second / threads)
        try:
            done = await self._disk.compute(compact, self._disk, pace, job)
            # Above it recovery takes a gap for what a crash has torn.
            await self._save(one, checkpoint.RECOVERY_POINTS)
            for group in done.groups:
                if group.has_changed:
                    await self._put_in_place(one, [sources[base] for base in group.sources])
            # A crash must not bring back a segment of which nothing stayed: what is said to be
            # clean is not looked through for old records again.
            await self._disk.offload(lambda: self._disk.sync_directory(one.directory))
        except (OSError, StorageError):
            if one.failure is None:
                await self._disk.offload(lambda: remove_cleaned(self._disk, one.directory, sources))
            raise
        one.cleaned_to = done.cleaned_to
        self._count(one, dirty, done, asyncio.get_running_loop().time() - started)
        await self._save(one, checkpoint.CLEANED)

    async def _put_in_place(self, one: Log, sources: list[LogSegment]) -> None:
        """Whoever cancels this waits: half of it would be finished by the next start only."""

        async def swap() -> None:
            base = sources[0].base_offset
            await self._disk.offload(lambda: stage_swap(self._disk, one.directory, base))
            one.replace_segments(sources)

        swapping = asyncio.ensure_future(swap())
        try:
            await asyncio.shield(swapping)
        except asyncio.CancelledError:
            # Of a log that was deleted meanwhile nothing is to be said.
            with contextlib.suppress(OSError, StorageError):
                await swapping
            raise

    def _count(self, one: Log, dirty: Dirty, done: Compacted, elapsed_s: float) -> None:
        self.cleanings += 1
        self.read_bytes += done.read_bytes
        self.written_bytes += done.written_bytes
        self.longest_s = max(self.longest_s, elapsed_s)
        log.info(
            "%s: cleaned from offset %d to %d: %d keys, %d bytes read, %d written, %.1f s",
            one.topic_partition,
            dirty.first_offset,
            done.cleaned_to,
            done.keys,
            done.read_bytes,
            done.written_bytes,
            elapsed_s,
        )
