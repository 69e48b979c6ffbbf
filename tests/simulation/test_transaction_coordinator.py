"""Transactions on the unchanged broker, while its power is cut: whole or not at all."""

from __future__ import annotations

import asyncio
import datetime
from collections import Counter
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from kserver.api.context import Parts
from kserver.errors import ErrorCode, KafkaError
from kserver.log.log import Log
from kserver.metadata import BrokerInfo, PartitionInfo, TopicInfo
from kserver.model import TRANSACTION_STATE, Endpoint, TopicPartition
from kserver.peer import Peer
from kserver.txn.markers import UNKNOWN_S, Marker
from kserver.txn.requests import AddPartitions, EndTransaction
from kserver.txn.transaction import PREPARED, ProducerIdAndEpoch, TransactionState
from kserver.wire.api_key import ApiKey
from kserver.wire.batch import batches, encode_batch
from kserver.wire.versions import request
from tests.simulation.test_broker import create, fetch
from tests.support.loop import SimLoop, simulate
from tests.support.simulated import PORT, SimulatedBroker

SEEDS = range(6)
TOPIC, GROUP, NAME = "t", "g", "writer"
SETTINGS: dict[str, object] = {
    "log.index.size.max.bytes": 4096,
    "transaction.state.log.num.partitions": 2,
    "offsets.topic.num.partitions": 2,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
}
FLUSHED = {"log.flush.before.ack": "true"}
TIMEOUT = datetime.timedelta(seconds=20)


class Refused(Exception):
    """This transaction cannot go on."""


class Given(NamedTuple):
    producer_id: int
    producer_epoch: int


class Writer:
    """A transactional producer by hand, of one transaction version.  In every transaction a record
    goes to each of two partitions, and an offset of a group is committed."""

    def __init__(self, loop: SimLoop, broker: SimulatedBroker, version: int) -> None:
        self.loop = loop
        self.broker = broker
        self.is_implicit = version == 2
        self.peer: Peer | None = None
        self.given = Given(-1, -1)
        self.sequences: Counter[int] = Counter()

    async def ask(self, build: Any, **fields: Any) -> Any:
        assert self.peer is not None
        return await self.peer.call(build(**fields))

    async def until_told(self, codes, api: int, version: int, **fields: Any) -> Any:
        """The answer, once it is none that a client is to ask again for."""
        while True:
            answer = await self.ask(request(api, version), **fields)
            for code in codes(answer):
                if code.retriable or code is ErrorCode.not_coordinator:
                    break
                if code is not ErrorCode.none:
                    raise Refused(code)
            else:
                return answer
            await asyncio.sleep(0.05)

    async def begin(self) -> None:
        """Connect, and fence whatever was before."""
        if self.peer is not None:
            self.peer.close()
        self.peer = await self.broker.connect("writer")
        for kind, key in enumerate((GROUP, NAME)):
            await self.ask(request(ApiKey.FIND_COORDINATOR, 3), key=key, key_type=kind)
        answer = await self.until_told(
            lambda a: [a.error_code],
            *(ApiKey.INIT_PRODUCER_ID, 4),
            transactional_id=NAME,
            transaction_timeout=TIMEOUT,
        )
        self._goes_on(Given(answer.producer_id, answer.producer_epoch))

    def _goes_on(self, given: Given) -> None:
        if given != self.given:
            self.sequences.clear()
        self.given = given

    async def write(self, number: int) -> None:
        if not self.is_implicit:
            named = {f"v3_and_below_{k}": v for k, v in self.given._asdict().items()}
            build = request(ApiKey.ADD_PARTITIONS_TO_TXN, 3)
            await self.until_told(
                lambda a: [
                    p.partition_error_code
                    for t in a.results_by_topic_v3_and_below
                    for p in t.results_by_partition
                ],
                *(ApiKey.ADD_PARTITIONS_TO_TXN, 3),
                v3_and_below_transactional_id=NAME,
                v3_and_below_topics=[build.v3_and_below_topics(name=TOPIC, partitions=(0, 1))],
                **named,
            )
        for partition in (0, 1):
            await self.produce(partition, number, version=12 if self.is_implicit else 11)
        await self._commit_offset(number)

    async def produce(self, partition: int, number: int, *, version: int) -> None:
        records = encode_batch(
            [(self.broker.clock.now_ms(), None, b"%d" % number, ())],
            base_sequence=self.sequences[partition],
            transactional=True,
            **self.given._asdict(),
        )
        build = request(ApiKey.PRODUCE, version)
        data = build.topic_data.partition_data(index=partition, records=records)
        await self.until_told(
            lambda a: [a.responses[0].partition_responses[0].error_code],
            *(ApiKey.PRODUCE, version),
            transactional_id=NAME,
            acks=-1,
            timeout=datetime.timedelta(seconds=5),
            topic_data=[build.topic_data(name=TOPIC, partition_data=[data])],
        )
        self.sequences[partition] += 1

    async def _commit_offset(self, number: int) -> None:
        named = {"transactional_id": NAME, "group_id": GROUP, **self.given._asdict()}
        if not self.is_implicit:
            await self.until_told(lambda a: [a.error_code], ApiKey.ADD_OFFSETS_TO_TXN, 3, **named)
        version = 5 if self.is_implicit else 4
        build = request(ApiKey.TXN_OFFSET_COMMIT, version)
        one = build.topics.partitions(
            partition_index=0, committed_offset=number, committed_metadata=""
        )
        await self.until_told(
            lambda a: [a.topics[0].partitions[0].error_code],
            *(ApiKey.TXN_OFFSET_COMMIT, version),
            topics=[build.topics(name=TOPIC, partitions=[one])],
            generation_id=-1,
            member_id="",
            **named,
        )

    async def end(self, commit: bool) -> None:
        version = 5 if self.is_implicit else 3
        answer = await self.until_told(
            lambda a: [a.error_code],
            *(ApiKey.END_TXN, version),
            transactional_id=NAME,
            committed=commit,
            **self.given._asdict(),
        )
        if self.is_implicit:
            self._goes_on(Given(answer.producer_id, answer.producer_epoch))


async def committed(peer: Peer, partition: int) -> list[int]:
    """What a read_committed consumer gets of the partition; it must come to the end."""
    found: list[int] = []
    offset = 0
    aborted: list[tuple[int, int]] = []
    while True:
        build = request(ApiKey.FETCH, 12)
        one = build.topics.partitions(
            partition=partition,
            current_leader_epoch=-1,
            fetch_offset=offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=1 << 20,
        )
        answer = await peer.call(
            build(
                max_bytes=1 << 20,
                session_epoch=-1,
                isolation_level=1,
                topics=[build.topics(topic=TOPIC, partitions=[one])],
            )
        )
        told = answer.responses[0].partitions[0]
        if not told.records:
            assert told.last_stable_offset == told.high_watermark == offset, "lso-stuck"
            return found
        aborted += [(a.first_offset, a.producer_id) for a in told.aborted_transactions or ()]
        open_: set[int] = set()
        for batch in batches(told.records):
            open_ |= {p for first, p in aborted if first <= batch.last_offset}
            if batch.is_control:
                aborted = [
                    a for a in aborted if a[1] != batch.producer_id or a[0] > batch.last_offset
                ]
                open_.discard(batch.producer_id)
            elif batch.producer_id not in open_:
                found += [int(r.value) for r in batch.records() if r.value and r.offset >= offset]
            offset = batch.next_offset


async def committed_offset(writer: Writer) -> int:
    build = request(ApiKey.OFFSET_FETCH, 7)
    answer = await writer.until_told(
        lambda a: [
            a.error_code,
            a.topics[0].partitions[0].error_code if a.topics else a.error_code,
        ],
        *(ApiKey.OFFSET_FETCH, 7),
        group_id=GROUP,
        topics=[build.topics(name=TOPIC, partition_indexes=(0,))],
        require_stable=True,
    )
    offset: int = answer.topics[0].partitions[0].committed_offset
    return offset


async def finalize(peer: Peer, version: int) -> None:
    build = request(ApiKey.UPDATE_FEATURES, 1)
    update = build.feature_updates(
        feature="transaction.version", max_version_level=version, upgrade_type=2
    )
    answer = await peer.call(build(timeout=TIMEOUT, feature_updates=[update]))
    assert answer.error_code is ErrorCode.none


async def power_cuts(loop: SimLoop, version: int) -> None:
    broker = SimulatedBroker(loop, SETTINGS | FLUSHED)
    await broker.start()
    peer = await broker.connect()
    await create(peer, TOPIC, 2)
    if version < 2:
        await finalize(peer, version)
    writer = Writer(loop, broker, version)
    outcome: dict[int, bool | None] = {}
    """What each transaction came to; None where nobody was told."""

    async def work() -> None:
        number = 0
        while number < 20:
            number += 1
            commit = loop.random.random() < 0.7
            try:
                await writer.begin() if writer.peer is None or not writer.peer.is_open else None
                await writer.write(number)
                outcome[number] = None
                await writer.end(commit)
                outcome[number] = commit
            except Refused:
                # A coordinator that was loaded anew may have lost what was never answered.
                await writer.begin()
            except (OSError, asyncio.CancelledError):
                writer.peer = None
                await back.wait()

    back = asyncio.Event()
    back.set()
    working = loop.create_task(work())
    for _ in range(5):
        # A transaction takes 30 ms, of which 10 after its end was answered.
        await asyncio.sleep(loop.random.uniform(0.0, 0.12))
        back.clear()
        await broker.cut_power()
        await broker.start()
        back.set()
    await working
    peer = await broker.connect("reader")
    # What nobody ended times out.
    await asyncio.sleep(30)
    read = [await committed(peer, partition) for partition in (0, 1)]
    assert read[0] == read[1], "torn-txn"
    assert len(set(read[0])) == len(read[0]), "duplicate"
    assert read[0] == sorted(read[0])
    for number, commit in outcome.items():
        assert commit is None or (number in read[0]) is commit, f"{number} was told {commit}"
    assert not set(read[0]) - outcome.keys(), "precommitted-read"
    await writer.begin()
    assert await committed_offset(writer) == (read[0][-1] if read[0] else -1), "torn offsets"
    assert not broker.bugs
    loop.trace.add("read", read[0])
    await broker.stop()


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_transaction_is_whole_or_not_at_all_whenever_the_power_is_cut(seed, version):
    simulate(lambda loop: power_cuts(loop, version), seed)


def parts_of(broker: SimulatedBroker) -> Parts:
    assert broker.broker is not None
    return broker.broker._parts


def kept(broker: SimulatedBroker) -> dict[str, TransactionState]:
    """The states of all transactional ids, as the coordinator has them."""
    shards = parts_of(broker).transactions.shards()
    return {name: one.state for shard in shards for name, one in shard.transactions.items()}


async def times_out(loop: SimLoop, version: int) -> None:
    broker = SimulatedBroker(loop, SETTINGS | {"transactional.id.expiration.ms": 3_600_000})
    await broker.start()
    peer = await broker.connect()
    await create(peer, TOPIC, 2)
    if version < 2:
        await finalize(peer, version)
    writer = Writer(loop, broker, version)
    await writer.begin()
    await writer.write(1)
    began_s = loop.time()
    while (await fetch(peer, TOPIC, 0, 0)).last_stable_offset == 0:
        await asyncio.sleep(0.1)
    assert 20 < loop.time() - began_s < 22
    assert [await committed(peer, partition) for partition in (0, 1)] == [[], []]
    with pytest.raises(Refused):
        await writer.end(True)
    assert kept(broker) == {NAME: TransactionState.COMPLETE_ABORT}
    await asyncio.sleep(3 * 3600)
    assert kept(broker) == {}
    await broker.stop()
    await broker.start()
    await asyncio.sleep(1)
    assert kept(broker) == {}, "its tombstone is read"
    await broker.stop()


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_transaction_that_is_left_alone_is_aborted_and_its_id_forgotten_in_time(version):
    simulate(lambda loop: times_out(loop, version), 1)


async def led_elsewhere(loop: SimLoop, commit: bool) -> None:
    """The other broker is a cluster of its own, with a topic of the same name; the first is told
    that it leads one there, and knows no better."""
    first, other = SimulatedBroker(loop, SETTINGS), SimulatedBroker(loop, SETTINGS, "other")
    await first.start()
    await other.start()
    theirs = await other.connect()
    await create(theirs, "far")
    peer = await first.connect()
    await create(peer, TOPIC, 2)
    writer = Writer(loop, first, 2)
    await writer.begin()
    records = encode_batch(
        [(1000, None, b"1", ())], base_sequence=0, transactional=True, **writer.given._asdict()
    )
    far = parts_of(other).replicas.get("far", 0)
    far.append_as_leader(memoryview(bytearray(records)), -1, 1000)
    assert (far.log.last_stable_offset, far.log.log_end_offset) == (0, 1)

    parts = parts_of(first)
    image = parts.metadata.current
    there = BrokerInfo(1, {"PLAINTEXT": Endpoint("PLAINTEXT", "PLAINTEXT", "other", PORT)})
    led = TopicInfo("far", far.topic_id, (PartitionInfo(0, 1, 0, (1,), (1,)),))
    brokers = {**image.brokers, 1: there}
    parts.metadata.update(replace(image, brokers=brokers).with_topics({"far": led}))
    producer = ProducerIdAndEpoch(*writer.given)
    added = frozenset({TopicPartition("far", 0), TopicPartition(TOPIC, 1)})
    await parts.transactions.ask(NAME, AddPartitions(NAME, producer, added, 2))
    await other.kill()
    await parts.transactions.ask(NAME, EndTransaction(NAME, producer, commit, 2))
    await asyncio.sleep(3)
    assert kept(first)[NAME] in PREPARED
    await other.start()
    far = parts_of(other).replicas.get("far", 0)
    while kept(first)[NAME] in PREPARED:
        await asyncio.sleep(0.1)
    (told,) = kept(first).values()
    assert told is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT)
    assert (far.log.last_stable_offset, far.log.log_end_offset) == (2, 2)
    assert len(far.log.aborted(0, 2)) == (not commit)
    assert parts.replicas.get(TOPIC, 1).log.log_end_offset == 1
    # One that is deleted needs no marker any more.
    producer = ProducerIdAndEpoch(producer.producer_id, producer.epoch + 1)
    await parts.transactions.ask(NAME, AddPartitions(NAME, producer, added, 2))
    without = parts.metadata.current.with_topics({}, unnamed={"far"})
    parts.metadata.update(without)
    await parts.transactions.ask(NAME, EndTransaction(NAME, producer, commit, 2))
    await asyncio.sleep(5)
    assert kept(first)[NAME] in PREPARED, "its topic may be named again"
    parts.metadata.update(without.with_topics({}, {"far"}))
    await asyncio.sleep(0.2)
    assert kept(first)[NAME] not in PREPARED
    # Nor one that stays unknown: its deletion was not heard of.
    producer = ProducerIdAndEpoch(producer.producer_id, producer.epoch + 1)
    parts.metadata.update(without.with_topics({"far": led}))
    await parts.transactions.ask(NAME, AddPartitions(NAME, producer, added, 2))
    parts.metadata.update(without)
    await parts.transactions.ask(NAME, EndTransaction(NAME, producer, commit, 2))
    await asyncio.sleep(UNKNOWN_S + 1)
    assert kept(first)[NAME] not in PREPARED
    assert far.log.log_end_offset == 2
    await first.stop()
    await other.stop()


@pytest.mark.parametrize("commit", [True, False])
def test_markers_go_to_whoever_leads_a_partition(commit):
    simulate(lambda loop: led_elsewhere(loop, commit), 1)


async def ended_meanwhile(loop: SimLoop, partition_that_ends: int, adds: bool) -> None:
    broker = SimulatedBroker(loop, SETTINGS | FLUSHED)
    await broker.start()
    peer = await broker.connect()
    await create(peer, TOPIC, 3)
    writer = Writer(loop, broker, 0)
    await writer.begin()
    producer, parts = ProducerIdAndEpoch(*writer.given), parts_of(broker)
    zero, one, two = (TopicPartition(TOPIC, partition) for partition in range(3))
    await parts.transactions.ask(NAME, AddPartitions(NAME, producer, frozenset({zero, one})))
    # Until this is on disk the coordinator answers nobody.
    added = parts.transactions.ask(NAME, AddPartitions(NAME, producer, frozenset({two})))
    asked = frozenset({zero, one})
    assert parts.verification.verify_now(NAME, producer, asked, adds=adds) is None
    waiting = loop.create_task(parts.verification.verify(NAME, producer, asked, adds=adds))
    await asyncio.sleep(0)
    ended = TopicPartition(TOPIC, partition_that_ends)
    parts.marker_log.write(
        Marker(producer, commit=False, coordinator_epoch=0), ended, lambda _: None
    )
    assert not added.done()
    refused = await waiting
    codes = {partition: error.code for partition, error in refused.items()}
    is_refused = ended in asked and not adds
    assert codes == ({ended: ErrorCode.invalid_txn_state} if is_refused else {})
    await broker.stop()


@pytest.mark.parametrize("partition", [0, 1, 2])
def test_a_marker_that_comes_while_the_coordinator_is_asked_ends_what_was_asked_about(partition):
    simulate(lambda loop: ended_meanwhile(loop, partition, adds=False), 1)


def test_a_marker_that_comes_while_a_partition_is_added_ended_the_transaction_before():
    simulate(lambda loop: ended_meanwhile(loop, 0, adds=True), 1)


async def sent_meanwhile(loop: SimLoop, version: int) -> None:
    broker = SimulatedBroker(loop, SETTINGS)
    await broker.start()
    peer = await broker.connect()
    await create(peer, TOPIC, 2)
    writer = Writer(loop, broker, 2)
    await writer.begin()
    await writer.produce(0, 0, version=12)
    log_of = parts_of(broker).replicas.get(TOPIC, 0).log
    assert log_of.log_end_offset == 1
    async with parts_of(broker).verification.turn(writer.given.producer_id):
        sent = loop.create_task(writer.produce(0, 1, version=version))
        await asyncio.sleep(1)
        assert log_of.log_end_offset == 1
    await sent
    assert log_of.log_end_offset == 2
    await broker.stop()


@pytest.mark.parametrize("version", [11, 12])
def test_what_is_sent_to_an_open_transaction_waits_behind_what_waits_for_its_turn(version):
    simulate(lambda loop: sent_meanwhile(loop, version), 1)


async def unverified(loop: SimLoop) -> None:
    switched_off = {"transaction.partition.verification.enable": "false"}
    broker = SimulatedBroker(loop, SETTINGS | switched_off)
    await broker.start()
    peer = await broker.connect()
    await create(peer, TOPIC, 2)
    writer = Writer(loop, broker, 0)
    await writer.begin()
    await writer.produce(0, 1, version=11)
    assert kept(broker) == {NAME: TransactionState.EMPTY}, "nobody was asked"
    await writer.produce(1, 1, version=12)
    assert kept(broker) == {NAME: TransactionState.ONGOING}, (
        "to be added is no matter of verification"
    )
    await broker.stop()


def test_without_verification_partitions_are_added_still():
    simulate(unverified, 1)


async def markers_on_disk(loop: SimLoop) -> None:
    broker = SimulatedBroker(loop, SETTINGS | FLUSHED)
    await broker.start()
    peer = await broker.connect()
    await create(peer, TOPIC, 2)
    writer = Writer(loop, broker, 2)
    await writer.begin()
    for number in range(5):
        await writer.write(number)
        await writer.end(True)
        while kept(broker)[NAME] in PREPARED:
            await asyncio.sleep(0.0001)
        for partition in (0, 1):
            log = parts_of(broker).replicas.get(TOPIC, partition).log
            assert log.high_watermark == log.log_end_offset == 2 * (number + 1)
    await broker.stop()


@pytest.mark.parametrize("seed", range(3))
def test_a_transaction_is_complete_once_all_its_markers_are_committed(seed):
    simulate(markers_on_disk, seed)


def logs_of(broker: SimulatedBroker) -> tuple[Log, list[Log]]:
    """What the coordinator of the writer writes to, and what the writer does."""
    parts = parts_of(broker)
    index = parts.transactions.partition_of(NAME)
    written = [parts.replicas.get(TOPIC, partition).log for partition in (0, 1)]
    return parts.replicas.get(TRANSACTION_STATE, index).log, written


async def decided_first(loop: SimLoop, commit: bool) -> None:
    broker = SimulatedBroker(loop, SETTINGS | FLUSHED)
    await broker.start()
    peer = await broker.connect()
    await create(peer, TOPIC, 2)
    writer = Writer(loop, broker, 2)
    await writer.begin()
    for number in range(5):
        await writer.write(number)
        decisions, written = logs_of(broker)
        before = [log.log_end_offset for log in written]
        ending = loop.create_task(writer.end(commit))
        while kept(broker)[NAME] not in PREPARED:
            await asyncio.sleep(0.00001)
        decided_to = decisions.log_end_offset
        while [log.log_end_offset for log in written] == before:
            await asyncio.sleep(0.00001)
        assert decisions.high_watermark >= decided_to
        await ending
    await broker.stop()


@pytest.mark.parametrize("commit", [True, False])
def test_no_marker_is_written_before_the_decision_is_on_disk(commit):
    """A crash would take the decision back, and what was committed might be aborted then."""
    simulate(lambda loop: decided_first(loop, commit), 1)


async def loaded_anew(loop: SimLoop, version: int) -> None:
    broker = SimulatedBroker(loop, SETTINGS | FLUSHED)
    await broker.start()
    peer = await broker.connect()
    await create(peer, TOPIC, 2)
    if version < 2:
        await finalize(peer, version)
    writer = Writer(loop, broker, version)
    await writer.begin()
    parts = parts_of(broker)
    found_any_open = False
    for number in range(5):
        await writer.write(number)
        _, written = logs_of(broker)
        before = [log.log_end_offset for log in written]
        ending = loop.create_task(writer.end(True))
        while any(log.log_end_offset == end for log, end in zip(written, before, strict=True)):
            await asyncio.sleep(0.00001)
        await ending
        image = parts.metadata.current
        parts.transactions.apply(image.with_topics({}, frozenset({TRANSACTION_STATE})))
        parts.transactions.apply(image)
        while is_loading(parts):
            await asyncio.sleep(0.00001)
        found_any_open |= any(log.high_watermark < log.log_end_offset for log in written)
        while kept(broker)[NAME] in PREPARED:
            await asyncio.sleep(0.00001)
        assert all(log.high_watermark == log.log_end_offset for log in written)
    assert found_any_open
    assert [await committed(peer, partition) for partition in (0, 1)] == [[0, 1, 2, 3, 4]] * 2
    assert not broker.bugs
    await broker.stop()


def is_loading(parts: Parts) -> bool:
    try:
        parts.transactions.shard(NAME)
    except KafkaError as error:
        return error.code is ErrorCode.coordinator_load_in_progress
    return False


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_coordinator_that_is_loaded_anew_waits_for_the_markers_that_it_sends_itself(version):
    simulate(lambda loop: loaded_anew(loop, version), 1)
