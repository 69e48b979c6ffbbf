"""The journal of a planned reassignment: kept whole, read back, turned round."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcli.command.options import Refused
from kcli.reassignment.journal import PlannedMove, ReassignmentJournal, batches
from kserver.model import TopicPartition


def move(number, source=(1, 2), target=(3, 2), size=10):
    return PlannedMove(TopicPartition("t", number), source, target, size)


def journal(path, done=0):
    moves = [[move(0), move(1)], [move(2)], [move(3)]]
    return ReassignmentJournal(path / "deep" / "journal.json", "cluster", 1000, moves, done)


def test_what_is_written_is_read(tmp_path):
    written = journal(tmp_path)
    written.write()
    assert ReassignmentJournal.read(written.path) == written
    assert written.at(2) == ReassignmentJournal.read(written.path) == journal(tmp_path, 2)
    written.remove()
    written.remove()
    assert not [*written.path.parent.iterdir()]


def test_what_was_begun_is_taken_back_the_last_first(tmp_path):
    back = journal(tmp_path, 1).undoing()
    assert back == ReassignmentJournal.read(back.path)
    assert back.done == 0
    assert back.batches == [[move(2).back], [move(0).back, move(1).back]]
    assert move(0).back.bytes == move(0).bytes == 10
    # Of what was taken back for a half, what is left is the other way round again.
    assert [*back.at(1).undoing().batches] == [[move(0), move(1)], [move(2)]]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"version": 2}', '{"version": 1, "batches": [[{}]]}']
)
def test_what_is_no_journal_is_refused_by_name(tmp_path, text):
    path = tmp_path / "journal.json"
    path.write_text(text)
    with pytest.raises(Refused, match=r"journal\.json is not a journal of a reassignment"):
        ReassignmentJournal.read(path)


def test_a_journal_that_cannot_be_kept_is_told_before_anything_moves(tmp_path):
    (tmp_path / "deep").write_text("a file")
    with pytest.raises(Refused, match="name another with --journal"):
        journal(tmp_path).write()


def test_a_write_that_is_cut_short_leaves_the_one_before(tmp_path, monkeypatch):
    before = journal(tmp_path)
    before.write()
    with monkeypatch.context() as patch:
        patch.setattr(json, "dump", lambda document, file: file.write("{") and 1 / 0)
        with pytest.raises(ZeroDivisionError):
            before.at(1)
    assert ReassignmentJournal.read(before.path) == before


@given(st.lists(st.integers(0, 5)), st.integers(1, 4))
def test_batches_hold_everything_once_the_smallest_first(sizes, most):
    moves = [move(number, size=size) for number, size in enumerate(sizes)]
    found = batches(moves, most)
    assert sorted(one for batch in found for one in batch) == sorted(moves)
    assert all(0 < len(batch) <= most for batch in found)
    flat = [one.bytes for batch in found for one in batch]
    assert flat == sorted(flat)
