"""Test all decoders of record batches against one corpus and one model.

    reader     wire/records.py: used in the broker and by dump-log
    consumer   the client's CompletedFetch: the same, part by part
    walk       wire/_walk.c: only the largest timestamp of a valid batch
    cleaner    log/record_filter.py: only places and keys; retained records are copied as bytes
    numpy, c   kcli/spark: columns.py and _columns.c

Message formats older than batches are decoded only by kcli/segments/old_messages.py, which has its
own tests.
"""

from __future__ import annotations

import re
from random import Random
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcli.client.consumer.completed_fetch import CompletedFetch
from kserver.config.topic import TopicConfig
from kserver.errors import KafkaError, ProtocolError
from kserver.log import validator
from kserver.log.record_filter import scan
from kserver.model import TopicPartition
from kserver.wire.batch import LOG_APPEND_TIME, Record, RecordBatch, batches
from tests.support.extensions import build, exactly
from tests.support.record_bytes import lying_records
from tests.support.record_corpus import LARGEST, corpus
from tests.support.record_model import (
    NOW,
    Refused,
    changed,
    edits,
    records,
    sealed,
    slow_decode,
    slow_encode,
)

DECODERS = ("reader", "consumer", "walk", "cleaner", "numpy", "c")
REFUSED, READ = "refused", "read"
CORPUS = corpus()
T = TopicPartition("t", 0)
FARTHEST_MS = LARGEST // 1000


class Otherwise(NamedTuple):
    """The result of decoders for entries with matching names; READ is anything except REFUSED."""

    decoders: str
    names: str
    found: Any
    why: str


BY_DESIGN = [
    Otherwise(*of)
    for of in (
        ("reader walk cleaner", "a wrong checksum", READ, "it is checked before them"),
        ("consumer numpy c", "a marker", [], "it is for no reader"),
        ("numpy c", "a batch cut short", [], "a fetch may end so; the next brings it whole"),
        ("numpy c", "the largest time", REFUSED, "Spark counts in microseconds"),
        ("walk", "gaps", REFUSED, "no producer leaves any: the validator looks again"),
        ("walk cleaner", "fewer offsets|an offset beyond", READ, "the last offset is not for them"),
        ("walk cleaner", "log append time", READ, "they tell each record's own time"),
        ("cleaner", "a time beyond|offsets", READ, "they stay as they were appended"),
        ("cleaner", "a value|a header|.* headers", READ, "they go on as bytes, not looked at"),
    )
]
NOT_PRODUCED = "emptied|gaps|a gap|a marker|the la|numbers of one to"
"""Entries that clients may read but not produce; for the last two kinds, because a value is too far
ahead or because of the base offset."""


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[ModuleType, ModuleType]:
    directory = tmp_path_factory.mktemp("built")
    return build("kserver.wire._walk", directory), build("kcli.spark._columns", directory)


@pytest.fixture(scope="module")
def decode(built):
    """A function from a decoder's name and a batch to the decoder's result."""
    walk, columns = built
    decoders = {
        "reader": lambda data: RecordBatch(data).records(),
        "consumer": consumed,
        "walk": lambda data: walked(walk, RecordBatch(data)),
        "cleaner": lambda data: scanned(RecordBatch(data)),
        "numpy": lambda data: spark_rows(data, None),
        "c": lambda data: spark_rows(data, columns.decode),
    }

    def decode(decoder: str, data: bytes) -> Any:
        try:
            return decoders[decoder](exactly(data))
        except (KafkaError, ProtocolError):
            return REFUSED

    return decode


def consumed(data: memoryview) -> list[Record]:
    fetch = CompletedFetch(T, int.from_bytes(data[:8], signed=True), bytes(data))
    found: list[Record] = []
    while (some := fetch.take(2)) is not None:
        found += some.records
    return found


def walked(walk: ModuleType, batch: RecordBatch) -> Any:
    bounds = (-LARGEST - 1, LARGEST)
    body = exactly(batch.unfolded())
    found = walk.largest_timestamp(body, batch.count, batch.base_timestamp, *bounds, False)
    return REFUSED if found is None else found


def scanned(batch: RecordBatch) -> list[tuple[Any, ...]]:
    base, time = batch.base_offset, batch.base_timestamp
    return [(base + r[4], time + r[3], r[5], r[6]) for r in scan(batch.unfolded(), batch.count)]


def spark_rows(data: memoryview, decode: Any) -> list[Record]:
    """Decode with numpy unless `decode` is given."""
    pytest.importorskip("pyarrow", reason="the extra spark")
    from kcli.spark import batch_decoder, columns

    found: list[Record] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_decoder, "decode", decode or columns.decode)
        of = batch_decoder.visible(batches(data), T)
        for part in batch_decoder.arrow_batches(of, T, 0, 1 << 64, Record._fields):
            us = part["timestamp"].cast("int64").to_pylist()
            rows = part.drop_columns("timestamp").to_pylist()
            for time, row in zip(us, rows, strict=True):
                headers = tuple(tuple(header.values()) for header in row.pop("headers") or ())
                found.append(Record(timestamp=time // 1000, headers=headers, **row))
    return found


def shown(decoder: str, records: list[Record]) -> Any:
    """Return the expected result of a decoder for a batch with these records."""
    if decoder == "walk":
        return max([-1, *(record.timestamp for record in records)])
    if decoder == "cleaner":
        return [(r.offset, r.timestamp, r.key, r.value is not None) for r in records]
    return records


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize(("name", "data", "records"), CORPUS, ids=[entry.name for entry in CORPUS])
def test_every_decoder_reads_and_refuses_the_same(decode, decoder, name, data, records):
    expected = REFUSED if records is None else shown(decoder, records)
    found = decode(decoder, data)
    for rule in BY_DESIGN:
        if decoder in rule.decoders.split() and re.match(rule.names, name):
            assert found != expected, "this rule is needed no more"
            expected = found if rule.found is READ and found != REFUSED else rule.found
    assert found == expected


sizes = st.sampled_from([0, 0, 0, 2, 5])
gaps = st.sampled_from([1, 1, 1, 3, 70])
more = st.sampled_from([0, 0, 0, 0, 1, -1, 1 << 30])
beyond = st.sampled_from([0, 0, 0, 1, -1])
bases = st.sampled_from([NOW, NOW, 0, LARGEST, LARGEST - 100, -LARGEST - 1])
stamps = st.none() | st.just(NOW)


@given(records, sizes, gaps, edits, more, beyond, bases, stamps)
@settings(max_examples=400)
def test_changed_bytes_are_read_or_refused_by_all(
    decode, new, size, gap, edits, more, beyond, base, stamp
):
    body = slow_encode(new, [gap * n for n in range(len(new))], size)
    last = gap * (len(new) - 1) + beyond
    hold(decode, changed(body, edits), len(new) + more, last, base, stamp)


@given(st.integers(0, 1 << 32), more, beyond, bases, stamps)
def test_numbers_that_lie_are_read_or_refused_by_all(decode, seed, more, beyond, base, stamp):
    random = Random(seed)
    for _ in range(30):
        body, count = lying_records(random)
        hold(decode, body, count + more, count + more - 1 + beyond, base, stamp)


def hold(decode, body: bytes, count: int, last: int, base: int, stamp: int | None) -> None:
    last = max(0, last)
    data = sealed(
        body,
        base_offset=7,
        base_timestamp=base,
        max_timestamp=NOW,
        attributes=0 if stamp is None else LOG_APPEND_TIME,
        count=count,
        last_offset_delta=last,
    )
    expected = model(body, base, count, last, stamp)
    is_too_far = expected != REFUSED and any(abs(r.timestamp) > FARTHEST_MS for r in expected)
    assert decode("reader", data) == expected
    # Decode it twice in a row, so that a read beyond the batch's end reads records.
    twice = data + (8 + last).to_bytes(8) + data[8:]
    both = expected
    if expected != REFUSED:
        both = [*expected, *(r._replace(offset=r.offset + last + 1) for r in expected)]
    assert decode("consumer", twice) == both
    assert decode("numpy", twice) == decode("c", twice) == (REFUSED if is_too_far else both)
    if expected != REFUSED and stamp is None:
        assert decode("cleaner", data) == shown("cleaner", expected)
    else:
        decode("cleaner", data)
    if count > 0:  # checked before a walk; it ignores append time and last offset
        expected = model(body, base, count, count - 1, None)
        assert decode("walk", data) == (REFUSED if expected == REFUSED else shown("walk", expected))


def model(body: bytes, base: int, count: int, last: int, stamp: int | None) -> Any:
    try:
        return slow_decode(body, 7, base, count, last, stamp)
    except Refused:
        return REFUSED


@pytest.mark.parametrize("is_built", [True, False])
def test_a_broker_takes_nothing_that_a_consumer_would_stop_at(built, monkeypatch, is_built):
    largest_timestamp = built[0].largest_timestamp if is_built else lambda *_: None
    monkeypatch.setattr(validator, "largest_timestamp", largest_timestamp)
    taken = {entry.name for entry in CORPUS if is_taken(entry.data)}
    fine = {entry.name for entry in CORPUS if entry.records is not None}
    assert taken == {name for name in fine if not re.match(NOT_PRODUCED, name)}


def is_taken(data: bytes) -> bool:
    origin, batch = validator.Origin.client, memoryview(bytearray(data))
    named = {"first_offset": 0, "leader_epoch": 0, "compacted": False}
    try:
        validator.validate(batch, TopicConfig(), NOW, origin=origin, **named)
    except KafkaError:
        return False
    return True
