"""What single replicas are asked, and what becomes of their answers."""

from __future__ import annotations

from uuid import UUID

import pytest

from kcli.client.admin.replica_fetches import DEBUGGING_CONSUMER, NOTHING, fetch_replicas
from kserver.errors import ErrorCode, KafkaError
from kserver.model import TopicPartition
from kserver.wire.api_key import ApiKey
from kserver.wire.batch import encode_batch
from kserver.wire.versions import reply_to
from tests.support.administering import run
from tests.support.scripted_broker import metadata

BATCH = encode_batch([(5, None, b"v", ())])
FIRST, SECOND, THIRD = (TopicPartition("t", number) for number in range(3))


def answer(request):
    """Of partition 0 a batch, of 1 an error, of 2 nothing at all."""
    reply = reply_to(request)
    new = reply.responses.partitions
    return reply(
        error_code=ErrorCode.none,
        responses=[
            reply.responses(
                topic="t",
                topic_id=UUID(int=1),
                partitions=[
                    new(
                        partition_index=0,
                        error_code=ErrorCode.none,
                        high_watermark=7,
                        log_start_offset=3,
                        records=BATCH,
                    ),
                    new(
                        partition_index=1,
                        error_code=ErrorCode.offset_out_of_range,
                        high_watermark=-1,
                    ),
                    new(partition_index=9, error_code=ErrorCode.none, high_watermark=9),
                ],
            )
        ],
    )


def asked_at(broker_of, version):
    """What the answer became, and the request that broker 1 was sent."""

    async def scenario(admin, *brokers):
        topics = [("t", ErrorCode.none, (0, 1), (0, 1), (0, 1))]
        for broker in brokers:
            broker.on(ApiKey.METADATA, metadata(*brokers, topics=topics))
        brokers[1].on(ApiKey.FETCH, broker_of, (4, version))
        await admin.list_topics()
        found = await fetch_replicas(
            admin.cluster,
            1,
            {FIRST: 5, SECOND: 6, THIRD: 0},
            partition_bytes=100,
            max_wait_ms=250,
            response_ms=1000,
        )
        (request,) = brokers[1].asked(ApiKey.FETCH)
        return found, request

    return run(scenario, brokers=2)


@pytest.mark.parametrize("version", [11, 12, 14, 15, 17])
def test_a_replica_that_does_not_lead_is_asked_as_a_debugging_consumer(version):
    found, request = asked_at(answer, version)
    assert request.__version__ == version
    who = request.replica_state if version >= 15 else request
    assert who.replica_id == DEBUGGING_CONSUMER == -2
    assert (request.session_id, request.session_epoch, request.min_bytes) == (0, -1, 1)
    assert request.max_wait.total_seconds() == 0.25
    (topic,) = request.topics
    assert (topic.topic if version < 13 else topic.topic_id) in ("t", UUID(int=1))
    assert [(p.fetch_offset, p.partition_max_bytes) for p in topic.partitions] == [
        (5, 100),
        (6, 100),
        (0, 100),
    ]
    assert found.keys() == {FIRST, SECOND, THIRD}
    assert found[FIRST] == (BATCH, 7, 3, None)
    assert found[SECOND].error.code is ErrorCode.offset_out_of_range
    assert (found[SECOND].records, found[SECOND].high_watermark) == (b"", -1)
    assert found[THIRD] == NOTHING


def test_a_broker_that_answers_only_for_what_it_leads_is_refused():
    with pytest.raises(KafkaError) as refused:
        asked_at(answer, 10)
    assert refused.value.code is ErrorCode.unsupported_version


def test_what_a_broker_refuses_as_a_whole_is_raised():
    with pytest.raises(KafkaError) as refused:
        asked_at(
            lambda request: reply_to(request)(error_code=ErrorCode.unknown_topic_id), version=17
        )
    assert refused.value.code is ErrorCode.unknown_topic_id
