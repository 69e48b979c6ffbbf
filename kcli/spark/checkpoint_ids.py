"""The ids of topics in a stream's checkpoint. By them a topic that was deleted and created again is
recognized, whatever its number of records.

    {"orders":{"0":23,"1":42},"orders@Yz8KCm5LTjWyg0GhD4S8XQ":{}}

An id is in a key without partitions: Spark's own Kafka source reads these offsets and finds no
partition there, and no topic has an @ in its name. A checkpoint written by Spark's own source has
no ids.

Pure: values in, values out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from uuid import UUID

from kcli.rows.topic_ids import id_text, topic_id
from kcli.spark.options import checkpoint_of
from kserver.model import Offset, TopicPartition

_KEY = re.compile(r"([^@]+)@([A-Za-z0-9_-]{22})")

Checkpoint = dict[str, dict[str, int]]
TopicIds = dict[str, UUID]


def checkpoint_with_ids(
    offsets: Mapping[TopicPartition, Offset], ids: Mapping[str, UUID]
) -> Checkpoint:
    """Return offsets with the ids of their topics, as far as these are known."""
    checkpoint = checkpoint_of(offsets)
    keys = [f"{topic}@{id_text(ids[topic])}" for topic in checkpoint if topic in ids]
    return checkpoint | {key: {} for key in keys}


def ids_of(checkpoint: Mapping[str, Mapping[str, int]]) -> TopicIds:
    matches = [_KEY.fullmatch(key) for key, partitions in checkpoint.items() if not partitions]
    ids = {match[1]: topic_id(match[2]) for match in matches if match is not None}
    return {topic: id for topic, id in ids.items() if id is not None}


def recreated(before: Mapping[str, UUID], now: Mapping[str, UUID]) -> set[str]:
    """Return the topics whose ids differ; topics without an id on either side do not count."""
    return {topic for topic in before.keys() & now.keys() if before[topic] != now[topic]}
