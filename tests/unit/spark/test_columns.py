"""Where records begin, in bytes that are whole and in bytes that are not."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy", reason="the extra spark")

from hypothesis import given
from hypothesis import strategies as st

from kcli.spark.columns import record_starts
from kserver.errors import ProtocolError
from kserver.wire import varint

AFTER = b"\0" * 16


@given(st.lists(st.lists(st.sampled_from([0, 6, 63, 64, 8191, 8192, 70_000]), max_size=4)))
def test_each_begins_where_the_one_before_ends(batches):
    bodies, starts, at = [], [], 0
    for sizes in batches:
        records = [varint.encode(size) + b"\xff" * size for size in sizes]
        bodies.append(b"".join(records))
        for record in records:
            starts.append(at)
            at += len(record)
    data = b"".join([*bodies, AFTER])
    assert record_starts(data, [*map(len, bodies)], [*map(len, batches)]) == starts


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (varint.encode(3) + b"xx", 1),  # cut short
        (varint.encode(1) + b"xx", 1),  # more than the record
        (varint.encode(1) + b"x", 2),  # fewer than so many
        (b"\xff\xff\xff\xff\xff\xff", 1),  # no length
    ],
)
def test_records_that_do_not_fill_their_batch_are_refused(data, count):
    with pytest.raises(ProtocolError):
        record_starts(data + AFTER, [len(data)], [count])
