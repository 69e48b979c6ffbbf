import random
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kserver.errors import StorageError
from kserver.log.transaction_index import AbortedTransaction, TransactionIndex
from tests.support.clock import StillClock
from tests.support.disk import SimDisk

APACHE = Path(__file__).parents[2] / "data/log/apache-4.3.1/00000000000000000000.txnindex"
PATH = "/log/00000000000000000000.txnindex"


@pytest.fixture
def disk():
    return new_disk()


def new_disk():
    disk = SimDisk(random.Random(1), StillClock())
    disk.make_directories("/log")
    disk.sync_directory("/")
    return disk


def index_of(disk, *entries):
    index = TransactionIndex(disk, PATH, base_offset=0)
    for entry in entries:
        index.append(AbortedTransaction(*entry))
    return index


def test_an_index_without_entries_makes_no_file(disk):
    index = index_of(disk)
    index.check()
    index.sync()
    index.reset()
    assert index.is_empty
    assert index.collect(0, 100) == ([], False)
    assert not disk.exists(PATH)


def test_apaches_index_is_read_and_written_again(disk):
    entries = [AbortedTransaction(4, 73, 192, 193), AbortedTransaction(4, 193, 358, 359)]
    disk.replace_file(PATH, APACHE.read_bytes())
    index = TransactionIndex(disk, PATH, base_offset=0)
    index.check()
    assert index.entries() == entries
    index.reset()
    for entry in entries:
        index.append(entry)
    assert disk.read_file(PATH) == APACHE.read_bytes()


def test_entries_survive_a_restart_and_go_on(disk):
    index_of(disk, (1, 0, 5, 6))
    again = index_of(disk, (2, 3, 9, 10))
    assert [entry.producer_id for entry in again.entries()] == [1, 2]
    assert not again.is_empty


def test_entries_and_the_files_name_survive_a_power_cut_after_sync(disk):
    index_of(disk, (1, 0, 5, 6)).sync()
    assert index_of(disk.crash(keep=0.0)).entries() == [(1, 0, 5, 6)]


@pytest.mark.parametrize(
    ("first", "upper_bound", "expected"),
    [
        (0, 100, [1, 2, 3]),
        (0, 10, [1]),  # the second begins at 10
        (0, 11, [1, 2]),
        (9, 12, [1, 2]),  # the first ends at 9
        (10, 12, [2]),
        (30, 100, []),
    ],
)
def test_those_that_overlap_the_range_are_collected(disk, first, upper_bound, expected):
    index = index_of(disk, (1, 5, 9, 10), (2, 10, 19, 20), (3, 20, 29, 30))
    found, _ = index.collect(first, upper_bound)
    assert [entry.producer_id for entry in found] == expected


def test_collecting_ends_at_the_abort_that_settled_all_below_the_bound(disk):
    index = index_of(disk, (1, 5, 9, 7), (2, 7, 19, 20), (3, 20, 29, 30))
    assert index.collect(0, 7) == ([(1, 5, 9, 7)], True)
    assert index.collect(0, 8) == ([(1, 5, 9, 7), (2, 7, 19, 20)], True)
    assert index.collect(0, 31)[1] is False


def test_truncating_removes_the_transactions_whose_marker_is_cut_off(disk):
    index = index_of(disk, (1, 0, 5, 6), (2, 3, 9, 10), (3, 4, 12, 13))
    index.truncate_to(9)
    assert [entry.producer_id for entry in index.entries()] == [1]
    index.append(AbortedTransaction(4, 6, 8, 9))
    index.check()
    assert len(disk.read_file(PATH)) == 2 * 34


def test_truncating_above_all_markers_removes_nothing(disk):
    index = index_of(disk, (1, 0, 5, 6))
    index.truncate_to(6)
    assert len(index.entries()) == 1


def test_an_entry_torn_by_a_crash_fails_the_check_and_is_overwritten_by_the_next(disk):
    index_of(disk, (1, 0, 5, 6))
    disk.replace_file(PATH, disk.read_file(PATH) + b"\0\0\0")
    index = index_of(disk)
    with pytest.raises(StorageError, match=PATH):
        index.check()
    index.append(AbortedTransaction(2, 6, 8, 9))
    index.check()
    assert [entry.producer_id for entry in index.entries()] == [1, 2]


@pytest.mark.parametrize(
    "entries",
    [
        [(1, 0, 9, 10)],  # a marker below the segment
        [(1, 12, 11, 12)],  # a marker before the first record
        [(1, 10, 15, 16), (2, 11, 15, 16)],
    ],
)
def test_an_index_that_cannot_be_this_segments_fails_the_check(disk, entries):
    data = b"".join(struct.pack(">hqqqq", 0, *entry) for entry in entries)
    disk.replace_file(PATH, data)
    with pytest.raises(StorageError, match="out of order"):
        TransactionIndex(disk, PATH, base_offset=10).check()


def test_an_entry_of_an_unknown_version_names_the_file_and_the_remedy(disk):
    index = index_of(disk, (1, 0, 5, 6))
    disk.open(PATH).write_at(0, b"\0\x01")
    with pytest.raises(StorageError, match=f"{PATH}: .*version 1.*remove the file"):
        index.entries()


@st.composite
def histories(draw):
    """Interleaved transactions as a log sees them: what happens at each offset."""
    ongoing, aborted, offset = {}, [], 0
    for _ in range(draw(st.integers(1, 30))):
        producer = draw(st.integers(0, 3))
        if producer in ongoing and draw(st.booleans()):
            first = ongoing.pop(producer)
            if draw(st.booleans()):
                stable = min(ongoing.values(), default=offset + 1)
                aborted.append(AbortedTransaction(producer, first, offset, stable))
        else:
            ongoing.setdefault(producer, offset)
        offset += 1
    return aborted, offset, min(ongoing.values(), default=offset)


@given(histories(), st.data())
def test_a_reader_below_the_last_stable_offset_learns_of_every_aborted_record(history, data):
    aborted, end, stable = history
    index = index_of(new_disk(), *aborted)
    index.check()
    first = data.draw(st.integers(0, end))
    bound = data.draw(st.integers(0, stable))
    found, is_all = index.collect(first, bound)
    expected = [e for e in aborted if e.last_offset >= first and e.first_offset < bound]
    assert found == expected
    assert is_all == any(e.last_stable_offset >= bound for e in aborted)
    cut = data.draw(st.integers(0, end))
    index.truncate_to(cut)
    assert index.entries() == [e for e in aborted if e.last_offset < cut]
