import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kserver.group import consumer_events as events
from kserver.group.consumer_events import TopicIdPartition
from kserver.group.records import RECORDS

texts = st.text(st.characters(codec="utf-8"), max_size=8)
numbers = st.integers(-1, 2**31 - 1)
milliseconds = st.integers(0, 2**63 - 1)
partitions = st.builds(TopicIdPartition, st.uuids(), st.integers(0, 2**31 - 1))
epochs = st.dictionaries(partitions, numbers, max_size=4)
classic = st.builds(
    events.ClassicProtocol,
    numbers,
    st.lists(st.tuples(texts, st.binary(max_size=8)), min_size=1, max_size=3).map(tuple),
)
subscriptions = st.builds(
    events.MemberSubscription,
    instance_id=st.none() | texts,
    rack_id=st.none() | texts,
    client_id=texts,
    client_host=texts,
    topics=st.lists(texts, max_size=3).map(tuple),
    pattern=st.none() | texts,
    rebalance_timeout_ms=numbers,
    assignor=st.none() | texts,
    classic=st.none() | classic,
)
assignments = st.builds(
    events.Assignment,
    epoch=st.integers(-2, 2**31 - 1),
    previous_epoch=numbers,
    state=st.sampled_from(events.MemberState),
    assigned=epochs,
    revoking=epochs,
)
every_event = st.one_of(
    st.builds(events.ConsumerGroupMetadata, texts, st.none())
    | st.builds(events.ConsumerGroupMetadata, texts, numbers, st.integers(-(2**63), 2**63 - 1)),
    st.builds(events.ConsumerGroupPartitionMetadata, texts, st.just(False)),
    st.builds(events.ConsumerGroupMemberMetadata, texts, texts, st.none() | subscriptions),
    st.builds(events.ConsumerGroupTargetAssignmentMetadata, texts, st.none())
    | st.builds(events.ConsumerGroupTargetAssignmentMetadata, texts, numbers, milliseconds),
    st.builds(
        events.ConsumerGroupTargetAssignmentMember,
        texts,
        texts,
        st.none() | st.frozensets(partitions, max_size=4),
    ),
    st.builds(events.ConsumerGroupCurrentMemberAssignment, texts, texts, st.none() | assignments),
    st.builds(events.ConsumerGroupRegularExpression, texts, texts, st.none())
    | st.builds(
        events.ConsumerGroupRegularExpression,
        texts,
        texts,
        st.frozensets(texts, max_size=3),
        milliseconds,
    ),
)


def decoded(key, value):
    kind, fields = RECORDS.decode_key(key)
    values = None if value is None else RECORDS.decode_value(kind, value)[1]
    return events.DECODERS[kind](fields, values)


@given(every_event)
def test_what_is_kept_of_an_event_is_all_of_it(event):
    assert decoded(*event.encode()) == event


def test_what_an_older_broker_knew_of_topics_is_read():
    key, _ = events.ConsumerGroupPartitionMetadata("g", False).encode()
    value = RECORDS.encode_value(4, 0, {"topics": []})
    assert decoded(key, value) == events.ConsumerGroupPartitionMetadata("g", True)


@pytest.mark.parametrize("written", [None, [1]])
def test_partitions_without_epochs_of_their_own_have_the_member_s(written):
    topic = uuid.UUID(int=1)
    owned = {"topicId": topic, "partitions": [0, 1], "assignmentEpochs": written}
    key, _ = events.ConsumerGroupCurrentMemberAssignment("g", "m", None).encode()
    value = RECORDS.encode_value(
        8,
        0,
        {
            "memberEpoch": 7,
            "previousMemberEpoch": 6,
            "state": 1,
            "assignedPartitions": [owned],
            "partitionsPendingRevocation": [],
        },
    )
    at = decoded(key, value).assignment
    assert at.assigned == {TopicIdPartition(topic, 0): 7, TopicIdPartition(topic, 1): 7}


def test_a_state_of_a_newer_broker_is_read_as_unknown():
    key, _ = events.ConsumerGroupCurrentMemberAssignment("g", "m", None).encode()
    value = RECORDS.encode_value(8, 0, {"memberEpoch": 1, "previousMemberEpoch": 0, "state": 99})
    assert decoded(key, value).assignment.state is events.MemberState.UNKNOWN
