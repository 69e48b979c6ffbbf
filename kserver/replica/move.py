"""Moves replicas between log directories while they are written to and read.

    begin        create the future log: `topic-0.<32 hex digits>-future` in the other directory
    copy         append batch after batch to it as a follower would, at the configured rate
    swap         once caught up, flush it, write the checkpoints, and copy the rest; then, in one
                 step on the event loop, sync it as far as the old log is, delete the old log's
                 directory, rename the future one, and continue with it
    cancel       another directory or the current one was requested, the topic was deleted, or a
                 disk failed: drop the future log

    crash during          leaves                       the next start
    copy                  the old log, a future one    drops the future one
    swap                  the future one, which has    renames it
                          all records

If the old log restarts at a later offset, as after a deletion of all that was copied, so does the
copy.  The replica may lead or follow, and its role may change.  If a follower's log is truncated,
the copy is truncated where the two diverge, as a follower is (truncation.py), and neither copied
nor swapped meanwhile.  Several replicas are copied at once (num.replica.alter.log.dirs.threads).

Kafka: ReplicaAlterLogDirsThread, Partition.maybeReplaceCurrentWithFutureReplica.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import posixpath
from collections.abc import Callable

from kserver.config.broker import BrokerConfig
from kserver.errors import ErrorCode, KafkaError, NoRoom, StorageError
from kserver.log.log import Cold, Log
from kserver.log.manager import LogManager
from kserver.model import Offset, TopicPartition
from kserver.replica.manager import ReplicaManager
from kserver.replica.partition import Partition
from kserver.replica.truncation import divergence, truncation_offset
from kserver.world import World

log = logging.getLogger(__name__)

_CHUNK_BYTES = 1 << 20
_LAST_BYTES = 8 << 20
"""Maximum bytes left to copy during the swap, which blocks the event loop for some 20 ms."""
_RETRY_S = 1.0
_CUT_S = 0.01
"""Pause before checking again whether a truncation is done."""
_NEW_RATE_S = 1.0
"""Time until a changed rate takes effect, as in Kafka."""
_MIN_WAIT_S = 0.001
_MAX_NAME_BYTES = 255


class Moves:
    """Moves of a broker's replicas: `begin` starts one, `run` copies and swaps."""

    def __init__(
        self,
        world: World,
        logs: LogManager,
        replicas: ReplicaManager,
        config: Callable[[], BrokerConfig],
    ) -> None:
        self._world = world
        self._logs = logs
        self._replicas = replicas
        self._config = config
        self._queue: dict[TopicPartition, Log] = {}
        """Future logs that wait to be copied."""
        self._agreed: dict[TopicPartition, int] = {}
        """Truncation count of the log when its copy was last known to agree with it."""
        self._has_work = asyncio.Event()
        self._debt_bytes = 0.0
        """Bytes copied ahead of the rate, at `_looked_s`."""
        self._looked_s = 0.0

    def begin(self, topic: str, number: int, path: str) -> None:
        """Start or cancel a move; raises KafkaError as Kafka's
        ReplicaManager.alterReplicaLogDirs."""
        directory_path = posixpath.normpath(path)
        directory = next((d for d in self._logs.directories if d.path == directory_path), None)
        if directory is None:
            raise KafkaError(
                ErrorCode.log_dir_not_found, f"Log dir {path} is not found in the config."
            )
        if directory.failure is not None:
            raise KafkaError(ErrorCode.kafka_storage_error, f"Log directory {path} is offline")
        partition = self._replicas.get(topic, number)
        current = partition.log
        key = partition.topic_partition
        if current.failure is not None:
            raise KafkaError(ErrorCode.kafka_storage_error, f"Partition {key} is offline")
        future = self._logs.futures.get(key)
        try:
            if self._logs.directory_of(current) is directory:
                self._logs.drop_future(key)
            elif future is None or self._logs.directory_of(future) is not directory:
                if len(f"{key}.{0:032x}-future") > _MAX_NAME_BYTES:
                    raise KafkaError(
                        ErrorCode.invalid_topic_exception, "The topic name is too long."
                    )
                if any(d.failure is not None for d in self._logs.directories):
                    raise KafkaError(
                        ErrorCode.kafka_storage_error, "A log directory of this broker is offline"
                    )
                future = self._logs.create_future(current, directory)
                # Records that a later cleaning removes may have been copied before it.
                future.cleaned_to = current.cleaned_to
                self._agreed[key] = current.truncations
                self._queue[key] = future
                self._has_work.set()
                log.info("%s: moving from %s to %s", key, current.directory, path)
        except StorageError as error:
            raise KafkaError(ErrorCode.kafka_storage_error, str(error)) from error

    async def run(self) -> None:
        running: set[asyncio.Task[None]] = set()
        async with asyncio.TaskGroup() as tasks:
            while True:
                while self._queue and len(running) < self._limit():
                    key = next(iter(self._queue))
                    future = self._queue.pop(key)
                    task = tasks.create_task(self._supervise(key, future))
                    running.add(task)
                    task.add_done_callback(running.discard)
                    task.add_done_callback(lambda _: self._has_work.set())
                self._has_work.clear()
                await self._has_work.wait()

    def _limit(self) -> int:
        return self._config().num_replica_alter_log_dirs_threads or len(self._logs.directories)

    async def _supervise(self, key: TopicPartition, future: Log) -> None:
        try:
            while self._keep_or_drop(key, future):
                partition = self._replicas.partitions[key]
                try:
                    await self._copy(partition, future)
                    if self._keep_or_drop(key, future) and await self._swap(partition, future):
                        log.info("%s: moved to %s", key, future.directory)
                        return
                    if partition.log.is_being_cut:
                        await asyncio.sleep(_CUT_S)
                except NoRoom as error:
                    self._logs.no_room(future, error)
                    await asyncio.sleep(_RETRY_S)
        except (KafkaError, StorageError) as error:
            if self._logs.futures.get(key) is future:
                log.error("%s: move failed: %s", key, error)
                self._drop(key)
            elif future is not self._logs.get(key):
                log.info("%s: move cancelled: %s", key, error)
        finally:
            self._agreed.pop(key, None)

    def _drop(self, key: TopicPartition) -> None:
        # A failed disk is reported as the directory's failure.
        with contextlib.suppress(StorageError):
            self._logs.drop_future(key)

    def _keep_or_drop(self, key: TopicPartition, future: Log) -> bool:
        """Return whether the move goes on; drop the future log if the log that moves is offline."""
        if self._logs.futures.get(key) is not future:
            return False
        partition = self._replicas.partitions.get(key)
        if partition is None or partition.log.failure is not None:
            self._drop(key)
            return False
        return True

    async def _copy(self, partition: Partition, future: Log) -> None:
        """Copy until only the latest appends are missing, or the move is cancelled."""
        key = partition.topic_partition
        while self._keep_or_drop(key, future):
            source = partition.log
            if source.is_being_cut:
                await asyncio.sleep(_CUT_S)
                continue
            if self._agreed.get(key) != source.truncations:
                truncations = source.truncations
                await self._agree(source, future)
                self._agreed[key] = truncations
                continue
            start, end = source.log_start_offset, source.log_end_offset
            if future.log_end_offset > end:
                await self._begin_at(source.segments[0].base_offset, source, future)
                continue
            offset = max(future.log_end_offset, start)
            result = source.read(offset, self._chunk_bytes(), up_to=end)
            if isinstance(result, Cold):
                await source.read_cold(offset, self._chunk_bytes(), up_to=end)
                continue
            if result.data is None:
                if future.log_end_offset < start:
                    await self._begin_at(end, source, future)
                elif future.log_end_offset < end:
                    future.roll(self._now_ms(), end)  # compaction left nothing at the end
                return
            truncations = source.truncations
            try:
                chunk = await self._world.disk.offload(result.data.read)
            except OSError as error:
                raise source.failed(error) from error
            if not self._keep_or_drop(key, future):
                return
            if source.truncations != truncations:
                continue
            base_offset = int.from_bytes(chunk[:8])
            if offset == start and base_offset > future.log_end_offset:
                # Records up to there were deleted, now or before: within a log only compaction
                # leaves gaps.
                await self._begin_at(base_offset, source, future)
            self._append(chunk, future)
            if future.log_end_offset >= end:
                return
            self._debt_bytes = self._current_debt_bytes() + len(chunk)
            while (debt_bytes := self._current_debt_bytes()) and self._keep_or_drop(key, future):
                wait_s = debt_bytes / self._bytes_per_second()
                await asyncio.sleep(min(max(wait_s, _MIN_WAIT_S), _NEW_RATE_S))

    async def _agree(self, source: Log, future: Log) -> None:
        """Truncate the copy where it diverges, after the source was truncated."""
        while future.log_end_offset > future.log_start_offset:
            epoch = future.epochs.latest_epoch
            try:
                epoch_end = source.end_offset_for_epoch(epoch)
                diverging = divergence(epoch_end, epoch, future.log_end_offset)
            except KafkaError:
                await self._begin_at(source.segments[0].base_offset, source, future)
                return
            if diverging is None:
                return
            end = truncation_offset(future.epochs, future.log_end_offset, diverging)
            await future.truncate_to(end)

    async def _begin_at(self, offset: Offset, source: Log, future: Log) -> None:
        await future.truncate_fully_and_start_at(offset)
        future.cleaned_to = source.cleaned_to

    def _append(self, chunk: bytes, future: Log) -> None:
        appended = future.append_as_follower(memoryview(bytearray(chunk)), self._now_ms())
        if appended is None:
            raise KafkaError(ErrorCode.corrupt_message, "no whole batch can be read")

    def _chunk_bytes(self) -> int:
        return min(_CHUNK_BYTES, self._bytes_per_second())

    def _bytes_per_second(self) -> int:
        return max(1, self._config().replica_alter_log_dirs_io_max_bytes_per_second)

    def _current_debt_bytes(self) -> float:
        """Return the bytes ahead of the current rate, for which all copying waits; a higher rate
        ends the wait."""
        now_s = asyncio.get_running_loop().time()
        paid_bytes = (now_s - self._looked_s) * self._bytes_per_second()
        self._looked_s = now_s
        self._debt_bytes = max(0.0, self._debt_bytes - paid_bytes)
        return self._debt_bytes

    def _now_ms(self) -> int:
        return self._world.clock.now_ms()

    async def _swap(self, partition: Partition, future: Log) -> bool:
        """Swap the logs; False if that must be retried, or the move was cancelled."""
        source = partition.log
        await future.flush()
        await self._logs.write_checkpoints(future)
        await self._logs.stop_cleaning(source)
        # No await from here on, so that the source does not change.
        key = partition.topic_partition
        if not self._keep_or_drop(key, future) or partition.log is not source:
            return False
        if self._replicas.partitions[key] is not partition:
            return False  # dropped, and hosted again
        if source.is_being_cut or self._agreed.get(key) != source.truncations:
            return False
        if not self._copy_rest(source, future):
            return False
        future.update_high_watermark(source.high_watermark)
        future.increment_log_start_offset(source.log_start_offset)
        for epoch, start_offset in source.epochs.entries:
            future.assign_epoch(epoch, start_offset)
        future.producers = source.producers
        future.reconfigure(source.config)
        partition.log = self._logs.take_future(source)
        if partition.log.config.flush_before_ack:
            self._replicas.flush_soon(partition)
        return True

    def _copy_rest(self, source: Log, future: Log) -> bool:
        """Copy the last records, blocking on the disk; False if too many are left."""
        active = future.segments[-1]
        copied = 0
        while future.log_end_offset < source.log_end_offset:
            end = source.log_end_offset
            if future.log_end_offset < source.log_start_offset:
                return False
            result = source.read(future.log_end_offset, _CHUNK_BYTES, up_to=end)
            if isinstance(result, Cold) or copied + result.size > _LAST_BYTES:
                return False
            if result.data is None:
                future.roll(self._now_ms(), end)
                break
            try:
                chunk = result.data.read()
            except OSError as error:
                raise source.failed(error) from error
            self._append(chunk, future)
            copied += result.size
        if future.recovery_point < source.recovery_point:
            # Records that were acknowledged because they were flushed must survive the move.
            if future.segments[-1] is not active:
                return False
            try:
                active.file.sync()
            except OSError as error:
                raise future.failed(error) from error
            future.recovery_point = future.log_end_offset
        return future.log_end_offset == source.log_end_offset
