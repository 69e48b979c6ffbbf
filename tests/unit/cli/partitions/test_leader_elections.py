"""What came of elections, in Kafka's words, and what one would do."""

import asyncio

import pytest

from kcli.client.admin.descriptions import (
    ClusterDescription,
    PartitionDescription,
    TopicDescription,
)
from kcli.client.cluster import Node
from kcli.client.errors import ClusterUnreachable
from kcli.command.options import Refused
from kcli.partitions.leader_elections import (
    ElectionWords,
    expected_outcomes,
    print_outcomes,
    print_refusal,
)
from kserver.errors import ErrorCode, KafkaError
from kserver.model import ElectionType, TopicPartition

WORDS = ElectionWords("leader election (PREFERRED)", "Valid replica already elected", "replica(s)")
NOT_NEEDED = KafkaError(ErrorCode.election_not_needed)


def of(topic, number):
    return TopicPartition(topic, number)


def test_outcomes_are_told_in_kafkas_words_and_by_name(capsys):
    results = {
        of("b", 10): None,
        of("b", 2): None,
        of("a", 1): NOT_NEEDED,
        of("c", 0): KafkaError(ErrorCode.unknown_topic_or_partition, "No such topic as c"),
        of("c", 1): KafkaError(ErrorCode.preferred_leader_not_available),
    }
    with pytest.raises(Refused, match=r"^2 replica\(s\) could not be elected$"):
        print_outcomes(results, WORDS)
    failed = "Error completing leader election (PREFERRED) for partition: "
    errors = "org.apache.kafka.common.errors."
    assert capsys.readouterr().out.splitlines() == [
        "Successfully completed leader election (PREFERRED) for partitions b-2, b-10",
        "Valid replica already elected for partitions a-1",
        f"{failed}c-0: {errors}UnknownTopicOrPartitionException: No such topic as c",
        f"{failed}c-1: {errors}PreferredLeaderNotAvailableException: "
        "The preferred leader was not available.",
    ]


def test_of_nothing_nothing_is_told(capsys):
    assert print_outcomes({}, WORDS) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ClusterUnreachable("electLeaders"), "Timeout waiting for election results\n"),
        (
            KafkaError(ErrorCode.cluster_authorization_failed),
            "Not authorized to perform leader election\n",
        ),
        (KafkaError(ErrorCode.unsupported_version), ""),
        (Refused("no"), ""),
    ],
)
def test_why_there_was_no_election_is_told(error, told, capsys):
    print_refusal(error)
    assert capsys.readouterr().out == told


class Described:
    """A cluster as it is told: brokers 1 and 2 of 1, 2, 3 are there."""

    partitions = (
        PartitionDescription(0, 1, (1, 2, 3), (1, 2)),
        PartitionDescription(1, 2, (1, 2, 3), (1, 2)),
        PartitionDescription(2, 1, (3, 1), (1,)),
        PartitionDescription(3, 1, (2, 1), (1,)),
        PartitionDescription(4, None, (3, 2), (3,)),
        PartitionDescription(5, None, (3,), (3,)),
    )

    async def describe_cluster(self):
        return ClusterDescription("c", 1, [Node(1, "h", 1), Node(2, "h", 2)])

    async def list_topics(self):
        return [TopicDescription("t", None, False, self.partitions)]

    async def describe_topics(self, names):
        unknown = KafkaError(ErrorCode.unknown_topic_or_partition)
        (known,) = await self.list_topics()
        return {name: known if name == "t" else unknown for name in names}


def look(election, wanted=None):
    steps, refusals = asyncio.run(expected_outcomes(Described(), election, wanted))
    return steps, {partition: error.code for partition, error in refusals.items()}


def test_a_preferred_election_is_foreseen():
    unavailable = ErrorCode.preferred_leader_not_available
    steps, refusals = look(ElectionType.PREFERRED)
    assert steps == {of("t", 1): "make 1 the leader of t-1 in place of 2"}
    assert refusals == {of("t", number): unavailable for number in (2, 3, 4, 5)}


def test_an_unclean_election_is_foreseen_and_what_it_loses():
    steps, refusals = look(ElectionType.UNCLEAN)
    assert steps == {of("t", 4): "make 2 the leader of t-4 and lose what only others have"}
    assert refusals == {of("t", 5): ErrorCode.eligible_leaders_not_available}


def test_what_does_not_exist_is_foreseen_to_be_refused():
    steps, refusals = look(ElectionType.PREFERRED, [of("u", 0), of("t", 9), of("t", 0)])
    assert steps == {}
    unknown = ErrorCode.unknown_topic_or_partition
    assert refusals == {of("u", 0): unknown, of("t", 9): unknown}
