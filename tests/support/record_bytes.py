"""Bytes of record batches for property tests: valid ones of producers, and invalid ones."""

from __future__ import annotations

from random import Random

from hypothesis import strategies as st

from kserver.wire.batch import TimestampType, encode_batch
from kserver.wire.compression import Compression

sizes = st.one_of(st.integers(0, 70), st.integers(8000, 9000))
content = st.one_of(st.none(), st.binary(max_size=20), sizes.map(lambda n: Random(n).randbytes(n)))
headers = st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=70))))
times = st.integers(-1, 1 << 45)
records = st.tuples(times, content, content, headers.map(tuple))
codecs = st.sampled_from(Compression)
kinds = st.sampled_from(TimestampType)


@st.composite
def fetches(draw) -> bytes:
    """Batches one after the other, in every codec, with gaps between them."""
    data, offset = b"", draw(st.integers(0, 1 << 40))
    for some in draw(st.lists(st.lists(records, min_size=1, max_size=8), min_size=1, max_size=4)):
        data += encode_batch(
            some, base_offset=offset, compression=draw(codecs), timestamp_type=draw(kinds)
        )
        offset += len(some) + draw(st.integers(0, 3))
    return data


NUMBERS = (0, 1, 2, 3, 126, 127, 128, (1 << 32) - 2, 1 << 32, (1 << 63) + 1, (1 << 64) - 1, 1 << 64)


def varint(number: int, least: int = 1) -> bytes:
    """Encode in as many bytes as needed, and at least `least`."""
    out = b""
    while number >= 0x80 or len(out) < least - 1:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def lying_records(random: Random) -> tuple[bytes, int]:
    """Return records, and their number. In some, one number is wrong, or some bytes longer than
    needed; others are valid.
    """
    count = random.randint(1, 4)
    numbers = [0, 0]  # the number of records written; the index of the wrong one
    numbers[1] = random.randint(1, 12 * count)

    def number(true: int) -> bytes:
        numbers[0] += 1
        if numbers[0] != numbers[1]:
            return varint(true)
        lie = random.choice((true, true, true - 1, true + 1, true + 2, true - 2, *NUMBERS))
        return varint(max(0, lie), random.choice((1, 1, 2, 5, 6, 9, 10, 11)))

    def slot() -> bytes:
        size = random.choice((-1, 0, 1, 2, 9))
        return number(1 if size < 0 else 2 * size) + b"x" * size

    out = b""
    for place in range(count):
        headers = random.choice((0, 0, 0, 1, 2))
        body = b"\0" + number(random.choice((0, 5, 300))) + number(2 * place) + slot() + slot()
        body += number(2 * headers)
        body += b"".join(number(2) + b"n" + slot() for _ in range(headers))
        out += number(2 * len(body)) + body
    return out, count
