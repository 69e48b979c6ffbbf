"""Files that name partitions: {"partitions": [{"topic": "foo", "partition": 1}, ...]}."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, NamedTuple

from kcli.command import json_file
from kcli.command.options import Refused
from kserver.model import TopicPartition

INT_MAX = (1 << 31) - 1


class PartitionFileWords(NamedTuple):
    """A tool's name for the file, its error for one without partitions, and the form of its lists
    of partitions.
    """

    name: str
    missing: str
    list_format: str
    separator: str


def read_partitions(path: str, words: PartitionFileWords) -> list[TopicPartition]:
    """Return the partitions in the order of the file. Raises Refused if it cannot be read or is
    invalid.
    """
    document = json_file.read(path, f"{words.name} is empty")
    if not isinstance(document, dict) or "partitions" not in document:
        raise Refused(f"{words.name} {words.missing}")
    if not isinstance(document["partitions"], list):
        raise Refused(f"{path}: the partitions field is not a list")
    partitions = [
        _entry(path, number, entry) for number, entry in enumerate(document["partitions"])
    ]
    twice = [str(partition) for partition, times in Counter(partitions).items() if times > 1]
    if twice:
        listed = words.list_format.format(words.separator.join(twice))
        raise Refused(f"{words.name} contains duplicate partitions: {listed}")
    return partitions


def _entry(path: str, number: int, entry: Any) -> TopicPartition:
    match entry:
        case {"topic": str(topic), "partition": int(partition)} if (
            not isinstance(partition, bool) and abs(partition) <= INT_MAX
        ):
            return TopicPartition(topic, partition)
    raise Refused(
        f"{path}: entry {number} of the partitions field is invalid: "
        f'{json.dumps(entry)}; it needs "topic", a string, and "partition", an integer'
    )
