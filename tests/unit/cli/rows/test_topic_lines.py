"""Topics as lines: a heading, a line for each partition, and the filters between."""

from uuid import UUID

import pytest

from kcli.client.admin.admin import ConfigEntry, ConfigSource, Reassignment, TopicDescription
from kcli.client.admin.descriptions import PartitionDescription
from kcli.rows import topic_lines

ID = UUID(bytes=bytes(range(16)))


def entry(name, value, source=ConfigSource.DEFAULT_CONFIG):
    return ConfigEntry(name, value, source, False, False)


def view(partitions, entries=(), moves=None, live=(1, 2, 3), id=ID, reports=()):
    topic = TopicDescription("foo", id, False, tuple(partitions))
    return topic_lines.View(topic, entries, moves or {}, live, reports)


def lines(*args, overrides_only=False, **filters):
    return list(topic_lines.lines(view(*args, **filters), overrides_only))


def test_a_topic_is_a_heading_and_a_line_for_each_partition():
    shown = lines(
        [
            PartitionDescription(0, 1, (1, 2, 3), (1, 2, 3), (), ()),
            PartitionDescription(1, None, (2, 3, 1), (), None, None),
        ],
        [
            entry("retention.ms", "1000", ConfigSource.DYNAMIC_TOPIC_CONFIG),
            entry("segment.ms", "5"),
            entry("segment.bytes", "1073741824", ConfigSource.STATIC_BROKER_CONFIG),
        ],
    )
    assert shown == [
        "Topic: foo\tTopicId: AAECAwQFBgcICQoLDA0ODw\tPartitionCount: 2\tReplicationFactor: 3"
        "\tConfigs: retention.ms=1000,segment.bytes=1073741824",
        "\tTopic: foo\tPartition: 0\tLeader: 1\tReplicas: 1,2,3\tIsr: 1,2,3\tElr: \tLastKnownElr: ",
        "\tTopic: foo\tPartition: 1\tLeader: none\tReplicas: 2,3,1\tIsr: \tElr: N/A"
        "\tLastKnownElr: N/A",
    ]


def test_a_topic_without_an_id_shows_none():
    shown = lines([PartitionDescription(0, 1, (1,), (1,))], id=None)
    assert shown[0] == "Topic: foo\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: "


def test_a_reassignment_shows_its_replicas_and_leaves_added_ones_out_of_the_factor():
    move = Reassignment((1, 2, 3), (3,), (1,))
    partition = PartitionDescription(0, 1, (1, 2, 3), (1, 2), (), ())
    heading, line = lines([partition], moves={("foo", 0): move})
    assert "\tReplicationFactor: 2\t" in heading
    assert "\tIsr: 1,2\tAdding Replicas: 3\tRemoving Replicas: 1\tElr: " in line
    assert (
        lines([partition], moves={("foo", 0): move}, reports=["under-replicated-partitions"]) == []
    )


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        ("under-replicated-partitions", [1, 2, 3]),
        ("under-min-isr-partitions", [2, 3]),
        ("at-min-isr-partitions", [1]),
        ("unavailable-partitions", [2, 4]),
    ],
)
def test_a_filter_shows_only_its_partitions(report, expected):
    partitions = [
        PartitionDescription(0, 1, (1, 2, 3), (1, 2, 3)),
        PartitionDescription(1, 1, (1, 2, 3), (1, 2)),
        PartitionDescription(2, None, (1, 2, 3), (1,)),
        PartitionDescription(3, 1, (1, 2, 3), (1,)),
        PartitionDescription(4, 9, (1, 2, 3), (1, 2, 3)),
    ]
    shown = lines(partitions, [entry("min.insync.replicas", "2")], reports=[report])
    assert [int(line.split("Partition: ")[1][0]) for line in shown] == expected
    assert all(line.startswith("\tTopic: foo\t") for line in shown)


def test_only_headings_of_topics_with_overrides_are_shown():
    partitions = [PartitionDescription(0, 1, (1,), (1,))]
    own = entry("retention.ms", "1", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert len(lines(partitions, [own], overrides_only=True)) == 1
    assert lines(partitions, [entry("retention.ms", "1")], overrides_only=True) == []
