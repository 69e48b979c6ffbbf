"""The bytes that members of a group exchange: every version's, cut short, and other libraries'."""

from __future__ import annotations

import importlib
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from kcli.client.group.group_protocol import (
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from kserver.errors import ProtocolError
from kserver.model import TopicPartition

NAMES = st.text("abcü-", min_size=1, max_size=5)
PARTITIONS = st.lists(
    st.builds(TopicPartition, NAMES, st.integers(0, 9)), unique=True, max_size=6
).map(sorted)
SUBSCRIPTIONS = st.builds(
    Subscription,
    topics=st.lists(NAMES, max_size=4).map(tuple),
    owned=PARTITIONS.map(tuple),
    generation=st.integers(-1, 9),
    rack=st.none() | NAMES,
    user_data=st.none() | st.binary(max_size=9),
)


def kafkas(name: str, version: int):
    """The message as Kafka's schema has it."""
    module = importlib.import_module(f"kio.schema.{name}.v{version}.data")
    return module, getattr(module, name.title().replace("_", ""))


@given(SUBSCRIPTIONS)
def test_a_subscription_is_as_kafkas_schema_says(subscription):
    _, entity = kafkas("consumer_protocol_subscription", 3)
    data = write_subscription(subscription)
    assert data[:2] == b"\0\3"
    theirs, _ = entity_reader(entity)(data[2:], 0)
    assert theirs.topics == subscription.topics
    assert theirs.user_data == subscription.user_data
    assert (theirs.generation_id, theirs.rack_id) == (subscription.generation, subscription.rack)
    owned = [TopicPartition(t.topic, p) for t in theirs.owned_partitions for p in t.partitions]
    assert tuple(owned) == subscription.owned


@pytest.mark.parametrize("version", range(4))
def test_a_subscription_of_every_version_is_read(version):
    module, entity = kafkas("consumer_protocol_subscription", version)
    given = {"topics": ("a", "b"), "user_data": b"x"}
    if version >= 1:
        given["owned_partitions"] = (module.TopicPartition(topic="a", partitions=(1, 2)),)
    if version >= 2:
        given["generation_id"] = 7
    if version >= 3:
        given["rack_id"] = "r"
    out = io.BytesIO()
    entity_writer(entity)(out, entity(**given))
    found = read_subscription(version.to_bytes(2) + out.getvalue(), "me")
    assert found == Subscription(
        ("a", "b"),
        (TopicPartition("a", 1), TopicPartition("a", 2)) if version >= 1 else (),
        7 if version >= 2 else -1,
        "r" if version >= 3 else None,
        b"x",
        "me",
    )


@given(SUBSCRIPTIONS)
def test_a_newer_version_is_read_as_the_newest_known(subscription):
    data = b"\0\x09" + write_subscription(subscription)[2:] + b"more"
    assert read_subscription(data) == subscription


@given(PARTITIONS, st.none() | st.binary(max_size=5))
def test_an_assignment_is_as_kafkas_schema_says(partitions, user_data):
    _, entity = kafkas("consumer_protocol_assignment", 3)
    data = write_assignment(partitions, user_data)
    theirs, _ = entity_reader(entity)(data[2:], 0)
    found = [TopicPartition(t.topic, p) for t in theirs.assigned_partitions for p in t.partitions]
    assert (found, theirs.user_data) == (partitions, user_data)
    assert list(read_assignment(data)) == partitions


@given(SUBSCRIPTIONS, st.data())
def test_bytes_that_are_cut_short_are_refused(subscription, data):
    whole = write_subscription(subscription)
    size = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(ProtocolError):
        read_subscription(whole[:size])


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"\0\0\x7f\xff\xff\xff", b"\0\0\xff\xff\xff\xff", b"\0\0\0\0\0\1\0\1\xff"]
)
def test_bytes_that_announce_what_they_do_not_hold_are_refused(data):
    with pytest.raises(ProtocolError):
        read_subscription(data)
    with pytest.raises(ProtocolError):
        read_assignment(data)
