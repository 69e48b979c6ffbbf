"""The image of the cluster, as the controller's messages change it."""

from uuid import UUID

from kserver.metadata import ClusterMetadata
from kserver.wire.control import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)


def told(name, *partitions):
    """A topic's state in which broker 1 leads each of them."""
    states = tuple(UpdateMetadataPartitionState(p, 1, 1, 0, (1,), 0, (1,)) for p in partitions)
    return UpdateMetadataTopicState(name, UUID(int=7), states)


def updated(image, *topics):
    return image.updated(UpdateMetadataRequest(1, 1, topics, (), 1), {})


def test_a_topic_may_be_named_more_than_once_in_a_message():
    image = updated(ClusterMetadata("c"), told("t", 0), told("u", 0), told("t", 1))
    assert [p.leader for p in image.topics["t"].partitions] == [1, 1]


def test_partitions_that_are_not_named_stay_as_they_are():
    image = updated(updated(ClusterMetadata("c"), told("t", 0, 1)), told("t", 2))
    assert [p.leader for p in image.topics["t"].partitions] == [1, 1, 1]
