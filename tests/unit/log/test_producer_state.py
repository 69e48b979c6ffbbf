import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kserver.errors import ErrorCode, KafkaError, StorageError
from kserver.log.producer_state import ProducerStateManager
from kserver.log.transaction_index import AbortedTransaction
from kserver.log.validator import Origin, ValidBatch, validate_replicated
from kserver.wire.batch import CONTROL, TRANSACTIONAL, ControlType, RecordBatch, read_control_record

APACHE = Path(__file__).parents[2] / "data/log/apache-4.3.1"
DAY_MS = 86_400_000
LAST = 2**31 - 1


def batch(sequence, offset, *, count=1, producer=7, epoch=0, time=1000, attributes=0):
    return ValidBatch(
        position=0,
        size=100,
        base_offset=offset,
        last_offset=offset + count - 1,
        max_timestamp=time,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=count,
        attributes=attributes,
        leader_epoch=0,
    )


def transactional(sequence, offset, **fields):
    return batch(sequence, offset, attributes=TRANSACTIONAL, **fields)


def marker(offset, **fields):
    return batch(-1, offset, attributes=TRANSACTIONAL | CONTROL, **fields)


def state_after(*batches):
    state = ProducerStateManager(DAY_MS)
    for one in batches:
        assert state.check(one, Origin.client) is None
        state.append(one)
    state.check_invariants()
    return state


def end(state, offset, *, commit=True, coordinator_epoch=0, **fields):
    one = marker(offset, **fields)
    state.check_marker(one, coordinator_epoch)
    return state.append_marker(one, commit=commit, coordinator_epoch=coordinator_epoch)


def refusal(check, *arguments):
    with pytest.raises(KafkaError) as caught:
        check(*arguments)
    return caught.value.code


def test_an_unknown_producer_may_start_with_any_sequence_and_epoch():
    for sequence in (0, 1, 4711, LAST):
        assert (
            ProducerStateManager(DAY_MS).check(batch(sequence, 1, epoch=3), Origin.client) is None
        )


def test_a_batch_repeats_none_of_an_ended_transaction():
    """Its sequences were used again for other records."""
    state = state_after(batch(0, 0, producer=8), transactional(0, 1), transactional(1, 2))
    assert state.check(transactional(0, 3), Origin.client).first_offset == 1
    end(state, 3, commit=False)
    restored = ProducerStateManager(DAY_MS)
    restored.restore(state.snapshot(), "x", 1000)
    code = refusal(restored.check, transactional(1, 9), Origin.client)
    assert code is ErrorCode.unknown_producer_id
    for sequence in (2, 3):
        state.append(transactional(sequence, 2 + sequence))  # the next transaction
        for earlier in (0, 1):
            code = refusal(state.check, transactional(earlier, 9), Origin.client)
            assert code is ErrorCode.unknown_producer_id
    assert state.check(transactional(2, 9), Origin.client).first_offset == 4
    assert state.check(batch(0, 9, producer=8), Origin.client).first_offset == 0


@pytest.mark.parametrize("sequence", [1, 4711, LAST])
def test_an_empty_log_starts_with_sequence_0(sequence):
    """A batch that overtook the first: accepted, it would shut that out for ever."""
    state = ProducerStateManager(DAY_MS)
    code = refusal(state.check, batch(sequence, 0, epoch=3), Origin.client)
    assert code is ErrorCode.out_of_order_sequence_number
    assert state.check(batch(0, 0, epoch=3), Origin.client) is None
    assert state.check(batch(-1, 0), Origin.coordinator) is None


def test_checking_changes_nothing():
    state = ProducerStateManager(DAY_MS)
    state.check(batch(0, 0), Origin.client)
    assert not state.producers


def test_a_repeated_batch_is_recognized_while_it_is_among_the_last_five():
    sent = [batch(10 * n, 10 * n, count=10, time=1000 + n) for n in range(6)]
    state = state_after(*sent)
    for repeated in sent[1:]:
        kept = state.check(repeated._replace(base_offset=0, last_offset=9), Origin.client)
        assert kept.first_offset == repeated.base_offset
        assert kept.last_offset == repeated.last_offset
        assert kept.timestamp == repeated.max_timestamp
    code = refusal(state.check, sent[0], Origin.client)
    assert code is ErrorCode.out_of_order_sequence_number


def test_a_repeated_batch_of_another_length_is_out_of_order():
    state = state_after(batch(0, 0, count=3), batch(3, 3, count=3))
    for changed in (batch(0, 0, count=2), batch(3, 3, count=4), batch(1, 1, count=2)):
        assert refusal(state.check, changed, Origin.client) is (
            ErrorCode.out_of_order_sequence_number
        )


@pytest.mark.parametrize("sequence", [1, 3, 4, LAST])
def test_a_gap_in_the_sequence_is_refused(sequence):
    state = state_after(batch(0, 0, count=2))
    code = refusal(state.check, batch(sequence, 2), Origin.client)
    assert code is ErrorCode.out_of_order_sequence_number


def test_after_the_last_sequence_comes_zero():
    state = state_after(batch(LAST, 1), batch(0, 2), batch(1, 3))
    assert state.check(batch(LAST, 4), Origin.client).first_offset == 1


def test_a_batch_may_span_the_wrap_of_sequences():
    spanning = batch(LAST - 1, 1, count=4)
    state = state_after(spanning, batch(2, 5))
    assert state.check(spanning, Origin.client).last_offset == 4


def test_an_older_epoch_is_refused():
    state = state_after(batch(0, 0, epoch=3))
    for origin in (Origin.client, Origin.coordinator):
        code = refusal(state.check, batch(1, 1, epoch=2), origin)
        assert code is ErrorCode.invalid_producer_epoch


def test_a_new_epoch_starts_at_sequence_zero_and_forgets_the_old_batches():
    old = batch(0, 0, epoch=3)
    state = state_after(old)
    code = refusal(state.check, batch(1, 1, epoch=4), Origin.client)
    assert code is ErrorCode.out_of_order_sequence_number
    state = state_after(old, batch(0, 1, epoch=4))
    assert state.check(batch(0, 2, epoch=4), Origin.client).first_offset == 1
    assert state.check(batch(1, 2, epoch=4), Origin.client) is None


def test_a_coordinator_appends_without_sequences():
    state = ProducerStateManager(DAY_MS)
    for offset in range(7):
        one = transactional(-1, offset)
        assert state.check(one, Origin.coordinator) is None
        state.append(one)
    state.check_invariants()


def test_sequences_follow_offsets_where_compaction_removed_records():
    state = ProducerStateManager(DAY_MS)
    state.append(batch(0, 0, count=10)._replace(record_count=2))
    assert state.check(batch(10, 10), Origin.client) is None


def test_a_transaction_is_unstable_from_its_first_record_until_its_marker_is_replicated():
    state = state_after(batch(0, 0, producer=1), transactional(0, 1), transactional(1, 2))
    assert state.first_unstable_offset == 1
    done = end(state, 3)
    assert done == (7, 1, 3, False, 4)
    assert state.first_unstable_offset == 1
    state.replicated_to(3)
    assert state.first_unstable_offset == 1
    state.replicated_to(4)
    assert state.first_unstable_offset is None
    state.check_invariants()


def test_the_last_stable_offset_stays_at_the_oldest_open_transaction():
    state = state_after(transactional(0, 0, producer=1), transactional(0, 1, producer=2))
    assert end(state, 2, producer=2, commit=False) == (2, 1, 2, True, 0)
    assert end(state, 3, producer=1, commit=False) == (1, 0, 3, True, 4)
    state.replicated_to(3)
    assert state.first_unstable_offset == 0
    state.replicated_to(4)
    assert state.first_unstable_offset is None


def test_a_marker_without_a_transaction_completes_nothing_but_fences():
    state = ProducerStateManager(DAY_MS)
    assert end(state, 0, epoch=3) is None
    assert state.first_unstable_offset is None
    code = refusal(state.check, transactional(0, 1, epoch=2), Origin.client)
    assert code is ErrorCode.invalid_producer_epoch


def test_sequences_go_on_after_a_marker_of_the_same_epoch():
    state = state_after(transactional(0, 0, count=2))
    end(state, 2)
    assert state.check(transactional(2, 3), Origin.client) is None
    code = refusal(state.check, transactional(1, 3), Origin.client)
    assert code is ErrorCode.out_of_order_sequence_number


def test_sequences_start_anew_after_a_marker_of_a_new_epoch():
    state = state_after(transactional(0, 0, count=2))
    end(state, 2, epoch=1)
    assert state.check(transactional(0, 3, epoch=1), Origin.client) is None
    code = refusal(state.check, transactional(2, 3, epoch=1), Origin.client)
    assert code is ErrorCode.out_of_order_sequence_number


def test_within_a_transaction_every_batch_must_be_transactional():
    state = state_after(transactional(0, 0))
    code = refusal(state.check, batch(1, 1), Origin.client)
    assert code is ErrorCode.invalid_txn_state
    end(state, 1)
    assert state.check(batch(1, 2), Origin.client) is None


def test_markers_of_an_older_producer_or_coordinator_are_refused():
    state = state_after(transactional(0, 0, epoch=3))
    code = refusal(state.check_marker, marker(1, epoch=2), 0)
    assert code is ErrorCode.invalid_producer_epoch
    end(state, 1, epoch=3, coordinator_epoch=5)
    code = refusal(state.check_marker, marker(2, epoch=3), 4)
    assert code is ErrorCode.transaction_coordinator_fenced
    state.check_marker(marker(2, epoch=3), 5)


def test_what_was_replicated_is_noted_without_being_judged():
    state = state_after(batch(5, 1, epoch=3))
    state.append(batch(99, 2, epoch=2))
    assert state.producers[7].epoch == 2
    assert state.check(batch(100, 3, epoch=2), Origin.client) is None


def test_idle_producers_expire_unless_a_transaction_is_open():
    state = state_after(batch(0, 0, producer=1, time=1000), transactional(0, 1, producer=2))
    state.expire(1000 + DAY_MS - 1)
    assert set(state.producers) == {1, 2}
    state.expire(1000 + DAY_MS)
    assert set(state.producers) == {2}
    state.check_invariants()


def test_a_cleared_state_knows_nothing():
    state = state_after(transactional(0, 0))
    end(state, 1)
    state.clear()
    state.check_invariants()
    assert not state.producers
    assert state.first_unstable_offset is None


@pytest.mark.parametrize("name", ["00000000000000000536.snapshot", "00000000000000000100.snapshot"])
def test_apaches_snapshot_is_read_and_written_byte_for_byte(name):
    snapshot = (APACHE / name).read_bytes()
    state = ProducerStateManager(DAY_MS)
    state.restore(snapshot, name, now_ms=0)
    state.check_invariants()
    assert state.producers
    assert state.snapshot() == snapshot


def test_an_idempotent_producer_goes_on_after_apaches_snapshot():
    state = ProducerStateManager(DAY_MS)
    state.restore((APACHE / "00000000000000000100.snapshot").read_bytes(), "", now_ms=0)
    (producer_id,) = state.producers
    last = batch(12, 0, count=88, producer=producer_id)
    assert state.check(last, Origin.client)[:4] == (12, 99, 12, 99)
    assert state.check(batch(100, 100, producer=producer_id), Origin.client) is None


def test_replaying_apaches_log_gives_apaches_snapshot_and_transaction_index():
    log = memoryview(gzip.decompress((APACHE / "00000000000000000000.log.gz").read_bytes()))
    state = ProducerStateManager(DAY_MS)
    aborted = []
    for one in validate_replicated(log, next_offset=0).batches:
        if one.producer_id < 0:
            continue
        if one.attributes & CONTROL:
            (record,) = RecordBatch(log, one.position).records()
            control = read_control_record(record)
            done = state.append_marker(
                one,
                commit=control.type is ControlType.commit,
                coordinator_epoch=control.coordinator_epoch,
            )
            if done and done.is_aborted:
                aborted.append(
                    AbortedTransaction(
                        done.producer_id,
                        done.first_offset,
                        done.last_offset,
                        done.last_stable_offset,
                    )
                )
        else:
            assert state.check(one, Origin.client) is None
            state.append(one)
        state.check_invariants()
    state.replicated_to(536)

    assert state.snapshot() == (APACHE / "00000000000000000536.snapshot").read_bytes()
    assert aborted == [(4, 73, 192, 193), (4, 193, 358, 359)]
    assert state.first_unstable_offset == 365


def test_a_snapshot_keeps_epochs_last_batches_and_open_transactions():
    state = state_after(
        batch(0, 0, producer=1), batch(1, 1, producer=1), transactional(LAST, 2, count=3)
    )
    restored = ProducerStateManager(DAY_MS)
    restored.restore(state.snapshot(), "x.snapshot", now_ms=1000)
    restored.check_invariants()
    assert restored.first_unstable_offset == 2
    assert restored.check(batch(2, 5, producer=1), Origin.client) is None
    assert restored.check(batch(1, 5, producer=1), Origin.client).first_offset == 1
    assert restored.check(transactional(LAST, 5, count=3), Origin.client).first_offset == 2
    assert restored.check(transactional(2, 5), Origin.client) is None
    # Only the last batch is in a snapshot.
    code = refusal(restored.check, batch(0, 5, producer=1), Origin.client)
    assert code is ErrorCode.out_of_order_sequence_number


def test_a_producer_that_expired_meanwhile_is_not_restored():
    state = state_after(batch(0, 0, producer=1), transactional(0, 1, producer=2))
    restored = ProducerStateManager(DAY_MS)
    restored.restore(state.snapshot(), "x.snapshot", now_ms=1000 + DAY_MS)
    assert set(restored.producers) == {2}


def corruptions():
    good = (APACHE / "00000000000000000536.snapshot").read_bytes()
    yield b""
    yield good[:9]
    yield good[:-1]
    yield good + b"\0"
    yield b"\0\x02" + good[2:]
    for at in range(2, len(good), 7):
        yield good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]


@pytest.mark.parametrize("snapshot", list(corruptions()))
def test_a_corrupt_snapshot_is_refused_with_its_name_and_leaves_nothing_behind(snapshot):
    state = state_after(transactional(0, 0))
    with pytest.raises(StorageError, match=r"^/log/00000000000000000536\.snapshot: "):
        state.restore(snapshot, "/log/00000000000000000536.snapshot", now_ms=0)
    state.check_invariants()
    assert not state.producers
    assert state.first_unstable_offset is None


class Model:
    """The same rules, told from the whole history of each producer instead of a window."""

    def __init__(self):
        self.epochs = {}
        self.coordinator_epochs = {}
        self.history = {}  # producer -> batches of its epoch, every one
        self.last_timestamps = {}
        self.open = {}  # producer -> first offset
        self.decided = []  # first offset, marker
        self.high_watermark = 0

    def sequences(self, one):
        return [(one.base_sequence + n) % 2**31 for n in range(one.record_count)]

    def check(self, one):
        producer, epoch = one.producer_id, self.epochs.get(one.producer_id)
        if epoch is None:
            overtakes = one.base_offset == 0 and one.base_sequence > 0
            return ErrorCode.out_of_order_sequence_number if overtakes else None
        if one.producer_epoch < epoch:
            return ErrorCode.invalid_producer_epoch
        history = self.history[producer] if epoch == one.producer_epoch else []
        for known in history[-5:]:
            if self.sequences(known) == self.sequences(one):
                start = self.open.get(producer, LAST)
                if one.attributes & TRANSACTIONAL and known.base_offset < start:
                    return ErrorCode.unknown_producer_id
                return known.base_offset, known.last_offset, known.max_timestamp
        expected = (self.sequences(history[-1])[-1] + 1) % 2**31 if history else 0
        if one.base_sequence != expected:
            return ErrorCode.out_of_order_sequence_number
        if producer in self.open and not one.attributes & TRANSACTIONAL:
            return ErrorCode.invalid_txn_state
        return None

    def start_epoch(self, one):
        if self.epochs.get(one.producer_id) != one.producer_epoch:
            self.history[one.producer_id] = []
        self.epochs[one.producer_id] = one.producer_epoch
        self.last_timestamps[one.producer_id] = one.max_timestamp

    def append(self, one):
        self.start_epoch(one)
        self.history[one.producer_id].append(one)
        if one.attributes & TRANSACTIONAL:
            self.open.setdefault(one.producer_id, one.base_offset)

    def check_marker(self, one, coordinator_epoch):
        if one.producer_epoch < self.epochs.get(one.producer_id, -1):
            return ErrorCode.invalid_producer_epoch
        if coordinator_epoch < self.coordinator_epochs.get(one.producer_id, -1):
            return ErrorCode.transaction_coordinator_fenced
        return None

    def append_marker(self, one, coordinator_epoch):
        self.start_epoch(one)
        self.coordinator_epochs[one.producer_id] = coordinator_epoch
        first = self.open.pop(one.producer_id, None)
        if first is None:
            return None
        self.decided.append((first, one.base_offset))
        return first, min(self.open.values(), default=one.base_offset + 1)

    @property
    def first_unstable_offset(self):
        unreplicated = [first for first, end in self.decided if end >= self.high_watermark]
        return min([*self.open.values(), *unreplicated], default=None)

    def restart(self):
        """A snapshot has only the last batch, and one timestamp for it and any later marker."""
        self.history = {
            producer: [b._replace(max_timestamp=self.last_timestamps[producer]) for b in known[-1:]]
            for producer, known in self.history.items()
        }
        self.decided.clear()


def outcome(check, *arguments):
    try:
        found = check(*arguments)
    except KafkaError as error:
        return error.code
    return found and found[2:]


@settings(max_examples=150)
@given(st.data())
def test_any_history_is_judged_as_by_a_model_that_forgets_nothing(data):
    draw = data.draw
    state, model, offset = ProducerStateManager(DAY_MS), Model(), 0
    for _ in range(draw(st.integers(1, 25))):
        producer = draw(st.integers(1, 2))
        epoch = max(0, model.epochs.get(producer, 0) + draw(st.sampled_from([0, 0, 0, 0, 1, -1])))
        match draw(st.sampled_from(["data"] * 6 + ["marker", "replicate", "restart"])):
            case "data":
                known = model.history.get(producer, [])
                last = model.sequences(known[-1])[-1] if known else LAST - draw(st.integers(0, 6))
                sequence = (last + 1 + draw(st.sampled_from([0, 0, 0, 0, 0, 1, -1]))) % 2**31
                count = draw(st.integers(1, 3))
                if known and draw(st.integers(0, 3)) == 0:
                    repeated = draw(st.sampled_from(known[-7:]))
                    sequence, count = repeated.base_sequence, repeated.record_count
                elif epoch != model.epochs.get(producer) and draw(st.booleans()):
                    sequence = 0
                attributes = draw(st.sampled_from([0, TRANSACTIONAL, TRANSACTIONAL]))
                one = batch(
                    sequence,
                    offset,
                    count=count,
                    producer=producer,
                    epoch=epoch,
                    time=1000 + offset,
                    attributes=attributes,
                )
                expected = model.check(one)
                assert outcome(state.check, one, Origin.client) == expected
                if expected is None:
                    state.append(one)
                    model.append(one)
                    offset += count
            case "marker":
                coordinator_epoch = draw(st.integers(0, 2))
                one = marker(offset, producer=producer, epoch=epoch, time=1000 + offset)
                expected = model.check_marker(one, coordinator_epoch)
                assert outcome(state.check_marker, one, coordinator_epoch) == expected
                if expected is None:
                    commit = draw(st.booleans())
                    done = state.append_marker(
                        one, commit=commit, coordinator_epoch=coordinator_epoch
                    )
                    told = done and (done.first_offset, done.last_stable_offset)
                    assert told == model.append_marker(one, coordinator_epoch)
                    assert done is None or done.is_aborted != commit
                    offset += 1
            case "replicate":
                model.high_watermark = draw(st.integers(model.high_watermark, offset))
                state.replicated_to(model.high_watermark)
            case "restart":
                snapshot = state.snapshot()
                state = ProducerStateManager(DAY_MS)
                state.restore(snapshot, "", now_ms=0)
                assert state.snapshot() == snapshot
                model.restart()
        state.check_invariants()
        assert state.first_unstable_offset == model.first_unstable_offset
