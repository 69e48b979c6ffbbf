"""Transactions as an admin sees them, of brokers that are scripted."""

from __future__ import annotations

import struct

import pytest

from kcli.client.admin.admin import Admin
from kcli.client.admin.transaction_admin import (
    AbortTransactionSpec,
    ProducerState,
    TransactionDescription,
    TransactionListing,
)
from kserver.errors import ErrorCode, KafkaError, ProtocolError
from kserver.model import TopicPartition
from kserver.wire.api_key import ApiKey
from kserver.wire.varint import encode_unsigned
from kserver.wire.versions import reply_to
from tests.support.loop import SimLoop, simulate
from tests.support.producing import OK
from tests.support.scripted_broker import ScriptedBroker, frame, metadata

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def run(scenario, brokers: int = 1):
    """`scenario(admin.transactions, brokers)`; broker n leads partition n of t."""

    async def main(loop: SimLoop):
        all_of = [ScriptedBroker(loop, f"broker-{n}", id=n) for n in range(brokers)]
        for broker in all_of:
            leads = [(n, 1) for n in range(brokers)]
            broker.on(ApiKey.METADATA, metadata(*all_of, topics=[("t", OK, *leads)]))
            broker.on(ApiKey.FIND_COORDINATOR, coordinator)
            await broker.start()
        async with Admin({"bootstrap.servers": "broker-0:9092"}) as admin:
            return await scenario(admin.transactions, all_of)

    return simulate(main, 1)


def coordinator(request):
    reply = reply_to(request)
    at = {"node_id": 0, "host": "broker-0", "port": 9092, "error_code": OK}
    return reply(
        coordinators=[reply.coordinators(key=key, **at) for key in request.coordinator_keys]
    )


def listing(*found):
    def handle(request):
        reply = reply_to(request)
        states = [
            reply.transaction_states(
                transactional_id=name, producer_id=producer_id, transaction_state=state
            )
            for name, producer_id, state in found
        ]
        return reply(transaction_states=states)

    return handle


def text(value: str) -> bytes:
    return encode_unsigned(len(value.encode()) + 1) + value.encode()


def state(name, word="Ongoing", *, code=0, started=5, topics=(("t", 0, 2),)):
    parts = [struct.pack(">h", code), text(name), text(word)]
    parts += [struct.pack(">iqqh", 60_000, started, 7, 3), encode_unsigned(len(topics) + 1)]
    for topic, *numbers in topics:
        parts += [text(topic), encode_unsigned(len(numbers) + 1)]
        parts += [*(struct.pack(">i", number) for number in numbers), b"\0"]
    return b"".join((*parts, b"\0"))


def test_what_all_brokers_list_is_told_by_broker():
    async def scenario(transactions, brokers):
        brokers[0].on(ApiKey.LIST_TRANSACTIONS, listing(("a", 1, "Ongoing"), ("b", 2, "Weird")))
        brokers[1].on(ApiKey.LIST_TRANSACTIONS, listing(("c", 3, "Empty")))
        assert await transactions.listings() == [
            TransactionListing("a", 0, 1, "Ongoing"),
            TransactionListing("b", 0, 2, "Unknown"),
            TransactionListing("c", 1, 3, "Empty"),
        ]
        await transactions.listings(
            states=["Ongoing"], producer_ids=[4], longer_than_ms=9, pattern="x.*"
        )
        asked = brokers[1].asked(ApiKey.LIST_TRANSACTIONS)[-1]
        assert (asked.state_filters, asked.producer_id_filters) == (("Ongoing",), (4,))
        assert (asked.duration_filter, asked.transactional_id_pattern) == (9, "x.*")

    run(scenario, brokers=2)


@pytest.mark.parametrize(
    ("newest", "choice", "word"),
    [(0, {"longer_than_ms": 0}, "duration"), (1, {"pattern": "x"}, "pattern")],
)
def test_brokers_that_cannot_choose_are_not_asked_to(newest, choice, word):
    async def scenario(transactions, brokers):
        brokers[0].on(ApiKey.LIST_TRANSACTIONS, listing(("a", 1, "Ongoing")), (0, newest))
        assert len(await transactions.listings()) == 1
        with pytest.raises(KafkaError, match=f"cannot choose transactions by {word}") as caught:
            await transactions.listings(**choice)
        assert caught.value.code is ErrorCode.unsupported_version

    run(scenario)


def answers(broker: ScriptedBroker, make) -> None:
    """`make(names)` are the bytes of each state."""

    def handle(request):
        states = make(request.transactional_ids)
        body = b"\0" + struct.pack(">i", 0) + encode_unsigned(len(states) + 1)
        return frame(handle.correlation_id, body + b"".join(states) + b"\0")

    handle.correlation_id = 0
    broker.on(ApiKey.DESCRIBE_TRANSACTIONS, handle)


class Correlated(ScriptedBroker):
    """Knows the correlation id of the request that it answers, for answers by hand."""

    async def answer(self, header, request):
        handler = self._handlers[header.api_key]
        if hasattr(handler, "correlation_id"):
            handler.correlation_id = header.correlation_id
        return await super().answer(header, request)


def describe(make, names):
    async def main(loop: SimLoop):
        broker = Correlated(loop, "broker-0")
        broker.on(ApiKey.METADATA, metadata(broker))
        broker.on(ApiKey.FIND_COORDINATOR, coordinator)
        answers(broker, make)
        await broker.start()
        settings = {"bootstrap.servers": broker.address, "default.api.timeout.ms": 5000}
        async with Admin(settings) as admin:
            return await admin.transactions.describe(names)

    return simulate(main, 1)


def test_transactions_are_described_open_or_not():
    found = describe(
        lambda names: [
            state("a"),
            state("b", "Empty", started=-1, topics=()),
            state("c", code=ErrorCode.transactional_id_not_found),
        ],
        ["a", "b", "c"],
    )
    assert found["a"] == TransactionDescription(
        0, "Ongoing", 7, 3, 60_000, 5, (T0, TopicPartition("t", 2))
    )
    assert found["b"].started_at is None
    assert "for transactionalId `c` failed because the ID could not be found" in str(found["c"])


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_a_description_that_is_cut_short_is_a_protocol_error(cut):
    with pytest.raises(ProtocolError):
        describe(lambda names: [state("a")[:-cut]], ["a"])


def producers(of):
    """Answers DescribeProducers; `of` maps partitions to a code or to a tuple's fields."""

    def handle(request):
        reply = reply_to(request)
        new = reply.topics.partitions
        topics = []
        for topic in request.topics:
            partitions = []
            for index in topic.partition_indexes:
                found = of[TopicPartition(topic.name, index)]
                refused = isinstance(found, ErrorCode)
                partitions.append(
                    new(
                        partition_index=index,
                        error_code=found if refused else OK,
                        active_producers=[]
                        if refused
                        else [
                            new.active_producers(
                                producer_id=p,
                                producer_epoch=e,
                                last_sequence=9,
                                last_timestamp=timestamp,
                                coordinator_epoch=-1,
                                current_txn_start_offset=start,
                            )
                            for p, e, timestamp, start in found
                        ],
                    )
                )
            topics.append(reply.topics(name=topic.name, partitions=partitions))
        return reply(topics=topics)

    return handle


def test_producers_are_asked_of_leaders_or_of_one_replica():
    async def scenario(transactions, brokers):
        for broker in brokers:
            broker.on(
                ApiKey.DESCRIBE_PRODUCERS, producers({T0: [(7, 3, 100, 5)], T1: [(8, 0, 200, -1)]})
            )
        found = await transactions.producers([T0, T1])
        assert found == {
            T0: [ProducerState(7, 3, 9, 100, None, 5)],
            T1: [ProducerState(8, 0, 9, 200, None, None)],
        }
        assert [len(broker.asked(ApiKey.DESCRIBE_PRODUCERS)) for broker in brokers] == [1, 1]
        await transactions.producers([T0, T1], 1)
        assert [len(broker.asked(ApiKey.DESCRIBE_PRODUCERS)) for broker in brokers] == [1, 2]

    run(scenario, brokers=2)


def test_what_no_coordinator_knows_of_hangs():
    """Producer 7 has no id any more, 8 an id with another transaction; 9 will be ended, 10 is
    young, and 11 has nothing open."""

    async def main(loop: SimLoop):
        broker = Correlated(loop, "broker-0")
        broker.on(ApiKey.METADATA, metadata(broker, topics=[("t", OK, (0, 1))]))
        broker.on(ApiKey.FIND_COORDINATOR, coordinator)
        everyone = [(7, 0, 10, 1), (8, 0, 20, 2), (9, 0, 30, 3), (10, 0, 99, 4), (11, 0, 5, -1)]
        broker.on(ApiKey.DESCRIBE_PRODUCERS, producers({T0: everyone}))
        broker.on(
            ApiKey.LIST_TRANSACTIONS, listing(("eight", 8, "Ongoing"), ("nine", 9, "Ongoing"))
        )
        topics = {"eight": (("u", 0),), "nine": (("t", 0),)}
        answers(broker, lambda names: [state(name, topics=topics[name]) for name in names])
        await broker.start()
        async with Admin({"bootstrap.servers": broker.address}) as admin:
            found = await admin.transactions.find_hanging([T0], last_before_ms=99)
        assert [one.producer_id for _, one in found] == [7, 8]
        (asked,) = broker.asked(ApiKey.LIST_TRANSACTIONS)
        assert asked.producer_id_filters == (7, 8, 9)

    simulate(main, 1)


def test_a_transaction_is_aborted_by_a_marker_at_the_leader():
    async def scenario(transactions, brokers):
        codes = [ErrorCode.not_leader_or_follower, OK, ErrorCode.invalid_producer_epoch]

        def handle(request):
            (marker,) = request.markers
            reply = reply_to(request)
            new = reply.markers
            done = new.topics.partitions(partition_index=1, error_code=codes.pop(0))
            topics = [new.topics(name="t", partitions=[done])]
            return reply(markers=[new(producer_id=marker.producer_id, topics=topics)])

        brokers[1].on(ApiKey.WRITE_TXN_MARKERS, handle)
        await transactions.abort(AbortTransactionSpec(T1, 7, 3, 4))
        marker = brokers[1].asked(ApiKey.WRITE_TXN_MARKERS)[-1].markers[0]
        assert not marker.transaction_result
        assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 3, 4)
        with pytest.raises(KafkaError, match="invalid_producer_epoch"):
            await transactions.abort(AbortTransactionSpec(T1, 7, 3, 4))

    run(scenario, brokers=2)


def test_producers_are_fenced_each_with_its_outcome():
    async def scenario(transactions, brokers):
        codes = [ErrorCode.concurrent_transactions, ErrorCode.transactional_id_authorization_failed]

        def handle(request):
            code = codes.pop() if codes and request.transactional_id == "b" else OK
            return reply_to(request)(error_code=code, producer_id=7, producer_epoch=1)

        brokers[0].on(ApiKey.INIT_PRODUCER_ID, handle)
        found = await transactions.fence(["a", "b"])
        assert found["a"] == (7, 1)
        assert found["b"].code is ErrorCode.transactional_id_authorization_failed
        codes[:] = [ErrorCode.concurrent_transactions]
        assert (await transactions.fence(["b"]))["b"] == (7, 1)

    run(scenario)
