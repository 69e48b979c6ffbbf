from __future__ import annotations

import io

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kcli.groups.plan_files import MAX_OFFSET, MAX_PARTITION, csv_lines, read
from kserver.model import TopicPartition

NAMES = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=30
)
OFFSETS = st.dictionaries(
    st.builds(TopicPartition, NAMES, st.integers(0, MAX_PARTITION)),
    st.integers(0, MAX_OFFSET),
    min_size=1,
    max_size=3,
)


@given(st.dictionaries(NAMES, OFFSETS, max_size=3))
@example({'a "group"\r\n of two lines': {TopicPartition("t", 0): 5}})
def test_what_is_exported_is_what_is_read(plan):
    file = io.StringIO("".join(f"{line}\n" for line in csv_lines(plan, groups=True)), newline="")
    assert read(file, None) == plan


@given(NAMES, OFFSETS)
def test_of_one_group_lines_need_no_name(group, offsets):
    lines = list(csv_lines({group: offsets}, groups=False))
    assert read([*lines, "", "\n"], group) == {group: offsets}


def test_lines_are_counted_where_a_name_has_a_line_break():
    with pytest.raises(ValueError, match=r"^line 3: 'x' is not"):
        read(['"a\n', 'b",t,0,5\n', "x\n"], None)


def test_a_line_with_a_name_is_of_that_group():
    assert read(["a,t,0,5"], "b") == {"a": {TopicPartition("t", 0): 5}}


@pytest.mark.parametrize(
    ("topic", "shown"),
    [
        ("orders-1.2_x", "orders-1.2_x"),
        ("a" * 24, "a" * 24),
        ("a" * 25, '"' + "a" * 25 + '"'),
        ("a b", '"a b"'),
        ('a"b', '"a""b"'),
        ("a,b", '"a,b"'),
    ],
)
def test_quotes_stand_where_kafka_writes_them(topic, shown):
    plan = {"g": {TopicPartition(topic, 0): 1}}
    assert list(csv_lines(plan, groups=False)) == [f"{shown},0,1"]


@pytest.mark.parametrize(
    ("line", "group", "why"),
    [
        ("t,0,1", None, "'t,0,1' is not GROUP,TOPIC,PARTITION,OFFSET"),
        ("t,0", "g", "'t,0' is not TOPIC,PARTITION,OFFSET"),
        ("t,x,1", "g", "'t,x,1' is not TOPIC,PARTITION,OFFSET"),
        ("t,0,-1", "g", "is not TOPIC,PARTITION,OFFSET"),
        ("t,2147483648,0", "g", "has a number that is too large"),
        ("t,0,9223372036854775808", "g", "has a number that is too large"),
        (f'"{"a" * 200_000}', "g", "is not TOPIC,PARTITION,OFFSET"),
    ],
)
def test_a_line_that_makes_no_sense_is_named(line, group, why):
    with pytest.raises(ValueError, match=r"^line 2: ") as refused:
        read(["t,0,1" if group else "g,t,0,1", line], group)
    assert why in str(refused.value)
