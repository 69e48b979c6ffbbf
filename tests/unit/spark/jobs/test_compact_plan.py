"""Which files go together, and which directories are meant."""

from __future__ import annotations

import pytest

from kcli.spark.jobs.compact_plan import SwapJournal, selection, units, values_of
from kcli.spark.jobs.store import StoreEntry


def entry(path: str, size: int, modified_ms: int = 0) -> StoreEntry:
    return StoreEntry(path, False, size, modified_ms)


def made(*files: StoreEntry, partitions: str | None = None, before_ms: int = 10):
    found = units(files, selects=selection(partitions), target_bytes=100, before_ms=before_ms)
    return [(unit.directory, [file.name for file in unit.files], unit.into) for unit in found]


def test_small_files_of_a_directory_become_as_few_as_their_size_needs():
    found = made(
        *(entry(f"d=1/{name}", 60) for name in "bac"),
        entry("d=1/large", 75),
        entry("d=2/alone", 1),
        entry("x", 1),
        entry("y", 1),
    )
    assert found == [("", ["x", "y"], 1), ("d=1", ["a", "b", "c"], 2)]


def test_files_that_would_not_become_fewer_stay():
    assert made(entry("d=1/a", 74), entry("d=1/b", 74)) == []
    assert made(entry("d=1/a", 50), entry("d=1/b", 50)) == [("d=1", ["a", "b"], 1)]


def test_empty_files_become_one():
    assert made(entry("a", 0), entry("b", 0)) == [("", ["a", "b"], 1)]


def test_files_that_are_young_stay():
    files = [entry("a", 1, 9), entry("b", 1, 10), entry("c", 1, 11)]
    assert made(*files) == [("", ["a", "b"], 1)]


THERE = ["", "date=2026-11-20/hour=05", "date=2026-11-21/hour=05", "date=2026-11-21/hour=15"]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (None, THERE),
        ("date=2026-11-21", THERE[2:]),
        ("date=2026-11-21, hour=0?", THERE[2:3]),
        ("hour=*5", THERE[1:]),
        ("date=2026-11-01..2026-11-20", THERE[1:2]),
        ("date=2026-11-21..2026-11-30,hour=06..15", THERE[3:]),
        ("day=1", []),
    ],
)
def test_directories_are_chosen_by_their_values(text, meant):
    selects = selection(text)
    assert [directory for directory in THERE if selects(values_of(directory))] == meant


@pytest.mark.parametrize("text", ["", "date", "date=", "=1", "date=1,", "date=1,,hour=2"])
def test_what_is_no_choice_is_refused(text):
    with pytest.raises(ValueError, match="is not like date="):
        selection(text)


def test_values_are_read_as_spark_writes_them():
    assert values_of("topic=a%3Ab/x/hour=05") == {"topic": "a:b", "hour": "05"}


def test_a_journal_is_read_as_it_was_written():
    journal = SwapJournal("1", ["a", "b"], [("s/c", "d/c")])
    assert SwapJournal.of(journal.text()) == journal
