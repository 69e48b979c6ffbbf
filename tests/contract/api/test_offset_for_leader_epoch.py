"""Test OffsetForLeaderEpoch requests, in every served version, against our broker or Apache's."""

import pytest

from kserver.api import offset_for_leader_epoch as module
from kserver.errors import ErrorCode
from tests.contract.api.calls import batch, produce

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)
CONSUMER = -1


def ask(client, version, topic, *asked, replica_id=CONSUMER):
    """Return the responses to triples of partition, the client's current leader epoch, and the
    requested epoch."""
    partitions = [
        {"partition": p, "current_leader_epoch": current, "leader_epoch": wanted}
        for p, current, wanted in asked
    ]
    topics = [{"topic": topic.name, "partitions": partitions}]
    answer = client.call(KEY, version, replica_id=replica_id, topics=topics)
    return answer.topics[0].partitions


@every_version
def test_the_current_epoch_ends_at_the_end_of_the_log(client, topic, version):
    produce(client, 9, topic, batch(b"a", b"b"))
    for current in (-1, 0):
        (found,) = ask(client, version, topic, (0, current, 0))
        assert (found.error_code, found.partition) == (ErrorCode.none, 0)
        assert (found.leader_epoch, found.end_offset) == (0, 2)


@every_version
def test_an_epoch_that_never_was_has_no_end(client, topic, version):
    produce(client, 9, topic, batch(b"a"))
    (found,) = ask(client, version, topic, (0, -1, 9))
    assert (found.error_code, found.leader_epoch, found.end_offset) == (ErrorCode.none, -1, -1)


@every_version
def test_errors_are_told_partition_by_partition(client, topic, version):
    answers = ask(client, version, topic, (0, 5, 0), (7, -1, 0))
    assert {a.partition: a.error_code for a in answers} == {
        0: ErrorCode.unknown_leader_epoch,
        7: ErrorCode.unknown_topic_or_partition,
    }
    assert all(a.end_offset == -1 for a in answers)


@every_version
def test_who_leaves_its_replica_id_0_is_answered_like_a_client(client, topic, version):
    produce(client, 9, topic, batch(b"a"))
    (found,) = ask(client, version, topic, (0, -1, 0), replica_id=0)
    assert (found.error_code, found.end_offset) == (ErrorCode.none, 1)
