"""What a person is shown of a look."""

from __future__ import annotations

import pytest

from kcli.top.rates import BROKER, GROUP, TOPIC, Dashboard, Row
from kcli.top.tables import HEADING, WRONG, aligned, clock, notes, shared, size, summary, tables

AT_MS = 1_700_000_000_000
CHANGES = {"isr_left": 0, "isr_joined": 0, "leader_changes": 0, "under_replicated": 0}
UP = Row(BROKER, "1", "up", "h1:9092", True, partitions=3, size_bytes=1500, **CHANGES)
AWAY = Row(BROKER, "2", "away", "h2:9092", False, AT_MS, partitions=0, **CHANGES)
WELL = Row(TOPIC, "orders", "ok", partitions=2, offline=0, records_in_per_second=1234.56, **CHANGES)
BROKEN = WELL._replace(name="bad", state="offline", offline=1, under_replicated=2)
GROUP_ROW = Row(GROUP, "g", "Stable", lag=12_000, lag_per_second=-3.25, lag_trend="shrinking")


def dashboard(**fields):
    lists = {"brokers": [AWAY, UP], "topics": [BROKEN, WELL], "groups": [GROUP_ROW]}
    return Dashboard(AT_MS, 1, **lists | {"refused": {}} | fields)


def shown(*views, **cut):
    return [[line.text.split() for line in table] for table in tables(dashboard(), views, **cut)]


def test_a_line_on_the_cluster():
    assert summary(dashboard()) == (
        f"{clock(AT_MS)}  brokers 2, away 1, controller 1  topics 2  "
        "partitions 4, under-replicated 2, offline 1  groups 1"
    )


def test_brokers_topics_and_groups():
    brokers, topics, groups = shown("brokers", "topics", "groups")
    since = ["2", "h2:9092", "away", "since", clock(AT_MS)]
    assert brokers[1] == [*since, "-", "-", "-", "-", "0", "-0", "+0", "0", "0", "-"]
    told = [
        "1",
        "h1:9092",
        "controller",
        "-",
        "-",
        "-",
        "-",
        "3",
        "-0",
        "+0",
        "0",
        "0",
        "1.5",
        "kB",
    ]
    assert brokers[2] == told
    assert topics[1][:4] == ["bad", "offline", "1", "1,234.6"]
    assert groups[1] == ["g", "Stable", "12,000", "-3.2", "shrinking", "-", "-", "-"]


def test_what_is_wrong_is_marked():
    (brokers,) = tables(dashboard(), ["brokers"])
    assert [line.style for line in brokers] == [HEADING, WRONG, ""]


def test_rows_without_room_are_counted():
    many = [WELL._replace(name=f"t{n}") for n in range(1500)]
    (table,) = tables(dashboard(topics=many), ["topics"], height=2 + 4)
    assert len(table) == 1 + 4
    assert table[-1].text == "... and 1,497 more"
    (whole,) = tables(dashboard(topics=many[:4]), ["topics"], height=2 + 4)
    assert len(whole) == 1 + 4
    assert whole[-1].text.startswith("t3")


@pytest.mark.parametrize(
    ("wanted", "lines", "rooms"),
    [
        ([3, 100, 100], 23, [3, 10, 10]),
        ([3, 4, 5], 30, [3, 4, 5]),
        ([100, 1, 100], 10, [4, 1, 5]),
        ([5, 5], 0, [0, 0]),
        ([5, 5], -3, [0, 0]),
    ],
)
def test_who_wants_little_gets_it_and_the_others_share(wanted, lines, rooms):
    assert shared(wanted, lines) == rooms


@pytest.mark.parametrize("height", range(30))
def test_a_screen_is_never_overfull(height):
    found = tables(dashboard(topics=[WELL] * 50), ["brokers", "topics", "groups"], height=height)
    # Headings alone are shown on a screen that has no room at all.
    assert sum(len(table) + 1 for table in found) <= max(height, 2 * 3)


def test_a_narrow_screen_leaves_out_columns_from_the_right_and_cuts_names():
    lines = [("NAME", "STATE", "A", "B"), ("x" * 50, "ok", "1", "2")]
    assert aligned(lines, None)[1] == "x" * 50 + "  ok     1  2"
    assert aligned(lines, 45)[1] == "x" * 29 + "…  ok     1  2"
    assert aligned(lines, 40)[0] == "NAME" + " " * 26 + "  STATE  A"
    assert aligned(lines, 3)[0].strip() == "NAME"


def test_columns_stand_one_below_another_in_wide_letters_too():
    first, second = aligned([("日本", "ok", "1"), ("abcdef", "ok", "22")], None)
    assert first == "日本    ok   1"
    assert second == "abcdef  ok  22"


def test_what_a_terminal_would_obey_is_shown():
    group = GROUP_ROW._replace(name="\x1b[2J")
    (table,) = tables(dashboard(groups=[group]), ["groups"])
    assert table[1].text.startswith("\\x1b[2J")


def test_what_is_not_told_and_who_does_not_answer_is_noted():
    assert notes(dashboard()) == []
    refused = {"groups of broker 1": "Not authorized"}
    assert notes(dashboard(refused=refused)) == [
        "not available: groups of broker 1: Not authorized"
    ]
    (gone,) = notes(dashboard(missing="Connection refused"))
    assert gone == f"no broker has answered since {clock(AT_MS)}: Connection refused"


@pytest.mark.parametrize(
    ("bytes", "text"), [(None, "-"), (0, "0 bytes"), (999.4, "999 bytes"), (1.5e9, "1.5 GB")]
)
def test_sizes(bytes, text):
    assert size(bytes) == text
