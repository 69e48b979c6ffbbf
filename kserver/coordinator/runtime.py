"""Runs shards: one for each partition of a coordinator topic that this broker leads.

    partition                   its shard
    becomes led here            its log is replayed; meanwhile COORDINATOR_LOAD_IN_PROGRESS
    stays led here, in a new    is unchanged
    leader epoch
    may be led elsewhere        NOT_COORDINATOR until the controller has sent roles: this broker's
                                session expired, and another leader may have been elected
    is no longer led here       is dropped; waiting requests get NOT_COORDINATOR
    a write failed              is dropped and loaded again, as its state may differ from the log
    too few in-sync replicas    is unchanged if only events would change it (an offset commit, all
                                of transactions): COORDINATOR_NOT_AVAILABLE, which is retried

    ask(key, request)   shard.handle > append > shard.replay > responses, once committed
                        shard.handle > what a client would hold to, a final error or an id, once it
                        is confirmed that this broker still leads the partition

Everything except the waits happens in one step of the event loop, so no locks are needed.  A
response waits for everything that was written before its decision, so no crash takes back what a
client was shown, with `flush.before.ack` too.

(Kafka: CoordinatorRuntime.  It takes snapshots of a shard's state, to restore after a failed
write. This is rare enough to load the shard again.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from kserver.coordinator.shard import Now, Outcome, Shard
from kserver.coordinator.topics import partition_of
from kserver.errors import ErrorCode, KafkaError, ProtocolError, StorageError
from kserver.log.segments import Cold
from kserver.log.validator import Origin
from kserver.metadata import ClusterMetadata, MetadataCache
from kserver.model import ALL_IN_SYNC, NO_PRODUCER_ID, Offset, ProducerId
from kserver.replica.committed import Uncommitted, when_committed
from kserver.replica.manager import ReplicaManager
from kserver.replica.partition import Partition
from kserver.replica.purgatory import Purgatory
from kserver.wire.batch import (
    ControlType,
    RecordBatch,
    batches,
    encode_batch,
    read_control_record,
)
from kserver.world.clock import Clock

log = logging.getLogger(__name__)

LOAD_BYTES = 1 << 20
"""Bytes that are replayed in one step of the event loop."""

LOADED_FOR_S = 1.0
"""Minimum time between two loads of a shard, in seconds.  It prevents a loop if the shard cannot
write the events that follow a load, as on a full disk."""

REFUSED = frozenset(
    {
        ErrorCode.message_too_large,
        ErrorCode.record_list_too_large,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.invalid_record,
        ErrorCode.invalid_txn_state,
    }
)
"""Errors of a write that was rejected because of its content: the shard is unchanged."""

FINAL = frozenset(
    {
        ErrorCode.fenced_instance_id,
        ErrorCode.group_id_not_found,
        ErrorCode.group_max_size_reached,
        ErrorCode.inconsistent_group_protocol,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.invalid_producer_id_mapping,
        ErrorCode.invalid_txn_state,
        ErrorCode.producer_fenced,
        ErrorCode.unreleased_instance_id,
    }
)
"""Errors after which a client gives up.  A broker that was paused or cut off may respond with them
from an outdated state, while the present coordinator has the client's transaction or group."""

S = TypeVar("S", bound=Shard)


class Loaded(Generic[S]):
    """Shard of one partition that this broker coordinates."""

    __slots__ = (
        "is_ready",
        "led_since",
        "may_load_again_s",
        "partition",
        "shard",
        "timer",
        "waiting",
    )

    def __init__(self, partition: Partition, shard: S) -> None:
        self.partition = partition
        self.led_since = partition.led_since
        self.shard = shard
        self.is_ready = False
        self.may_load_again_s = 0.0
        """Earliest time of the next load, by the loop's clock."""
        self.waiting: dict[asyncio.Future[Any], None] = {}
        """Tickets without a response."""
        self.timer: asyncio.TimerHandle | None = None


def _binds(response: Any) -> bool:
    """Return whether the client holds to the response, whatever later coordinators know."""
    if isinstance(response, KafkaError):
        return response.code in FINAL
    return getattr(response, "error", None) in FINAL or getattr(response, "binds", False)


class CoordinatorRuntime(Generic[S]):
    def __init__(
        self,
        topic: str,
        make: Callable[[int], S],
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        metadata: MetadataCache,
        replicas: ReplicaManager,
        purgatory: Purgatory,
        timeout_ms: Callable[[], int],
        knows_roles: Callable[[], bool],
        is_current: Callable[[Partition], asyncio.Future[bool]],
        perform: Callable[[Any], None] | None = None,
    ) -> None:
        self.topic = topic
        self._make = make
        self._loop = loop
        self._clock = clock
        self._metadata = metadata
        self._replicas = replicas
        self._purgatory = purgatory
        self._timeout_ms = timeout_ms
        """Timeout of a write until it is committed, in ms."""
        self._knows_roles = knows_roles
        """Whether the controller has sent roles since this broker registered."""
        self._is_current_leader = is_current
        """Whether this broker leads the partition, according to ZooKeeper."""
        self._perform = perform
        self._by_partition: dict[int, Loaded[S]] = {}
        self._unloaded: dict[int, Loaded[S]] = {}
        """Shards that are being loaded, or are waiting to be."""
        self._has_unloaded = asyncio.Event()
        self._is_closed = False

    # Requests

    def ask(self, key: str, request: Any) -> asyncio.Future[Any]:
        """Return the response of the coordinator of `key`; the future may fail with a KafkaError.

        Raises KafkaError with NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS,
        COORDINATOR_NOT_AVAILABLE, INVALID_REQUEST (the key is too long), or an immediate error of
        the shard that is not final.
        """
        return self.ask_partition(self.partition_of(key), request)

    def ask_partition(self, index: int, request: Any) -> asyncio.Future[Any]:
        loaded = self._ready(index)
        ticket: asyncio.Future[Any] = self._loop.create_future()
        try:
            outcome = loaded.shard.handle(request, ticket, self._now())
        except KafkaError as error:
            if error.code not in FINAL:
                raise
            outcome = Outcome(responses=[(ticket, error)])
        loaded.waiting[ticket] = None
        self._carry_out(loaded, outcome)
        return ticket

    def partition_of(self, key: str) -> int:
        topic = self._metadata.current.topics.get(self.topic)
        if topic is None:
            raise KafkaError(ErrorCode.coordinator_not_available)
        return partition_of(key, len(topic.partitions))

    def shard(self, key: str) -> S:
        """Return the shard of `key`, to be read only.  Raises KafkaError like `ask`."""
        return self._ready(self.partition_of(key)).shard

    def shards(self) -> Iterator[S]:
        """Yield the shard of every partition led here.  Raises COORDINATOR_LOAD_IN_PROGRESS."""
        for index in sorted(self._by_partition):
            yield self._ready(index).shard

    def _ready(self, index: int) -> Loaded[S]:
        loaded = self._by_partition.get(index)
        if self._is_closed or loaded is None or not self._knows_roles():
            raise KafkaError(ErrorCode.not_coordinator)
        if loaded.partition.log.failure is not None:
            raise KafkaError(ErrorCode.not_coordinator)
        if not loaded.is_ready:
            raise KafkaError(ErrorCode.coordinator_load_in_progress)
        return loaded

    def _now(self) -> Now:
        return Now(int(self._loop.time() * 1000), self._clock.now_ms())

    def transaction_ended(self, index: int, producer_id: ProducerId, committed: bool) -> None:
        """Handle a marker that was appended: the producer's pending events count, or are dropped.

        A shard that is being loaded reads the marker from the log itself.
        """
        loaded = self._by_partition.get(index)
        if loaded is not None and loaded.is_ready:
            loaded.shard.replay_end(producer_id, committed)
            self._set_timer(loaded)

    # Outcomes

    def _carry_out(self, loaded: Loaded[S], outcome: Outcome) -> None:
        partition = loaded.partition
        if outcome.events:
            try:
                self._append(partition, loaded.shard, outcome)
            except (KafkaError, StorageError) as error:
                self._write_failed(loaded, outcome, error)
                return
            replay = loaded.shard.replay
            producer = outcome.transactional
            for event in outcome.events:
                replay(event, producer.producer_id if producer else NO_PRODUCER_ID)
        if outcome.responses or outcome.effects:
            if partition.log.high_watermark >= partition.log.log_end_offset:
                self._complete(loaded, outcome)
            else:
                self._complete_once_committed(loaded, outcome, partition.log.log_end_offset)
        self._set_timer(loaded)

    def _append(self, partition: Partition, shard: S, outcome: Outcome) -> None:
        now_ms = self._clock.now_ms()
        records = [(now_ms, *shard.encode(event), ()) for event in outcome.events]
        producer = outcome.transactional
        if producer is None:
            batch = encode_batch(records)
        else:
            batch = encode_batch(
                records,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                base_sequence=0,
                transactional=True,
            )
        partition.append_as_leader(
            memoryview(bytearray(batch)), ALL_IN_SYNC, now_ms, origin=Origin.coordinator
        )
        if partition.log.config.flush_before_ack:
            self._replicas.flush_soon(partition)
        self._purgatory.check(partition.topic_partition)

    def _write_failed(
        self, loaded: Loaded[S], outcome: Outcome, error: KafkaError | StorageError
    ) -> None:
        refusal = _refusal(outcome, error)
        if refusal is not None:
            if not outcome.responses:  # no client waits for it
                log.error("%s: write refused: %s", loaded.partition.topic_partition, error)
            self._respond(loaded, [(ticket, refusal) for ticket, _ in outcome.responses])
            self._set_timer(loaded)
            return
        log.error("%s: write failed, reloading: %s", loaded.partition.topic_partition, error)
        index = loaded.partition.topic_partition.partition
        self._drop(index, ErrorCode.not_coordinator)
        again = self._by_partition[index] = Loaded(loaded.partition, self._make(index))
        self._loop.call_at(loaded.may_load_again_s, self._queue, again)

    def _complete(self, loaded: Loaded[S], outcome: Outcome) -> None:
        self._respond(loaded, outcome.responses)
        for effect in outcome.effects:
            # In another step: an effect may append, while the caller is processing a commit.
            self._loop.call_soon(self._carry_out_effect, loaded, effect)

    def _carry_out_effect(self, loaded: Loaded[S], effect: Any) -> None:
        if self._is_current(loaded):
            assert self._perform is not None
            self._perform(effect)

    def _complete_once_committed(self, loaded: Loaded[S], outcome: Outcome, end: Offset) -> None:
        def on_committed(codes: Sequence[ErrorCode]) -> None:
            if not self._is_current(loaded):
                return  # dropped, together with its tickets
            if codes[0] is ErrorCode.none:
                self._complete(loaded, outcome)
            elif codes[0] is not ErrorCode.request_timed_out:
                self._drop(loaded.partition.topic_partition.partition, ErrorCode.not_coordinator)
            else:
                error = KafkaError(ErrorCode.coordinator_not_available, "the write took too long")
                self._respond(loaded, [(ticket, error) for ticket, _ in outcome.responses])
                if outcome.effects:
                    self._complete_once_committed(loaded, Outcome(effects=outcome.effects), end)

        appended = Uncommitted(loaded.partition, loaded.led_since, end)
        deadline_s = self._loop.time() + self._timeout_ms() / 1000
        when_committed([appended], self._purgatory, deadline_s, on_committed)

    def _respond(self, loaded: Loaded[S], responses: Any) -> None:
        for ticket, response in responses:
            if _binds(response):
                self._send_if_confirmed(loaded, ticket, response)
            else:
                _settle(loaded, ticket, response)

    def _send_if_confirmed(
        self, loaded: Loaded[S], ticket: asyncio.Future[Any], response: Any
    ) -> None:
        """Send a response that is right only if this broker still leads the partition."""

        def send(confirmation: asyncio.Future[bool]) -> None:
            moved = KafkaError(ErrorCode.not_coordinator)
            _settle(loaded, ticket, response if confirmation.result() else moved)

        self._is_current_leader(loaded.partition).add_done_callback(send)

    # Deadlines

    def _set_timer(self, loaded: Loaded[S]) -> None:
        """Set the timer to the next deadline.  If that was postponed, the timer stays, and is set
        again later."""
        at_ms = loaded.shard.next_deadline_ms
        timer = loaded.timer
        if at_ms is None:
            return
        at_s = at_ms / 1000
        if timer is not None:
            if timer.when() <= at_s:
                return
            timer.cancel()
        loaded.timer = self._loop.call_at(at_s, self._expire, loaded, at_ms)

    def _expire(self, loaded: Loaded[S], at_ms: int) -> None:
        loaded.timer = None
        if self._is_current(loaded):
            # Rounding must not leave out a deadline that this timer stands for.
            now = self._now()
            now = now._replace(ms=max(now.ms, at_ms))
            self._carry_out(loaded, loaded.shard.expire(now))

    def _is_current(self, loaded: Loaded[S]) -> bool:
        return self._by_partition.get(loaded.partition.topic_partition.partition) is loaded

    # Leadership

    def apply(self, image: ClusterMetadata) -> None:
        """Coordinate the partitions that this broker leads now; called after the replicas have
        changed."""
        partitions = self._leader_partitions(image)
        for index in list(self._by_partition):
            loaded, partition = self._by_partition[index], partitions.get(index)
            if loaded.partition is not partition or loaded.led_since != partition.led_since:
                self._drop(index, ErrorCode.not_coordinator)
        for index, partition in partitions.items():
            if index not in self._by_partition:
                self._load_soon(index, partition)
        now = self._now()
        for loaded in list(self._by_partition.values()):
            if loaded.is_ready:
                self._carry_out(loaded, loaded.shard.image_changed(image, now))

    def _leader_partitions(self, image: ClusterMetadata) -> Mapping[int, Partition]:
        topic = image.topics.get(self.topic)
        if topic is None or self._is_closed:
            return {}
        partitions = (
            self._replicas.partitions.get((self.topic, p.partition)) for p in topic.partitions
        )
        return {
            partition.topic_partition.partition: partition
            for partition in partitions
            if partition is not None and partition.is_leader
        }

    def _drop(self, index: int, code: ErrorCode) -> None:
        loaded = self._by_partition.pop(index)
        self._unloaded.pop(index, None)
        if loaded.timer is not None:
            loaded.timer.cancel()
        error = KafkaError(code)
        self._respond(loaded, [(ticket, error) for ticket in list(loaded.waiting)])

    def close(self) -> None:
        """Fail waiting and new requests with NOT_COORDINATOR, so that clients find another
        coordinator."""
        self._is_closed = True
        for index in list(self._by_partition):
            self._drop(index, ErrorCode.not_coordinator)

    # Loading

    def _load_soon(self, index: int, partition: Partition) -> None:
        loaded = Loaded(partition, self._make(index))
        self._by_partition[index] = loaded
        if partition.log.log_start_offset == partition.log.log_end_offset:
            # at once: the client that created the topic is about to send a request
            self._finish_load(loaded)
        else:
            self._queue(loaded)

    def _queue(self, loaded: Loaded[S]) -> None:
        if self._is_current(loaded):
            self._unloaded[loaded.partition.topic_partition.partition] = loaded
            self._has_unloaded.set()

    async def run(self) -> None:
        """Load waiting shards, one after the other, until cancelled."""
        while True:
            await self._has_unloaded.wait()
            self._has_unloaded.clear()
            while self._unloaded:
                loaded = next(iter(self._unloaded.values()))
                await self._load(loaded)

    async def _load(self, loaded: Loaded[S]) -> None:
        partition = loaded.partition
        name = partition.topic_partition
        began_s = self._loop.time()
        offset = partition.log.log_start_offset
        try:
            while self._is_current(loaded) and offset < partition.log.log_end_offset:
                end = partition.log.log_end_offset
                fetched = partition.log.read(offset, LOAD_BYTES, up_to=end)
                if isinstance(fetched, Cold):
                    await partition.log.read_cold(offset, LOAD_BYTES, up_to=end)
                    continue
                if fetched.data is None:
                    break  # compaction removed all records up to the end
                for batch in batches(fetched.data.read()):
                    if batch.next_offset > offset:
                        self._replay(loaded.shard, batch)
                        offset = batch.next_offset
                await asyncio.sleep(0)
        except (KafkaError, StorageError, OSError, ProtocolError) as error:
            # The shard stays unloaded, and clients retry: to lose part of the state would be
            # worse.
            log.error("%s: loading failed: %s", name, error)
            if self._unloaded.get(name.partition) is loaded:
                del self._unloaded[name.partition]
            return
        if self._is_current(loaded):
            del self._unloaded[name.partition]
            self._finish_load(loaded)
            log.info("%s: loaded in %.3f s", name, self._loop.time() - began_s)

    def _finish_load(self, loaded: Loaded[S]) -> None:
        loaded.is_ready = True
        loaded.may_load_again_s = self._loop.time() + LOADED_FOR_S
        now = self._now()
        self._carry_out(loaded, loaded.shard.image_changed(self._metadata.current, now))
        if self._is_current(loaded):
            self._carry_out(loaded, loaded.shard.loaded(now))

    def _replay(self, shard: S, batch: RecordBatch) -> None:
        if not batch.count:
            return  # compaction keeps a producer's last batch without records
        records = batch.records()
        if batch.is_control:
            marker = read_control_record(records[0])
            if marker.type is not ControlType.unknown:
                shard.replay_end(batch.producer_id, marker.type is ControlType.commit)
            return
        producer_id = batch.producer_id if batch.is_transactional else NO_PRODUCER_ID
        for record in records:
            event = shard.decode(record.key or b"", record.value)
            if event is None:
                log.warning(
                    "%s: ignoring a record of unknown type at offset %d", self.topic, record.offset
                )
            else:
                shard.replay(event, producer_id)


def _settle(loaded: Loaded[Any], ticket: asyncio.Future[Any], response: Any) -> None:
    loaded.waiting.pop(ticket, None)
    if ticket.done():
        return  # its client has disconnected
    if isinstance(response, KafkaError):
        ticket.set_exception(response)
    else:
        ticket.set_result(response)


def _refusal(outcome: Outcome, error: KafkaError | StorageError) -> KafkaError | None:
    """Return the error for clients if the failed write leaves the shard unchanged; else None."""
    if not isinstance(error, KafkaError):
        return None
    if error.code in REFUSED:
        return error
    if outcome.only_events and error.code is ErrorCode.not_enough_replicas:
        return KafkaError(ErrorCode.coordinator_not_available, str(error))
    return None
