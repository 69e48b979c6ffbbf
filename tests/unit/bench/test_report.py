from __future__ import annotations

import pytest

from tests.bench.figures import at_least_times, at_most, lines
from tests.bench.report import CLUSTERS, END, LONE, between_markers, cluster_table, section, table

RESULTS = [
    *lines(
        "produce",
        {"MB/s": at_least_times(4), "CPU": None},
        [{"MB/s": 2000.0, "CPU": 0.5}],
        [{"MB/s": 600.0, "CPU": 2.5}],
        [{"MB/s": 2400.0, "CPU": 0.4}],
    ),
    *lines("start", {"s": at_most(0.4)}, [{"s": 0.5}]),
    *lines("memory", {"MB": at_most(60)}, [{"MB": 50.0}], [], [{"MB": 70.0}]),
]


def test_the_table_has_a_line_a_figure_and_marks_what_falls_short():
    written = table(RESULTS, "ours", "built", "theirs")
    assert [[cell.strip() for cell in row.split("|")[1:-1]] for row in written.splitlines()] == [
        ["row", "figure", "ours", "built", "theirs", "ratio", "compiled", "aim", ""],
        [
            "-------",
            "------",
            "----:",
            "----:",
            "-----:",
            "----:",
            "-------:",
            "------",
            "---------------------------",
        ],
        [
            "produce",
            "MB/s",
            "2,000",
            "2,400",
            "600",
            "3.33x",
            "4x",
            ">= 4x",
            "**short**, compiled reached",
        ],
        ["", "CPU", "0.5", "0.4", "2.5", "0.2x", "0.16x", "", ""],
        ["start", "s", "0.5", "", "", "", "", "<= 0.4", "**short**"],
        ["memory", "MB", "50", "70", "", "", "", "<= 60", "**short** compiled"],
    ]
    assert len({len(row) for row in written.splitlines()}) == 1


def test_the_table_of_clusters_has_both_rivals():
    results = lines(
        "kill",
        {"s": at_most(1), "MB/s": at_least_times(2)},
        [{"s": 0.5, "MB/s": 30.0}],
        [{"s": 10.0, "MB/s": 10.0}],
        elder=[{"s": 20.0, "MB/s": 20.0}],
    )
    written = cluster_table(results, "ours", "newer", "older")
    head, _, *rows = ([c.strip() for c in row.split("|")[1:-1]] for row in written.splitlines())
    assert head == ["row", "figure", "ours", "newer", "older", "ratio", "ratio", "aim", ""]
    assert rows == [
        ["kill", "s", "0.5", "10", "20", "0.05x", "0.025x", "<= 1", ""],
        ["", "MB/s", "30", "10", "20", "3x", "1.5x", ">= 2x", "**short**"],
    ]


def test_a_section_says_how_when_and_on_what_it_was_measured():
    text = section([("the command", "2025-01-01")], {"cores": "2"}, ["noise"], "TABLE", {"a": "b"})
    assert text == (
        "`the command`, 2025-01-01.\n\ncores: 2.\n\nNot quiet: noise.\n\nTABLE\n\n- `a`: b"
    )
    assert "quiet" not in section([("c", "d")], {}, [], "t", {})
    runs = [("the command", "2025-01-01"), ("another", "2025-01-02")]
    assert section(runs, {}, [], "t", {}).startswith(
        "`the command`, 2025-01-01; `another`, 2025-01-02.\n"
    )


@pytest.mark.parametrize("begin", [LONE, CLUSTERS])
def test_only_what_stands_between_its_markers_is_replaced(begin):
    other = {LONE: CLUSTERS, CLUSTERS: LONE}[begin]
    left = f"{other}\nof others\n{END}\n"
    old = f"{left}before\n{begin}\nold\n{END}\nafter\n{left}"
    new = between_markers(old, begin, "new")
    assert new == f"{left}before\n{begin}\n\nnew\n\n{END}\nafter\n{left}"
    assert between_markers(new, begin, "new") == new


@pytest.mark.parametrize("text", ["", LONE, END, CLUSTERS + END, f"{END} {LONE}"])
def test_a_text_without_both_markers_is_left_alone(text):
    with pytest.raises(ValueError, match="markers"):
        between_markers(text, LONE, "new")
