from __future__ import annotations

import zlib
from random import Random

import pytest

from kcli.perf.payloads import POOL_BYTES, Counting, Letters, OfFile, letters, split


def test_letters_are_upper_case_and_all_of_them_come():
    assert set(letters(20_000, Random(0))) == set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ")


@pytest.mark.parametrize("size", [1, 100, 1 << 20, POOL_BYTES, 2 * POOL_BYTES])
def test_each_value_has_the_size_that_was_asked_for(size):
    payloads = Letters(size, 3, Random(0))
    at = 0
    while at < 7:
        taken = payloads.take(at, 7 - at)
        assert 1 <= len(taken) <= 7 - at
        assert {len(value) for value in taken} == {size}
        at += len(taken)


def test_values_do_not_compress_better_because_they_come_from_a_pool():
    batch = b"".join(Letters(200, 10**9, Random(0)).take(0, 2000))
    fresh = letters(len(batch), Random(1))
    assert len(zlib.compress(batch)) == pytest.approx(len(zlib.compress(fresh)), rel=0.01)


def test_the_pool_is_bounded_and_begins_again():
    payloads = Letters(1000, 10**12, Random(0))
    pool = POOL_BYTES // 1000
    assert payloads.take(0, 1) == payloads.take(pool, 1) != payloads.take(1, 1)
    assert len(payloads.take(pool - 1, 100)) == 1


def test_values_of_a_file_all_come():
    assert set(OfFile([b"a", b"b", b"c"], Random(0)).take(0, 200)) == {b"a", b"b", b"c"}


def test_counting_says_the_number_of_the_record():
    assert Counting().take(9, 3) == [b"9", b"10", b"11"]


@pytest.mark.parametrize(
    ("text", "delimiter", "parts"),
    [
        ("a\nbb\n\nccc\n", "\n", [b"a", b"bb", b"", b"ccc"]),
        ("a,b;c,,", "[,;]", [b"a", b"b", b"c"]),
        ("alone", "\n", [b"alone"]),
        ("a1b2c", "([0-9])", [b"a", b"b", b"c"]),
        ("ab", "", [b"a", b"b"]),
        ("a.b", r"\Q.\E", [b"a", b"b"]),
        ("\n\n", "\n", [b""]),
        ("ä|ö", r"\|", ["ä".encode(), "ö".encode()]),
    ],
)
def test_a_file_is_split_as_java_splits_a_text(text, delimiter, parts):
    assert split(text, delimiter) == parts
