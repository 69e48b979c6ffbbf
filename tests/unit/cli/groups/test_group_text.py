"""What the groups of the integration tests do not show; what they do is compared with Apache's."""

from __future__ import annotations

from kcli.client.cluster import Node
from kcli.client.group.group_descriptions import CLASSIC, CONSUMER, GroupDescription, GroupMember
from kcli.groups.group_text import (
    GroupPosition,
    assignment_words,
    deleted_lines,
    member_lines,
    offset_lines,
    reset_lines,
)
from kserver.model import TopicPartition

T = [TopicPartition("t", n) for n in range(12)]
WHERE = Node(1, "h", 9092)


def member(id: str, *partitions: TopicPartition, **told) -> GroupMember:
    return GroupMember(id, None, "c", "/h", partitions, **told)


def group(*members: GroupMember, type: str = CONSUMER) -> GroupDescription:
    return GroupDescription("g", type, "consumer", "Stable", "uniform", WHERE, members, 3, 3)


def test_a_group_on_its_way_between_protocols_tells_who_has_come():
    lines = list(
        member_lines(
            group(
                member("old", T[0], epoch=2, target=(), is_upgraded=False),
                member("new", T[2], T[10], epoch=3, target=(T[2],), is_upgraded=True),
            ),
            verbose=True,
        )
    )
    assert [line.split()[-1] for line in lines[1:]] == ["UPGRADED", "false", "true"]
    assert lines[3].split()[4:] == ["2", "3", "t:2,10", "3", "t:2", "true"]


def test_columns_are_as_wide_as_their_longest_name():
    topic = "a-topic-of-a-long-name"
    one = GroupPosition(TopicPartition(topic, 0), 5, None, 7, member("m" * 30))
    _, heading, row = offset_lines("g" * 20, [one], verbose=False)
    assert heading.index("PARTITION") == row.index("0  ") == 20 + 1 + len(topic) + 1
    assert heading.index("HOST") == row.index("/h")


def test_a_lag_may_be_below_zero():
    assert GroupPosition(T[0], 9, None, 7, None).lag == -2
    assert GroupPosition(T[0], None, None, 7, None).lag is None
    assert GroupPosition(T[0], 9, None, None, None).lag is None


def test_partitions_are_named_by_topic_and_number():
    partitions = [T[10], TopicPartition("a", 1), T[2]]
    assert assignment_words(partitions) == ["a:1", "t:2,10"]


def test_a_plan_for_no_group_is_an_empty_line_and_for_an_active_one_headings():
    assert list(reset_lines({})) == [""]
    assert len(list(reset_lines({"g": {}}))) == 2


def test_a_topic_of_which_no_partition_is_known_has_a_dash():
    (_, _, row) = deleted_lines([(TopicPartition("t", -1), "Error: gone")])
    assert row.split() == ["t", "-", "Error:", "gone"]


def test_a_classic_group_has_no_epochs():
    lines = list(
        member_lines(
            group(member("m", T[0]), type=CLASSIC)._replace(target_epoch=None), verbose=True
        )
    )
    assert lines[2].split()[5:] == ["-", "t:0", "-", "-"]
