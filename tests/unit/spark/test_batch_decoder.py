"""Record batches into columns: the same records as the plain decoder's, in every codec."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow", reason="the extra spark")
pytest.importorskip("numpy", reason="the extra spark")

from kcli.client.consumer.completed_fetch import AbortedProducer as ChunkAborted  # noqa: E402
from kcli.client.consumer.completed_fetch import CompletedFetch  # noqa: E402
from kcli.spark import batch_decoder, columns  # noqa: E402
from kcli.spark.batch_decoder import TYPES, AbortedRange, arrow_batches, visible  # noqa: E402
from kserver.errors import KafkaError  # noqa: E402
from kserver.model import TopicPartition  # noqa: E402
from kserver.wire.batch import (  # noqa: E402
    batches,
    encode_batch,
    end_transaction_marker,
)
from tests.support.extensions import build  # noqa: E402
from tests.support.record_bytes import fetches  # noqa: E402

PARTITION = TopicPartition("t", 3)
COLUMNS = list(TYPES)
FAR = 1 << 62


@pytest.fixture(scope="module", autouse=True, params=["numpy", "c"])
def decode(request, tmp_path_factory):
    """Each test by each of the two that there are."""
    found = columns.decode
    if request.param == "c":
        found = build("kcli.spark._columns", tmp_path_factory.mktemp("built")).decode
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_decoder, "decode", found)
        yield


def decoded(data: bytes, start: int = 0, end: int = FAR, columns=COLUMNS, **named) -> list[dict]:
    aborted = named.pop("aborted", ())
    found = visible(batches(data), PARTITION, aborted, check_crcs=named.pop("check_crcs", True))
    rows: list[dict] = []
    for batch in arrow_batches(found, PARTITION, start, end, columns, **named):
        batch.validate(full=True)
        assert batch.schema.names == columns
        assert batch.num_rows
        assert batch.schema.types == [TYPES[name] for name in columns]
        as_ms = batch.to_pylist()
        if "timestamp" in columns:
            for row, us in zip(as_ms, batch["timestamp"].cast(pa.int64()).to_pylist(), strict=True):
                row["timestamp"] = us // 1000
        rows += as_ms
    return rows


def plain(data: bytes, start: int = 0, end: int = FAR, aborted=(), check_crcs=True) -> list[dict]:
    chunk = CompletedFetch(
        PARTITION, start, data, aborted=[ChunkAborted(*a) for a in aborted], check_crcs=check_crcs
    )
    rows = []
    while batch := chunk.take(1000):
        rows += [
            {
                "key": key,
                "value": value,
                "topic": "t",
                "partition": 3,
                "offset": offset,
                "timestamp": timestamp,
                "timestampType": int(batch.timestamp_type),
                "headers": [{"key": k, "value": v} for k, v in these] or None,
            }
            for offset, timestamp, key, value, these in batch.rows
            if offset < end
        ]
    return rows


@given(fetches(), st.integers(1, 20_000))
def test_all_columns_are_what_the_plain_decoder_reads(data, max_bytes):
    assert decoded(data, max_bytes=max_bytes) == plain(data)


@given(fetches(), st.data())
def test_a_range_begins_and_ends_within_batches(data, choose):
    every = [row["offset"] for row in plain(data)]
    start = choose.draw(st.integers(every[0], every[-1]))
    end = choose.draw(st.integers(start, every[-1] + 2))
    assert decoded(data, start, end) == plain(data, start, end)


@given(fetches(), st.lists(st.sampled_from(COLUMNS), unique=True, min_size=1))
def test_only_the_wanted_columns_in_the_wanted_order(data, columns):
    assert decoded(data, columns=columns) == [
        {name: row[name] for name in columns} for row in plain(data)
    ]


def transaction(offset: int, producer: int, count: int, commit: bool | None) -> bytes:
    """Its records, and its end where it has one."""
    named = {"producer_id": producer, "producer_epoch": 0, "transactional": True}
    data = encode_batch(
        [(0, None, b"%d" % producer, ())] * count, base_offset=offset, base_sequence=0, **named
    )
    if commit is not None:
        marker = end_transaction_marker(commit, 0)
        data += encode_batch([(0, *marker, ())], base_offset=offset + count, control=True, **named)
    return data


def test_what_aborted_transactions_wrote_is_left_out_and_markers_always():
    data = transaction(0, 7, 2, None)
    data += transaction(2, 8, 2, True)  # ends at 4
    data += transaction(5, 7, 1, False)  # the end of what began at 0
    data += transaction(7, 7, 1, True)
    aborted = [AbortedRange(0, 7)]
    found = decoded(data, aborted=aborted)
    assert found == plain(data, aborted=aborted)
    assert [row["offset"] for row in found] == [2, 3, 7]
    assert [row["offset"] for row in decoded(data)] == [0, 1, 2, 3, 5, 7]


def test_a_wrong_checksum_is_refused_by_its_offset():
    data = bytearray(encode_batch([(0, None, b"value", ())], base_offset=42))
    data[-2] ^= 1
    with pytest.raises(KafkaError, match="offset 42 of t-3"):
        decoded(bytes(data), 42)


def test_a_batch_of_many_records_is_cut_into_several():
    data = encode_batch([(0, None, b"x" * 100, ())] * 100)
    found = list(
        arrow_batches(
            visible(batches(data), PARTITION), PARTITION, 0, FAR, ["value"], max_bytes=1000
        )
    )
    assert sum(batch.num_rows for batch in found) == 100
    assert all(batch.nbytes < 2000 for batch in found)


def test_no_columns_are_counted_still():
    data = encode_batch([(0, None, b"x", ())] * 5)
    found = list(arrow_batches(visible(batches(data), PARTITION), PARTITION, 1, FAR, []))
    assert [batch.num_rows for batch in found] == [4]
