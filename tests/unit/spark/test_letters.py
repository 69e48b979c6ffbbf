"""Rows that cannot be written, as records of another topic: whole where they fit, else told."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="the extra spark")


from kcli.spark.letters import letter_of
from kcli.spark.rows import NewRow
from kserver.wire.batch import encode_batch

OWN = (("own", b"v" * 50),)


def row(value: bytes | None, key: bytes | None = b"k", headers=OWN, topic="t", partition=3):
    return NewRow(topic, value, key, partition, None, headers)


def test_it_is_kept_with_the_reason():
    key, value, headers = letter_of(row(b"v"), "too odd", 1000)
    assert (key, value) == (b"k", b"v")
    assert headers == (
        ("k.dlq.reason", b"too odd"),
        ("k.dlq.topic", b"t"),
        ("k.dlq.partition", b"3"),
        *OWN,
    )
    bare = letter_of(row(None, None, (), None, None), "x" * 10_000, 1000)
    assert (bare.key, bare.value) == (None, None)
    assert bare.headers == (("k.dlq.reason", b"x" * 500),)


def test_one_that_was_a_dead_letter_before_says_what_is_wrong_now_and_keeps_its_attempts():
    before = (("k.dlq.reason", b"old"), ("k.dlq.attempts", b"2"), ("k.dlq.offset", b"7"), *OWN)
    _, _, headers = letter_of(row(b"v", headers=before), "new", 1000)
    assert headers == (
        ("k.dlq.reason", b"new"),
        ("k.dlq.topic", b"t"),
        ("k.dlq.partition", b"3"),
        ("k.dlq.attempts", b"2"),
        *OWN,
    )


@pytest.mark.parametrize(
    ("given", "cut"),
    [
        (row(b"v" * 5000), {"k.dlq.value.length": b"5000"}),
        (row(b"v" * 10, b"k" * 5000), {"k.dlq.value.length": b"10", "k.dlq.key.length": b"5000"}),
        (row(None, b"k" * 5000), {"k.dlq.key.length": b"5000"}),
        (
            row(b"v", b"k", [("own", b"v" * 5000)] * 2),
            {
                "k.dlq.value.length": b"1",
                "k.dlq.key.length": b"1",
                "k.dlq.headers.count": b"2",
            },
        ),
    ],
)
def test_what_is_too_large_is_cut_and_its_length_told(given, cut):
    key, value, headers = letter_of(given, "too large", 2000)
    told = {n: v for n, v in headers if n.startswith("k.dlq.") and n[6:] not in _WHERE}
    assert told == cut
    assert len(encode_batch([(0, key, value, headers)])) <= 2000
    assert given.value is None or given.value.startswith(value)


_WHERE = {"reason", "topic", "partition"}
