"""The image of the cluster, as the controller's messages change it."""

from dataclasses import replace
from uuid import UUID

from kserver.metadata import MAX_DELETED_TOPICS, ClusterMetadata
from kserver.wire.control import (
    DURING_DELETION,
    FULL,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)


def told(name, *partitions):
    """A topic's state in which broker 1 leads each of them."""
    states = tuple(UpdateMetadataPartitionState(p, 1, 1, 0, (1,), 0, (1,)) for p in partitions)
    return UpdateMetadataTopicState(name, UUID(int=ord(name)), states)


def updated(image, *topics):
    return image.updated(UpdateMetadataRequest(1, 1, topics, (), 1), {})


def test_a_topic_may_be_named_more_than_once_in_a_message():
    image = updated(ClusterMetadata("c"), told("t", 0), told("u", 0), told("t", 1))
    assert [p.leader for p in image.topics["t"].partitions] == [1, 1]


def test_partitions_that_are_not_named_stay_as_they_are():
    image = updated(updated(ClusterMetadata("c"), told("t", 0, 1)), told("t", 2))
    assert [p.leader for p in image.topics["t"].partitions] == [1, 1, 1]


def test_only_what_the_controller_says_is_deleted_was_deleted():
    image = updated(ClusterMetadata("c"), told("t", 0), told("u", 0), told("v", 0))
    full = UpdateMetadataRequest(1, 1, (told("u", 0),), (), 1, type=FULL)
    unnamed = image.updated(full, {})
    assert (set(unnamed.topics), set(unnamed.deleted_topics)) == ({"u"}, set())
    state = replace(told("t", 0).partition_states[0], leader=DURING_DELETION)
    deleted = updated(image, replace(told("t", 0), partition_states=(state,)))
    assert (set(deleted.topics), set(deleted.deleted_topics)) == ({"u", "v"}, {"t"})
    assert not updated(deleted, told("t", 0)).deleted_topics


def test_only_so_many_deleted_topics_are_remembered():
    names = [f"t-{n}" for n in range(MAX_DELETED_TOPICS + 1)]
    image = ClusterMetadata("c").with_topics({}, names)
    assert list(image.deleted_topics) == names[1:]
