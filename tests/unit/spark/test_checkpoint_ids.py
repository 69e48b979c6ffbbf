"""Ids of topics among the offsets of a checkpoint."""

from __future__ import annotations

import json
from uuid import UUID, uuid4

from hypothesis import given
from hypothesis import strategies as st

from kcli.spark.checkpoint_ids import checkpoint_with_ids, ids_of, recreated
from kcli.spark.options import offsets_of, read_offsets
from kserver.model import TopicPartition

names = st.text("abc._-", min_size=1, max_size=3)
partitions = st.builds(TopicPartition, names, st.integers(0, 3))
ids = st.dictionaries(names, st.uuids().filter(lambda id: id.int))


@given(st.dictionaries(partitions, st.integers(-2, 9)), ids)
def test_offsets_and_ids_come_back_from_json(offsets, of_topics):
    text = json.dumps(checkpoint_with_ids(offsets, of_topics))
    found = json.loads(text)
    assert offsets_of(found) == read_offsets(text, "x") == offsets
    topics = {p.topic for p in offsets}
    assert ids_of(found) == {name: id for name, id in of_topics.items() if name in topics}
    # Spark compares texts.
    backwards = (dict(reversed(one.items())) for one in (offsets, of_topics))
    assert json.dumps(checkpoint_with_ids(*backwards)) == text


def test_an_id_is_a_key_without_partitions_as_kafka_writes_it():
    id = UUID("633f0a0a-6e4b-4e35-b283-41a10f84bc5d")
    found = checkpoint_with_ids({TopicPartition("orders", 0): 23}, {"orders": id})
    assert found == {"orders": {"0": 23}, "orders@Yz8KCm5LTjWyg0GhD4S8XQ": {}}
    assert ids_of({"orders": {"0": 23}, "other": {}, "a@b": {}}) == {}


def test_a_topic_whose_id_differs_was_created_again():
    a, b = uuid4(), uuid4()
    assert recreated({"x": a, "y": b, "old": a}, {"x": b, "y": b, "new": a}) == {"x"}
