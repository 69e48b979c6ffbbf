"""Columns into batches: what a producer would have made of the rows one by one."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy", reason="the extra spark")

from random import Random

import numpy as np

pa = pytest.importorskip("pyarrow", reason="the extra spark")

from kcli.client.producer.partitioner import partition_for_key  # noqa: E402
from kcli.spark.batch_encoder import Columns, encoded, headers_of, partitions_of  # noqa: E402
from kserver.wire.batch import HEADER_SIZE, RecordBatch, batch_in_two, encode_batch  # noqa: E402

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def made(seed: int, count: int) -> list[tuple]:
    """Rows of all kinds: (time, key, value, headers)."""
    random = Random(seed)

    def some(most: int) -> bytes | None:
        return None if random.random() < 0.1 else random.randbytes(random.randrange(most))

    return [
        (
            1_700_000_000_000 + random.choice((0, 0, random.randrange(-100_000, 1 << 40))),
            some(random.choice((1, 20, 300))),
            some(random.choice((1, 100, 20_000))),
            tuple(
                (random.choice(("", "é", "n" * 80)), some(200))
                for _ in range(random.choice((0, 0, 3)))
            ),
        )
        for _ in range(count)
    ]


def columns(rows: list[tuple], *, headers: bool = True) -> Columns:
    named = [None if not h else [{"key": n, "value": v} for n, v in h] for *_, h in rows]
    return Columns(
        pa.array([value for _, _, value, _ in rows], pa.binary()),
        pa.array([key for _, key, _, _ in rows], pa.binary()),
        headers_of(pa.array(named, HEADERS)) if headers else None,
        np.array([time for time, *_ in rows], np.int64),
    )


@pytest.mark.parametrize("seed", range(20))
def test_batches_hold_the_bytes_that_rows_one_by_one_would_make(seed):
    rows = made(seed, 300)
    random = np.random.default_rng(seed)
    partitions = random.integers(0, 5, len(rows)) if seed % 2 else np.zeros(len(rows), np.int64)
    size = int(random.integers(200, 40_000))
    found: dict[int, list[tuple]] = {}
    for partition, records in encoded(columns(rows), partitions, size):
        batch = RecordBatch(b"".join(batch_in_two(records)))
        assert batch.is_valid_crc()
        read = [(r.timestamp, r.key, r.value, r.headers) for r in batch.records()]
        assert b"".join(batch_in_two(records)) == encode_batch(read)
        assert len(records.body) + HEADER_SIZE <= size or len(records) == 1
        assert records[: len(read)] == read
        found.setdefault(partition, []).extend(read)
    assert found == {
        p: [row for row, of in zip(rows, partitions, strict=True) if of == p]
        for p in set(partitions.tolist())
    }


def test_long_batches_have_offsets_of_more_bytes():
    rows = [(1_700_000_000_000, None, b"v", ())] * 20_000
    (batch,) = encoded(columns(rows, headers=False), np.zeros(len(rows), np.int64), 1 << 20)
    assert b"".join(batch_in_two(batch.records)) == encode_batch(rows)


def test_a_slice_of_a_column_is_read_as_itself():
    rows = made(99, 50)
    whole = columns(rows)
    part = Columns(*(column[10:40] for column in whole))
    (batch,) = encoded(part, np.zeros(30, np.int64), 1 << 30)
    assert [*batch.records[:]] == rows[10:40]
    assert [*encoded(Columns(*(column[:0] for column in whole)), np.zeros(0, np.int64), 1000)] == []


@pytest.mark.parametrize("partitions", [1, 3, 50])
def test_keys_go_where_the_producer_sends_them(partitions):
    random = Random(partitions)
    keys = [random.randbytes(random.randrange(40)) for _ in range(500)] + [b"", b"\xff" * 1001]
    found = partitions_of(pa.array([b"x", *keys, b"y"], pa.binary())[1:-1], partitions)
    assert found.tolist() == [partition_for_key(key, partitions) for key in keys]
