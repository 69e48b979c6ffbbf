"""Consume-transform-produce in virtual time: transactional producers, partitions, readers.

    Worker       reads an input partition from its committed offset on, and writes each record to an
                 output partition, with the offset in the same transaction
    Output       a partition that transactions write to, as a broker has it
    Errands      carries a transaction's markers to its partitions, as `kserver.txn.markers` does
    Reader       reads committed records of every output partition

In transaction versions 0 and 1, the producer adds a partition, and the partition's leader verifies
it. In version 2, the leader adds it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kserver.coordinator.shard import Transactional
from kserver.errors import ErrorCode, KafkaError
from kserver.group import requests as groups
from kserver.model import CONSUMER_OFFSETS, TopicPartition
from kserver.txn.requests import (
    NEEDS_ID,
    AddPartitions,
    EndTransaction,
    InitProducerId,
    MarkersWritten,
    VerifyPartitions,
)
from kserver.txn.shard import WriteMarkers
from kserver.txn.transaction import ProducerIdAndEpoch
from tests.support.history import (
    NOT_COMMITTED,
    AtEnd,
    Committed,
    Ended,
    Event,
    Fetched,
    Looked,
    Polled,
    Result,
    Seated,
    Sent,
    Started,
)
from tests.support.virtual import (
    Line,
    Marker,
    Producers,
    Reply,
    VirtualCoordinator,
    VirtualNetwork,
    VirtualProcess,
    VirtualTime,
)

GROUP, INPUT, OUTPUT = "g", "in", "out"
OFFSETS = TopicPartition(CONSUMER_OFFSETS, 0)
TIMEOUT_MS, BACKOFF_MS = 2000, 100
AGAIN = {
    ErrorCode.network_exception,
    ErrorCode.not_coordinator,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.concurrent_transactions,
    ErrorCode.not_enough_replicas,
    ErrorCode.unstable_offset_commit,
}


class Setting(NamedTuple):
    time: VirtualTime
    network: VirtualNetwork
    transactions: VirtualCoordinator[Any]
    groups: VirtualCoordinator[Any]
    outputs: list[Output]
    history: list[Event]
    version: int
    """Transaction version."""
    timeout_ms: int
    new_id: Callable[[], int]


class Produce(NamedTuple):
    transactional_id: str
    producer: ProducerIdAndEpoch
    value: str


class Verification:
    """Verification that a producer's transaction has this partition; from version 2 on, adds it."""

    def __init__(self, setting: Setting, partition: TopicPartition) -> None:
        self._setting = setting
        self._partition = frozenset({partition})
        self._line = Line()

    def ask(self, transactional_id: str, producer: ProducerIdAndEpoch, told: Reply) -> None:
        """Call `told` with None, or with a KafkaError."""
        request: Any
        if self._setting.version >= 2:
            request = AddPartitions(transactional_id, producer, self._partition, 2)
        else:
            request = VerifyPartitions(transactional_id, producer, self._partition)

        def answered(answer: Any) -> None:
            if isinstance(answer, dict):
                (code,) = answer.values()
                answer = None if code is ErrorCode.none else KafkaError(code)
            if isinstance(answer, KafkaError) and answer.code in AGAIN:
                answer = KafkaError(ErrorCode.not_enough_replicas)
            told(answer)

        coordinator = self._setting.transactions
        self._setting.network.call(
            self._line, coordinator.ask, request, answered, timeout_ms=TIMEOUT_MS, may_repeat=False
        )


class Output:
    """One partition: its records and markers in order."""

    def __init__(self, setting: Setting, index: int) -> None:
        self.partition = TopicPartition(OUTPUT, index)
        self.producers = Producers()
        self._verification = Verification(setting, self.partition)
        self._records: list[tuple[str, int] | None] = []
        """Values and producer ids; None for a marker."""
        self._committed: dict[int, bool] = {}
        """By offset of each decided record: whether its transaction was committed."""
        self._offsets: dict[str, int] = {}
        self._ends: dict[int, int] = {}
        """Number of transactions of each producer that have ended here."""

    @property
    def last_stable_offset(self) -> int:
        return min(self.producers.open.values(), default=len(self._records))

    @property
    def high_watermark(self) -> int:
        return len(self._records)

    def produce(self, request: Produce, reply: Reply) -> None:
        """Append the record, and answer with its offset. A duplicate is not appended again."""
        producer_id = request.producer.producer_id
        if request.value in self._offsets:
            reply(self._offsets[request.value])
            return
        if self.producers.is_open(*request.producer):
            self._append(request, reply)
            return
        ends = self._ends.get(producer_id, 0)

        def told(refusal: Any) -> None:
            if refusal is None and ends != self._ends.get(producer_id, 0):
                refusal = KafkaError(ErrorCode.not_enough_replicas)  # its transaction has ended
            if refusal is not None:
                reply(refusal)
            elif request.value in self._offsets:
                reply(self._offsets[request.value])
            else:
                self._append(request, reply)

        self._verification.ask(request.transactional_id, request.producer, told)

    def _append(self, request: Produce, reply: Reply) -> None:
        offset = len(self._records)
        try:
            self.producers.write(Transactional(*request.producer), offset)
        except KafkaError as error:
            reply(error)
            return
        self._records.append((request.value, request.producer.producer_id))
        self._offsets[request.value] = offset
        reply(offset)

    def end_transaction(self, marker: Marker, reply: Reply) -> None:
        begin = self.producers.open.get(marker.producer_id, len(self._records))
        try:
            self.producers.end(marker)
        except KafkaError as error:
            reply(error)
            return
        for offset in range(begin, len(self._records)):
            record = self._records[offset]
            if record is not None and record[1] == marker.producer_id:
                self._committed[offset] = marker.commit
        self._records.append(None)
        self._ends[marker.producer_id] = self._ends.get(marker.producer_id, 0) + 1
        reply(ErrorCode.none)

    def committed(self, begin: int) -> list[tuple[int, str]]:
        """Return the records that a reader of committed records receives from there on."""
        return [
            (offset, record[0])
            for offset in range(begin, self.last_stable_offset)
            if (record := self._records[offset]) is not None and self._committed[offset]
        ]


class Errands:
    """The marker requests: the last one of each transactional id."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._wanted: dict[str, WriteMarkers] = {}
        self._left: dict[str, set[TopicPartition]] = {}
        self._lines: dict[TopicPartition, Line] = {}
        self._line = Line()

    def perform(self, wanted: WriteMarkers) -> None:
        self._wanted[wanted.transactional_id] = wanted
        self._left[wanted.transactional_id] = set(wanted.partitions)
        for partition in sorted(wanted.partitions):
            self._send(wanted, partition)
        self._finish(wanted)

    def drop(self) -> None:
        """Forget them: the next coordinator sends them again."""
        self._wanted.clear()

    def _send(self, wanted: WriteMarkers, partition: TopicPartition) -> None:
        if self._wanted.get(wanted.transactional_id) is not wanted:
            return

        def told(answer: Any) -> None:
            code = answer.code if isinstance(answer, KafkaError) else answer
            if self._wanted.get(wanted.transactional_id) is not wanted:
                return
            if code in (ErrorCode.none, ErrorCode.invalid_producer_epoch):
                self._left[wanted.transactional_id].discard(partition)
                self._finish(wanted)
            else:
                self._setting.time.after(BACKOFF_MS, self._send, wanted, partition)

        setting = self._setting
        is_offsets = partition == OFFSETS
        target = setting.groups if is_offsets else setting.outputs[partition.partition]
        setting.network.call(
            self._lines.setdefault(partition, Line()),
            target.end_transaction,
            Marker(*wanted.producer, wanted.commit, wanted.version),
            told,
            timeout_ms=TIMEOUT_MS,
            # Below version 2 a duplicate might end the next transaction.
            may_repeat=wanted.version >= 2,
        )

    def _finish(self, wanted: WriteMarkers) -> None:
        if self._left[wanted.transactional_id]:
            return
        done = MarkersWritten(wanted.transactional_id, wanted.producer)

        def told(answer: Any) -> None:
            is_lost = isinstance(answer, KafkaError)
            if is_lost and self._wanted.get(wanted.transactional_id) is wanted:
                self._setting.time.after(BACKOFF_MS, self._finish, wanted)

        self._setting.network.call(
            self._line,
            self._setting.transactions.ask,
            done,
            told,
            timeout_ms=TIMEOUT_MS,
            may_repeat=False,  # an internal call
        )


class Worker:
    """A producer for one input partition, which no other worker reads while this one lives or may
    resume.
    """

    def __init__(self, setting: Setting, transactional_id: str, name: str, index: int) -> None:
        self.setting = setting
        self.transactional_id = transactional_id
        self.name = name
        self.input = (INPUT, index)
        self.process = VirtualProcess(setting.time)
        self.stops = False
        """Whether to stop after the current transaction."""
        self.on_end: Callable[[Worker], None] = lambda _: None
        self._identity = ProducerIdAndEpoch(-1, -1)
        self._position = 0
        self._transactions = 0
        self._line = Line()
        self._under_way: Callable[[Result], None] | None = None
        """Records the outcome of a request that has no response yet."""
        self._verification = Verification(setting, OFFSETS)
        self._begin_at(setting.time.now_ms)

    @property
    def time(self) -> VirtualTime:
        return self.setting.time

    def note(self, event: Event) -> None:
        self.setting.history.append(event)

    def now(self) -> int:
        """Return the current index in the history."""
        return len(self.setting.history)

    # Faults

    def crash(self) -> None:
        if not self.process.is_alive:
            return
        self.process.is_alive = False
        if self._under_way is not None:
            self._under_way(Result.UNKNOWN)
        self.on_end(self)

    # Retrying until there is a response

    def _ask(
        self,
        server: Callable[[Any, Reply], None],
        request: Any,
        told: Callable[[Any, bool], None],
        was_lost: bool = False,
    ) -> None:
        """Call `told` with the response, and whether an earlier response was lost."""

        def answered(answer: Any) -> None:
            if isinstance(answer, KafkaError) and answer.code in AGAIN:
                lost = was_lost or answer.code not in (
                    ErrorCode.concurrent_transactions,
                    ErrorCode.unstable_offset_commit,
                )
                self.process.after(BACKOFF_MS, self._ask, server, request, told, lost)
            else:
                told(answer, was_lost)

        self.setting.network.call(
            self._line,
            server,
            request,
            lambda answer: self.process.do(answered, answer),
            timeout_ms=TIMEOUT_MS,
            may_repeat=self.setting.version >= 2,
        )

    def _noted(self, note: Callable[[Result], None]) -> None:
        """Have `note` called with UNKNOWN if the worker ends before there is a response."""
        self._under_way = note

    def _note(self, result: Result) -> None:
        note, self._under_way = self._under_way, None
        assert note is not None
        note(result)

    def _refused(self, was_lost: bool) -> Result:
        """Return the result of a refused request: an earlier attempt may have taken effect."""
        return Result.UNKNOWN if was_lost else Result.REFUSED

    # Initialization

    def _begin_at(self, at_ms: int) -> None:
        self.time.at(at_ms, self.process.do, self._init, -1, self.now())

    def _init(self, new_id: int, since: int) -> None:
        request = InitProducerId(self.transactional_id, self.setting.timeout_ms, new_id=new_id)

        def told(answer: Any, _: bool) -> None:
            if answer is NEEDS_ID:
                self._init(self.setting.new_id(), since)
            elif isinstance(answer, KafkaError):
                self.crash()
            else:
                self._identity = answer
                self.note(
                    Started(
                        self.time.now_s,
                        since,
                        self.transactional_id,
                        self.name,
                        tuple(self._identity),
                    )
                )
                self._fetch()

        self._ask(self.setting.transactions.ask, request, told)

    def _fetch(self) -> None:
        since = self.now()
        topic, index = self.input

        def server(request: Any, reply: Reply) -> None:
            self.setting.groups.ask(request, lambda answer: reply(_offset(answer)))

        def told(offset: Any, _: bool) -> None:
            self.note(Fetched(self.time.now_s, since, GROUP, self.input, offset))
            self._position = max(offset, 0)
            self._begin()

        self._ask(server, groups.FetchOffsets(GROUP, [(topic, [index])], True), told)

    # Transactions

    def _begin(self) -> None:
        if self.stops:
            self.crash()
            return
        random = self.time.random
        self._transactions += 1
        transaction = f"{self.name}/{self._transactions}"
        read = range(self._position, self._position + random.randint(1, 3))
        outputs = [
            (random.choice(self.setting.outputs), f"{self.input[1]}:{offset}#{transaction}")
            for offset in read
        ]
        if self.setting.version >= 2:
            self._produce(transaction, outputs, read.stop)
            return
        partitions = frozenset([OFFSETS, *(output.partition for output, _ in outputs)])
        request = AddPartitions(self.transactional_id, self._identity, partitions)

        def told(answer: Any, _: bool) -> None:
            if isinstance(answer, KafkaError):
                self.crash()
            else:
                self._produce(transaction, outputs, read.stop)

        self._ask(self.setting.transactions.ask, request, told)

    def _produce(
        self, transaction: str, outputs: Sequence[tuple[Output, str]], position: int
    ) -> None:
        """Produce the records one after the other, then commit the offset."""
        if not outputs:
            self._commit(transaction, position)
            return
        (output, value), *rest = outputs
        since, offset = self.now(), -1

        def note(result: Result) -> None:
            self.note(
                Sent(
                    self.time.now_s,
                    since,
                    self.name,
                    transaction,
                    tuple(output.partition),
                    value,
                    offset,
                    result,
                )
            )

        def told(answer: Any, was_lost: bool) -> None:
            nonlocal offset
            if isinstance(answer, KafkaError):
                self._note(self._refused(was_lost))
                self.crash()
                return
            offset = answer
            self._note(Result.OK)
            self.process.after(self.time.some(20), self._produce, transaction, rest, position)

        self._noted(note)
        self._ask(output.produce, Produce(self.transactional_id, self._identity, value), told)

    def _commit(self, transaction: str, position: int) -> None:
        topic, index = self.input
        commits = [groups.Commit(topic, groups.NO_TOPIC_ID, index, position, -1, "")]
        request = groups.CommitTransactionalOffsets(
            GROUP, self.transactional_id, *self._identity, -1, "", None, commits
        )
        since = self.now()

        def note(result: Result) -> None:
            self.note(
                Committed(
                    self.time.now_s,
                    since,
                    GROUP,
                    self.name,
                    -1,
                    self.input,
                    position,
                    result,
                    transaction,
                )
            )

        def told(answer: Any, was_lost: bool) -> None:
            if isinstance(answer, KafkaError) or answer != [ErrorCode.none]:
                self._note(self._refused(was_lost))
                self.crash()
                return
            self._note(Result.OK)
            commit = self.time.random.random() < 0.75
            self.process.after(
                self.time.some(50), self._end, transaction, position, commit, self.now(), -1
            )

        self._noted(note)
        self._ask(self._commit_verified, request, told)

    def _commit_verified(self, request: Any, reply: Reply) -> None:
        """Commit the offsets, as the group coordinator does."""

        def told(refusal: Any) -> None:
            if refusal is None:
                self.setting.groups.ask(request, reply)
            else:
                reply(refusal)

        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        self._verification.ask(request.transactional_id, producer, told)

    def _end(self, transaction: str, position: int, commit: bool, since: int, new_id: int) -> None:
        request = EndTransaction(
            self.transactional_id, self._identity, commit, self.setting.version, new_id
        )

        def note(result: Result) -> None:
            self.note(Ended(self.time.now_s, since, self.name, transaction, commit, result))

        def told(answer: Any, was_lost: bool) -> None:
            if answer is NEEDS_ID:
                self._end(transaction, position, commit, since, self.setting.new_id())
            elif isinstance(answer, KafkaError):
                self._note(self._refused(was_lost))
                self.crash()
            else:
                self._note(Result.OK)
                self._identity = answer
                if commit:
                    self._position = position
                self.process.after(0 if self.stops else self.time.some(300), self._begin)

        self._noted(note)
        self._ask(self.setting.transactions.ask, request, told)


class Reader:
    def __init__(self, setting: Setting, name: str) -> None:
        self._setting = setting
        self._name = name
        self._positions = [0 for _ in setting.outputs]
        for output in setting.outputs:
            self._note(Seated(setting.time.now_s, name, tuple(output.partition), 0))

    def _note(self, event: Event) -> None:
        self._setting.history.append(event)

    def poll(self) -> None:
        now_s = self._setting.time.now_s
        for index, output in enumerate(self._setting.outputs):
            for offset, value in output.committed(self._positions[index]):
                self._note(Polled(now_s, self._name, tuple(output.partition), offset, value))
            self._positions[index] = output.last_stable_offset

    def poll_to_the_end(self) -> None:
        self.poll()
        now_s = self._setting.time.now_s
        for index, output in enumerate(self._setting.outputs):
            partition = tuple(output.partition)
            last_stable, end = output.last_stable_offset, output.high_watermark
            self._note(Looked(now_s, partition, last_stable, end))
            self._note(AtEnd(now_s, self._name, partition, self._positions[index]))


def _offset(answer: Any) -> Any:
    """Return the offset of the one requested partition."""
    if isinstance(answer, KafkaError):
        return answer
    ((_, (found,)),) = answer
    if found.error is not ErrorCode.none:
        return KafkaError(found.error)
    return found.offset


__all__ = ["GROUP", "NOT_COMMITTED", "Errands", "Output", "Reader", "Setting", "Worker"]
