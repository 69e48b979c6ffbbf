"""Every code that a broker can answer, in the places where it decides what a client does next.

The tables are Kafka's: RetriableException and its heirs, Sender.canRetry, FetchCollector,
ListOffsetsHandler.  A code that is in none of them ends the matter.
"""

from __future__ import annotations

import asyncio

import pytest

from kcli.client.admin.admin import Admin, NewTopic
from kcli.client.config import AdminConfig
from kserver.errors import ErrorCode, KafkaError
from kserver.wire.api_key import ApiKey
from kserver.wire.versions import reply_to
from tests.support import consuming
from tests.support.consuming import T0
from tests.support.loop import SimLoop, simulate
from tests.support.producing import OK, identity, run
from tests.support.scripted_broker import ScriptedBroker, metadata

REFUSALS = [code for code in ErrorCode if code is not OK]
NAMES = [code.name for code in REFUSALS]
every_code = pytest.mark.parametrize("code", REFUSALS, ids=NAMES)


def codes(*names: str) -> frozenset[ErrorCode]:
    return frozenset(ErrorCode[name] for name in names)


RETRIABLE = codes(
    "corrupt_message",
    "unknown_topic_or_partition",
    "leader_not_available",
    "not_leader_or_follower",
    "request_timed_out",
    "replica_not_available",
    "network_exception",
    "coordinator_load_in_progress",
    "coordinator_not_available",
    "not_coordinator",
    "not_enough_replicas",
    "not_enough_replicas_after_append",
    "not_controller",
    "concurrent_transactions",
    "kafka_storage_error",
    "fetch_session_id_not_found",
    "invalid_fetch_session_epoch",
    "listener_not_found",
    "fenced_leader_epoch",
    "unknown_leader_epoch",
    "offset_not_available",
    "preferred_leader_not_available",
    "eligible_leaders_not_available",
    "election_not_needed",
    "unstable_offset_commit",
    "throttling_quota_exceeded",
    "unknown_topic_id",
    "inconsistent_topic_id",
    "fetch_session_topic_id_error",
    "share_session_not_found",
    "invalid_share_session_epoch",
    "share_session_limit_reached",
)
NEW_EPOCH = codes("out_of_order_sequence_number", "unknown_producer_id", "invalid_producer_epoch")
FETCHED_AGAIN = codes(
    "not_leader_or_follower",
    "replica_not_available",
    "leader_not_available",
    "kafka_storage_error",
    "fenced_leader_epoch",
    "unknown_leader_epoch",
    "offset_not_available",
    "unknown_topic_or_partition",
    "unknown_topic_id",
    "inconsistent_topic_id",
    "unknown_server_error",
)


def once(code: ErrorCode):
    """The code the first time, then no refusal."""
    answers = iter([code])
    return lambda batch=None: next(answers, OK)


@every_code
def test_a_batch_that_is_refused(code):
    async def scenario(producer, broker, topic):
        topic.verdict = once(code)
        sent = await producer.send("t", b"v")
        if code in RETRIABLE | NEW_EPOCH:
            assert (await sent).offset == 0
            assert topic.log[0].producer_epoch == (1 if code in NEW_EPOCH else 0)
            assert len(broker.asked(ApiKey.PRODUCE)) == 2
        elif code is ErrorCode.duplicate_sequence_number:
            assert (await sent).offset == -1, "an earlier try is in the log, nobody knows where"
        else:
            with pytest.raises(KafkaError) as caught:
                await sent
            assert caught.value.code is code
            assert len(broker.asked(ApiKey.PRODUCE)) == 1
        assert (await (await producer.send("t", b"w"))).offset == len(topic.log) - 1
        assert topic.values()[-1] == b"w"

    run(scenario)


@pytest.mark.parametrize("code", NEW_EPOCH)
def test_without_idempotence_there_is_no_epoch_to_begin(code):
    async def scenario(producer, broker, topic):
        topic.verdict = once(code)
        with pytest.raises(KafkaError):
            await (await producer.send("t", b"v"))

    run(scenario, enable_idempotence="false")


@every_code
def test_a_producer_id_that_is_refused(code):
    async def scenario(producer, broker, topic):
        refuse = once(code)

        def init(request):
            refused = refuse()
            if refused is OK:
                return identity(request)
            return reply_to(request)(error_code=refused, producer_id=-1, producer_epoch=-1)

        broker.on(ApiKey.INIT_PRODUCER_ID, init)
        outcome = await asyncio.gather(await producer.send("t", b"v"), return_exceptions=True)
        if code in RETRIABLE:
            assert outcome[0].offset == 0
        else:
            assert outcome[0].code is code

    run(scenario)


@every_code
def test_a_topic_whose_metadata_is_refused(code):
    async def scenario(producer, broker, topic):
        refuse = once(code)

        def answer(request):
            refused = refuse()
            leads = [(0, 1)] if refused is OK else []
            return metadata(broker, topics=[("t", refused, *leads)])(request)

        broker.on(ApiKey.METADATA, answer)
        if code in RETRIABLE:
            assert (await (await producer.send("t", b"v"))).offset == 0
        else:
            with pytest.raises(KafkaError) as caught:
                await producer.send("t", b"v")
            assert caught.value.code is code

    run(scenario)


@every_code
def test_a_partition_whose_fetch_is_refused(code):
    async def scenario(consumer, server):
        log = server.logs[T0]
        log.append(3)
        consumer.assign([T0])
        await consuming.read(consumer, 1)
        log.append(1)
        log.error = code
        if code in FETCHED_AGAIN:
            assert await consumer.poll(500) == []
            log.error = OK
            assert [r.offset for r in await consuming.read(consumer, 1)] == [3]
        elif code is ErrorCode.offset_out_of_range:
            await asyncio.sleep(1)
            log.error = OK
            assert [r.offset for r in await consuming.read(consumer, 4)] == [0, 1, 2, 3]
        else:
            for _ in range(2):
                with pytest.raises(KafkaError) as caught:
                    await consumer.poll(5000)
                assert caught.value.code is code
            log.error = OK
            await consumer.seek(T0, 3)
            assert [r.offset for r in await consuming.read(consumer, 1)] == [3]

    consuming.run(scenario, max_poll_records="1000")


@every_code
def test_an_offset_that_is_refused(code):
    async def scenario(consumer, server):
        server.logs[T0].append(3)
        refuse = once(code)

        def answer(request):
            refused = refuse()
            if refused is OK:
                return server.list_offsets(request)
            reply = reply_to(request)
            told = reply.topics.partitions(partition_index=0, error_code=refused, offset=-1)
            return reply(topics=[reply.topics(name="t", partitions=[told])])

        server.broker.on(ApiKey.LIST_OFFSETS, answer)
        if code in RETRIABLE:
            assert await consumer.end_offsets([T0]) == {T0: 3}
        else:
            with pytest.raises(KafkaError, match="t-0") as caught:
                await consumer.end_offsets([T0])
            assert caught.value.code is code

    consuming.run(scenario)


@every_code
def test_a_change_that_the_controller_refuses(code):
    async def main(loop: SimLoop) -> None:
        broker = ScriptedBroker(loop)
        refuse = once(code)

        def create(request):
            reply = reply_to(request)
            return reply(topics=[reply.topics(name="x", error_code=refuse(), error_message="why")])

        broker.on(ApiKey.METADATA, metadata(broker))
        broker.on(ApiKey.CREATE_TOPICS, create, (5, 5))
        await broker.start()
        async with Admin(AdminConfig(bootstrap_servers=(broker.address,))) as admin:
            made = (await admin.create_topics([NewTopic("x")]))["x"]
        if code in codes("not_controller", "throttling_quota_exceeded"):
            assert made.name == "x"
        else:
            assert (made.code, made.message) == (code, "why")

    simulate(main, 1)
