import uuid

from hypothesis import given
from hypothesis import strategies as st

from kserver.group.events import (
    DECODERS,
    ClassicGroupMetadata,
    GroupDeleted,
    MemberMetadata,
    OffsetCommitted,
    OffsetDeleted,
    read_commit,
)
from kserver.group.records import GROUP_METADATA, OFFSET_COMMIT, RECORDS

INTS, LONGS = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
BYTES = st.binary(max_size=20)
MEMBERS = st.builds(
    MemberMetadata, TEXTS, st.none() | TEXTS, TEXTS, TEXTS, st.integers(0, 9), INTS, BYTES, BYTES
)
GROUPS = st.builds(
    ClassicGroupMetadata,
    TEXTS,
    TEXTS,
    INTS,
    st.none() | TEXTS,
    st.none() | TEXTS,
    LONGS,
    st.lists(MEMBERS, max_size=3).map(tuple),
)
COMMITS = st.builds(
    OffsetCommitted, TEXTS, TEXTS, INTS, LONGS, INTS, TEXTS, LONGS, st.just(-1), st.uuids()
)


def decoded(key, value):
    kind, fields = RECORDS.decode_key(key)
    return DECODERS[kind](fields, None if value is None else RECORDS.decode_value(kind, value)[1])


@given(
    GROUPS | COMMITS | st.builds(GroupDeleted, TEXTS) | st.builds(OffsetDeleted, TEXTS, TEXTS, INTS)
)
def test_an_event_is_again_what_it_was_before_it_became_a_record(event):
    assert decoded(*event.encode()) == event


@given(COMMITS)
def test_a_commit_has_the_bytes_that_its_schema_gives_it(event):
    key = {"group": event.group_id, "topic": event.topic, "partition": event.partition}
    value = {
        "offset": event.offset,
        "leaderEpoch": event.leader_epoch,
        "metadata": event.metadata,
        "commitTimestamp": event.committed_ms,
        "topicId": event.topic_id,
    }
    for one in (event, event._replace(topic_id=uuid.UUID(int=0))):
        value["topicId"] = one.topic_id
        assert one.encode() == (
            RECORDS.encode_key(OFFSET_COMMIT, key),
            RECORDS.encode_value(OFFSET_COMMIT, 4, value),
        )
    deleted = OffsetDeleted(event.group_id, event.topic, event.partition)
    assert deleted.encode() == (RECORDS.encode_key(OFFSET_COMMIT, key), None)


def test_records_are_byte_for_byte_those_of_kafka_4_3():
    """As its coordinator wrote them."""
    topic_id = uuid.UUID("12687fdb-c117-4061-bbb6-b252c15db50f")
    commit = OffsetCommitted("g", "a1", 0, 5, -1, "m", 1795306089868, -1, topic_id)
    assert commit.encode()[1] == bytes.fromhex(
        "00040000000000000005ffffffff026d000001a20094ed8c01001012687fdbc1174061bbb6b252c15db50f"
    )
    expiring = commit._replace(committed_ms=1795306089963, expires_ms=1795306094963)
    assert expiring.encode()[1] == bytes.fromhex(
        "0001000000000000000500016d000001a20094edeb000001a200950173"
    )
    empty = ClassicGroupMetadata("gj9", "consumer", 2, None, None, 1795306090324, ())
    assert empty.encode()[1] == bytes.fromhex(
        "00030008636f6e73756d657200000002ffffffff000001a20094ef5400000000"
    )


def test_what_old_brokers_wrote_is_read():
    old = RECORDS.encode_value(
        OFFSET_COMMIT, 0, {"offset": 7, "metadata": "m", "commitTimestamp": 3}
    )
    key = RECORDS.encode_key(OFFSET_COMMIT, {"group": "g", "topic": "t", "partition": 1})
    assert decoded(key, old) == OffsetCommitted("g", "t", 1, 7, -1, "m", 3)
    member = {
        "memberId": "m",
        "clientId": "c",
        "clientHost": "/h",
        "sessionTimeout": 10,
        "subscription": b"s",
        "assignment": b"a",
    }
    group = {
        "protocolType": "consumer",
        "generation": 3,
        "protocol": "range",
        "leader": "m",
        "members": [member],
    }
    value = RECORDS.encode_value(GROUP_METADATA, 0, group)
    kept = decoded(RECORDS.encode_key(GROUP_METADATA, {"group": "g"}), value)
    assert kept.members[0].rebalance_ms == 10, "there was one timeout for both"
    assert kept.since_ms == -1


@given(COMMITS)
def test_a_commit_is_read_by_hand_as_by_its_schema(event):
    for one in (event, event._replace(topic_id=uuid.UUID(int=0))):
        key, value = one.encode()
        if len(one.metadata.encode()) < 127:
            assert read_commit(key, value) == decoded(key, value) == one
        assert read_commit(key, None) == decoded(key, None)


@given(COMMITS, st.data())
def test_a_record_that_is_no_commit_or_broken_is_not_read_by_hand(event, data):
    whole = b"".join(event.encode())
    cut = len(event.encode()[0])
    at = data.draw(st.integers(0, len(whole) - 1))
    broken = bytearray(whole)
    broken[at] ^= data.draw(st.integers(1, 255))
    size = data.draw(st.integers(cut, len(whole)))
    key, value = bytes(broken[:cut]), bytes(broken[cut:size])
    found = read_commit(key, value)
    if found is not None:
        assert found == decoded(key, value)
