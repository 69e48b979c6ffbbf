import pytest
from hypothesis import given
from hypothesis import strategies as st

from kserver.log.leader_epochs import UNDEFINED, EpochEnd, EpochStart, LeaderEpochCache


def cache(*entries):
    return LeaderEpochCache(EpochStart(*entry) for entry in entries)


def test_an_empty_cache_knows_no_epoch():
    empty = cache()
    assert empty.latest is None
    assert empty.latest_epoch == -1
    assert empty.end_offset_for(0, log_end_offset=5) == UNDEFINED == (-1, -1)
    assert empty.epoch_of(0) == -1


def test_an_epoch_keeps_the_start_it_was_given_first():
    epochs = cache((2, 10))
    assert not epochs.assign(2, 15)
    assert epochs.entries == ((2, 10),)


def test_an_epoch_that_starts_earlier_than_known_is_corrected():
    epochs = cache((1, 0), (2, 10))
    assert epochs.assign(2, 5)
    assert epochs.entries == ((1, 0), (2, 5))


def test_an_epoch_in_which_nothing_was_written_falls_to_the_next():
    epochs = cache((1, 0), (2, 10))
    assert epochs.assign(3, 10)
    assert epochs.entries == ((1, 0), (3, 10))


def test_entries_that_contradict_a_new_one_fall():
    epochs = cache((1, 0), (2, 10), (3, 20))
    assert epochs.assign(2, 8)
    assert epochs.entries == ((1, 0), (2, 8))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (-1, UNDEFINED),
        (1, (1, 10)),  # older than all that is known
        (2, (2, 20)),
        (3, (2, 20)),  # never led: the last epoch before it
        (4, (4, 30)),
        (5, (5, 35)),  # the latest ends at the log's end
        (6, UNDEFINED),
    ],
)
def test_the_end_of_an_epoch_is_the_start_of_the_next_known(asked, expected):
    epochs = cache((2, 10), (4, 20), (5, 30))
    assert epochs.end_offset_for(asked, log_end_offset=35) == expected


@pytest.mark.parametrize(
    ("offset", "epoch"), [(9, -1), (10, 2), (19, 2), (20, 4), (29, 4), (30, 5), (99, 5)]
)
def test_an_offset_belongs_to_the_last_epoch_that_started_by_it(offset, epoch):
    assert cache((2, 10), (4, 20), (5, 30)).epoch_of(offset) == epoch


def test_truncating_the_end_forgets_epochs_that_start_there_or_later():
    epochs = cache((2, 10), (4, 20), (5, 30))
    assert epochs.truncate_from_end(20)
    assert epochs.entries == ((2, 10),)
    assert epochs.latest_epoch == 2
    assert not epochs.truncate_from_end(11)


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (9, ((2, 10), (4, 20), (5, 30))),
        (10, ((2, 10), (4, 20), (5, 30))),
        (11, ((2, 11), (4, 20), (5, 30))),
        (20, ((4, 20), (5, 30))),
        (25, ((4, 25), (5, 30))),
        (40, ((5, 40),)),
    ],
)
def test_truncating_the_start_keeps_the_epoch_that_it_lies_in(start, expected):
    epochs = cache((2, 10), (4, 20), (5, 30))
    assert epochs.truncate_from_start(start) == (expected != ((2, 10), (4, 20), (5, 30)))
    assert epochs.entries == expected


def test_a_cleared_cache_is_empty():
    epochs = cache((2, 10))
    epochs.clear()
    assert epochs.entries == ()
    assert epochs.latest_epoch == -1


class Model:
    """A log that remembers each record's epoch; the cache must answer as if it saw them all."""

    def __init__(self):
        self.start = 0
        self.epochs = []

    @property
    def end(self):
        return self.start + len(self.epochs)

    def end_offset_for(self, epoch):
        later = [self.start + i for i, e in enumerate(self.epochs) if e > epoch]
        known = [e for e in self.epochs if e <= epoch]
        if epoch > max(self.epochs, default=-1):
            return UNDEFINED
        return EpochEnd(max(known, default=epoch), min(later, default=self.end))


@given(st.data())
def test_the_cache_answers_as_a_log_that_remembers_every_records_epoch(data):
    model, epochs, current = Model(), LeaderEpochCache(), 0
    for _ in range(data.draw(st.integers(0, 20))):
        match data.draw(st.sampled_from(["append", "append", "elect", "cut end", "cut start"])):
            case "append":
                epochs.assign(current, model.end)
                model.epochs += [current] * data.draw(st.integers(1, 3))
            case "elect":
                current += data.draw(st.integers(1, 3))
            case "cut end":
                cut = data.draw(st.integers(model.start, model.end))
                epochs.truncate_from_end(cut)
                del model.epochs[cut - model.start :]
            case "cut start":
                cut = data.draw(st.integers(model.start, max(model.start, model.end - 1)))
                epochs.truncate_from_start(cut)
                del model.epochs[: cut - model.start]
                model.start = cut
        epochs.check_invariants()
        for offset in range(model.start, model.end):
            assert epochs.epoch_of(offset) == model.epochs[offset - model.start]
        for epoch in range(current + 2):
            assert epochs.end_offset_for(epoch, model.end) == model.end_offset_for(epoch), epoch
