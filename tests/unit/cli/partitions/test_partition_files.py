"""Files that name partitions: what is taken, and what is said of the rest."""

import json

import pytest

from kcli.command.options import Refused
from kcli.partitions.partition_files import PartitionFileWords, read_partitions
from kserver.model import TopicPartition

WORDS = PartitionFileWords(
    "Replica election data", 'is missing "partitions" field', list_format="[{}]", separator=", "
)


@pytest.fixture
def read(tmp_path):
    def read(text):
        (tmp_path / "f").write_text(text if isinstance(text, str) else json.dumps(text))
        return read_partitions(str(tmp_path / "f"), WORDS)

    return read


def test_partitions_are_read_in_their_order(read):
    named = [{"topic": "b", "partition": 2}, {"topic": "a", "partition": 0, "more": 1}]
    assert read({"partitions": named}) == [TopicPartition("b", 2), TopicPartition("a", 0)]
    assert read({"partitions": []}) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "Replica election data is empty: "),
        ("[", "Replica election data is empty: "),
        ("[]", 'Replica election data is missing "partitions" field'),
        ({"version": 1}, 'Replica election data is missing "partitions" field'),
        ({"partitions": {}}, "the partitions field is not a list"),
        ({"partitions": [{"topic": "t"}]}, 'entry 0 of the partitions field .* {"topic": "t"}'),
        ({"partitions": [{"topic": "t", "partition": True}]}, "entry 0"),
        ({"partitions": [{"topic": "t", "partition": 1 << 31}]}, "entry 0"),
        ({"partitions": [{"topic": 1, "partition": 1}]}, "entry 0"),
        (
            {"partitions": [{"topic": "t", "partition": 1}] * 2},
            r"Replica election data contains duplicate partitions: \[t-1\]",
        ),
    ],
)
def test_what_is_wrong_is_told(read, text, told):
    with pytest.raises(Refused, match=told):
        read(text)


def test_a_byte_order_mark_is_skipped(read):
    text = json.dumps({"partitions": [{"topic": "t", "partition": 0}]})
    assert read(f"\ufeff{text}") == read(text)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(Refused, match=r"Unable to read file .*nowhere: No such file"):
        read_partitions(str(tmp_path / "nowhere"), WORDS)


def test_what_is_no_text_is_no_json(tmp_path):
    (tmp_path / "f").write_bytes(b"\xff")
    with pytest.raises(Refused, match="Replica election data is empty"):
        read_partitions(str(tmp_path / "f"), WORDS)
