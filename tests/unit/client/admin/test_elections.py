"""Elections: who is asked, about what, and what becomes of the answer."""

from __future__ import annotations

import pytest

from kserver.errors import ErrorCode, KafkaError
from kserver.model import ElectionType, TopicPartition
from kserver.wire.api_key import ApiKey
from kserver.wire.versions import reply_to
from tests.support.administering import run
from tests.support.scripted_broker import metadata

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def answering(codes, error_code=ErrorCode.none):
    """A broker that says this of these partitions, of all that it is asked for."""

    def answer(request):
        reply = reply_to(request)
        asked = request.topic_partitions
        named = None if asked is None else {(t.topic, p) for t in asked for p in t.partitions}
        told = {key: code for key, code in codes.items() if named is None or key in named}
        results = [
            reply.replica_election_results(
                topic=topic,
                partition_result=[
                    reply.replica_election_results.partition_result(
                        partition_id=number, error_code=code, error_message=None
                    )
                ],
            )
            for (topic, number), code in told.items()
        ]
        return reply(error_code=error_code, replica_election_results=results)

    return answer


def test_the_controller_is_asked_and_each_partition_has_its_outcome():
    async def scenario(admin, *brokers):
        for broker in brokers:
            broker.on(ApiKey.METADATA, metadata(*brokers, controller=1))
        codes = {FIRST: ErrorCode.none, SECOND: ErrorCode.preferred_leader_not_available}
        brokers[1].on(ApiKey.ELECT_LEADERS, answering(codes))
        missing = TopicPartition("u", 3)
        found = await admin.elect_leaders(ElectionType.PREFERRED, [FIRST, SECOND, FIRST, missing])
        assert found[FIRST] is None
        assert found[SECOND].code is ErrorCode.preferred_leader_not_available
        assert found[missing].code is ErrorCode.unknown_server_error  # it was left out
        (request,) = brokers[1].asked(ApiKey.ELECT_LEADERS)
        assert request.election_type == 0
        asked = {topic.topic: topic.partitions for topic in request.topic_partitions}
        assert asked == {"t": (0, 1), "u": (3,)}
        assert request.timeout.total_seconds() == pytest.approx(10, abs=1)

    run(scenario, brokers=2)


def test_of_all_partitions_those_are_told_that_the_broker_tells_of():
    async def scenario(admin, broker):
        broker.on(ApiKey.ELECT_LEADERS, answering({SECOND: ErrorCode.none}))
        assert await admin.elect_leaders(ElectionType.UNCLEAN, None) == {SECOND: None}
        (request,) = broker.asked(ApiKey.ELECT_LEADERS)
        assert (request.election_type, request.topic_partitions) == (1, None)

    run(scenario)


def test_no_partitions_are_not_all():
    async def scenario(admin, broker):
        broker.on(ApiKey.ELECT_LEADERS, answering({SECOND: ErrorCode.none}))
        assert await admin.elect_leaders(ElectionType.PREFERRED, []) == {}
        assert broker.asked(ApiKey.ELECT_LEADERS) == []

    run(scenario)


@pytest.mark.parametrize("version", [0, 2])
def test_what_a_former_controller_refuses_the_next_one_is_asked(version):
    async def scenario(admin, former, following):
        refusal = {FIRST: ErrorCode.not_controller, SECOND: ErrorCode.none}

        def moved(request):
            for broker in (former, following):
                broker.on(ApiKey.METADATA, metadata(former, following, controller=1))
            if version == 0:
                return answering(refusal)(request)
            return answering({}, ErrorCode.not_controller)(request)

        former.on(ApiKey.ELECT_LEADERS, moved, (version, version))
        codes = {FIRST: ErrorCode.none, SECOND: ErrorCode.election_not_needed}
        following.on(ApiKey.ELECT_LEADERS, answering(codes), (version, version))
        found = await admin.elect_leaders(ElectionType.PREFERRED, [FIRST, SECOND])
        assert found[FIRST] is None
        if version == 0:  # what the former one did is done
            assert found[SECOND] is None
            (request,) = following.asked(ApiKey.ELECT_LEADERS)
            assert request.topic_partitions[0].partitions == (0,)
        else:
            assert found[SECOND].code is ErrorCode.election_not_needed

    run(scenario, brokers=2)


def test_what_is_refused_as_a_whole_is_raised():
    async def scenario(admin, broker):
        broker.on(ApiKey.ELECT_LEADERS, answering({}, ErrorCode.cluster_authorization_failed))
        with pytest.raises(KafkaError) as refused:
            await admin.elect_leaders(ElectionType.PREFERRED, None)
        assert refused.value.code is ErrorCode.cluster_authorization_failed

    run(scenario)


def test_a_broker_that_only_elects_preferred_leaders_is_not_asked_for_another():
    async def scenario(admin, broker):
        broker.on(ApiKey.ELECT_LEADERS, answering({FIRST: ErrorCode.none}), (0, 0))
        with pytest.raises(KafkaError, match="preferred leaders only") as refused:
            await admin.elect_leaders(ElectionType.UNCLEAN, [FIRST])
        assert refused.value.code is ErrorCode.unsupported_version
        assert await admin.elect_leaders(ElectionType.PREFERRED, [FIRST]) == {FIRST: None}

    run(scenario)
