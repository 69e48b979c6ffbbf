import random
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kserver.errors import StorageError
from kserver.log import checkpoint
from kserver.log.checkpoint import MetaProperties
from kserver.log.leader_epochs import EpochStart
from kserver.model import TopicPartition
from tests.support.clock import StillClock
from tests.support.disk import SimDisk

APACHE = Path(__file__).parents[2] / "data/log/apache-4.3.1"

naturals = st.integers(0, (1 << 63) - 1)
topics = st.text("abcXYZ019._-", min_size=1, max_size=20)
offsets = st.dictionaries(
    st.builds(TopicPartition, topics, st.integers(0, 1 << 31)), naturals, max_size=5
)


@pytest.fixture
def disk():
    disk = SimDisk(random.Random(1), StillClock())
    disk.make_directories("/log")
    return disk


@given(offsets)
def test_offsets_are_read_as_they_were_written(offsets):
    data = checkpoint.encode_offsets(offsets)
    assert checkpoint.decode_offsets(data, "recovery-point-offset-checkpoint") == offsets


@given(st.lists(st.builds(EpochStart, naturals, naturals), max_size=5))
def test_epochs_are_read_as_they_were_written(epochs):
    data = checkpoint.encode_epochs(epochs)
    assert checkpoint.decode_epochs(data, "leader-epoch-checkpoint") == epochs


@given(st.uuids().filter(lambda id: id.int))
def test_a_topic_id_is_read_as_it_was_written(topic_id):
    data = checkpoint.encode_topic_id(topic_id)
    assert checkpoint.decode_topic_id(data, "partition.metadata") == topic_id


@given(
    st.builds(
        MetaProperties,
        st.none() | st.integers(0, 1 << 31),
        st.none() | st.text(min_size=1),
        st.sampled_from([0, 1]),
    )
)
def test_meta_properties_are_read_as_they_were_written(properties):
    data = checkpoint.encode_meta_properties(properties)
    assert checkpoint.decode_meta_properties(data, "meta.properties") == properties


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "recovery-point-offset-checkpoint",
            {
                TopicPartition("aborted", 0): 536,
                TopicPartition("golden", 0): 60687,
                TopicPartition("__transaction_state", 0): 81,
            },
        ),
        ("cleaner-offset-checkpoint", {}),
    ],
)
def test_apaches_offset_checkpoints_are_read(name, expected):
    data = (APACHE / name).read_bytes()
    assert checkpoint.decode_offsets(data, name) == expected
    assert not data or checkpoint.encode_offsets(expected) == data


def test_apaches_leader_epoch_checkpoint_is_read_and_written_again():
    data = (APACHE / "leader-epoch-checkpoint").read_bytes()
    assert checkpoint.decode_epochs(data, "") == [EpochStart(0, 0)]
    assert checkpoint.encode_epochs([EpochStart(0, 0)]) == data


def test_apaches_partition_metadata_is_read_and_written_again():
    data = (APACHE / "partition.metadata").read_bytes()
    topic_id = checkpoint.decode_topic_id(data, "")
    assert str(topic_id) == "646c3b8a-e849-45e4-9734-c23f5847d206"
    assert checkpoint.encode_topic_id(topic_id) == data


def test_apaches_meta_properties_are_read():
    data = (APACHE / "meta.properties").read_bytes()
    expected = MetaProperties(1, "MkU3OEVBNTcwNTJENDM2Qk", version=1)
    assert checkpoint.decode_meta_properties(data, "")._replace(directory_id=None) == expected


def test_meta_properties_of_zookeeper_mode_are_read_and_written():
    text = b"#\n#Sat Nov 21 14:25:36 UTC 2026\ncluster.id=q1Sh-9_ISia_zwGINzRvyQ\n"
    text += b"version=0\nbroker.id=7\n"
    properties = checkpoint.decode_meta_properties(text, "")
    assert properties == MetaProperties(7, "q1Sh-9_ISia_zwGINzRvyQ")
    assert checkpoint.encode_meta_properties(properties).splitlines() == [
        b"version=0",
        b"broker.id=7",
        b"cluster.id=q1Sh-9_ISia_zwGINzRvyQ",
    ]


@pytest.mark.parametrize(
    ("name", "text", "line", "remedy"),
    [
        ("recovery-point-offset-checkpoint", "1\n0\n", 1, "verify every log in this directory"),
        ("recovery-point-offset-checkpoint", "0\nx\n", 2, "verify every log in this directory"),
        (
            "recovery-point-offset-checkpoint",
            "0\n2\na 0 1\n",
            2,
            "verify every log in this directory",
        ),
        (
            "recovery-point-offset-checkpoint",
            "0\n0\na 0 1\n",
            2,
            "verify every log in this directory",
        ),
        ("log-start-offset-checkpoint", "0\n2\na 0 1\nb 0\n", 4, "at its first segment"),
        ("log-start-offset-checkpoint", "0\n2\na 0 1\nb c 0 1\n", 4, "at its first segment"),
        ("replication-offset-checkpoint", "0\n1\na 0 x\n", 3, "high watermarks from the replicas"),
        ("replication-offset-checkpoint", "0\n1\na 0 -1\n", 3, "high watermarks from the replicas"),
        (
            "replication-offset-checkpoint",
            "0\n1\na 0 " + 5000 * "1",
            3,
            "high watermarks from the replicas",
        ),
        ("cleaner-offset-checkpoint", "0\n1\na - 1\n", 3, "let the cleaner restart"),
        ("cleaner-offset-checkpoint", "0\n1\na ² 1\n", 3, "let the cleaner restart"),
    ],
)
def test_a_broken_offset_checkpoint_names_file_line_and_remedy(name, text, line, remedy):
    with pytest.raises(StorageError, match=f"^/log/{name}, line {line}: .*{remedy}"):
        checkpoint.decode_offsets(text.encode(), f"/log/{name}")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b"2\n0\n", 1),
        (b"0\n1\n3\n", 3),
        (b"0\n1\n3 4 5\n", 3),
        (b"0\n2\n3 4\n5 -6\n", 4),
        (b"0\n1\n\xff\xfe\n", 3),
    ],
)
def test_a_broken_epoch_checkpoint_names_file_line_and_remedy(text, line):
    path = "/log/a-0/leader-epoch-checkpoint"
    with pytest.raises(StorageError, match=f"^{path}, line {line}: .*from the batches of the log"):
        checkpoint.decode_epochs(text, path)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("version 0\ntopic_id: ZGw7iuhJReSXNMI_WEfSBg", 1),
        ("version: -1\ntopic_id: ZGw7iuhJReSXNMI_WEfSBg", 1),
        ("version: 0\n", 2),
        ("version: 0\ntopic: ZGw7iuhJReSXNMI_WEfSBg", 2),
        ("version: 0\ntopic_id: ZGw7iuhJReSXNMI_WEfS", 2),
        ("version: 0\ntopic_id: ZGw7iuhJReSX!NMI_WEfSBg", 2),
        ("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", 2),
    ],
)
def test_broken_partition_metadata_names_file_line_and_remedy(text, line):
    path = "/log/a-0/partition.metadata"
    with pytest.raises(StorageError, match=f"^{path}, line {line}: .*cluster's metadata"):
        checkpoint.decode_topic_id(text.encode(), path)


def test_partition_metadata_of_a_later_version_is_read():
    data = b"version: 1\ntopic_id: ZGw7iuhJReSXNMI_WEfSBg\n"
    assert checkpoint.decode_topic_id(data, "") == UUID("646c3b8a-e849-45e4-9734-c23f5847d206")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("version=2\n", 1),
        ("#\nversion=x\n", 2),
        ("version=0\n\nbroker.id=one\n", 3),
        ("version=1\nnode.id=-1\n", 2),
        ("version=0\ncluster.id=\\u00\n", 2),
    ],
)
def test_broken_meta_properties_name_file_line_and_remedy(text, line):
    with pytest.raises(StorageError, match=rf"^/log/meta.properties, line {line}: .*; write this"):
        checkpoint.decode_meta_properties(text.encode(), "/log/meta.properties")


def test_files_that_do_not_exist_yet_read_as_nothing(disk):
    assert checkpoint.read_offsets(disk, "/log/recovery-point-offset-checkpoint") == {}
    assert checkpoint.read_epochs(disk, "/log/leader-epoch-checkpoint") == []
    assert checkpoint.read_topic_id(disk, "/log/partition.metadata") is None
    assert checkpoint.read_meta_properties(disk, "/log/meta.properties") is None


def test_what_was_written_survives_a_power_cut(disk):
    offsets = {TopicPartition("a", 0): 5}
    epochs = [EpochStart(3, 0), EpochStart(4, 9)]
    topic_id = uuid4()
    properties = MetaProperties(1, "c")
    disk.sync_directory("/")
    checkpoint.write_offsets(disk, "/log/o", offsets)
    disk.replace_file("/log/e", checkpoint.encode_epochs(epochs))
    checkpoint.write_topic_id(disk, "/log/t", topic_id)
    checkpoint.write_meta_properties(disk, "/log/m", properties)

    after = disk.crash(keep=0.0)

    assert checkpoint.read_offsets(after, "/log/o") == offsets
    assert checkpoint.read_epochs(after, "/log/e") == epochs
    assert checkpoint.read_topic_id(after, "/log/t") == topic_id
    assert checkpoint.read_meta_properties(after, "/log/m") == properties
