from __future__ import annotations

import pytest

from tests.bench.figures import at_least_times, at_most, lines
from tests.bench.report import BEGIN, END, between_markers, section, table

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


def test_only_what_stands_between_the_markers_is_replaced():
    old = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    new = between_markers(old, "new")
    assert new == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    assert between_markers(new, "new") == new


@pytest.mark.parametrize("text", ["", BEGIN, END, f"{END} {BEGIN}"])
def test_a_text_without_both_markers_is_left_alone(text):
    with pytest.raises(ValueError, match="markers"):
        between_markers(text, "new")
