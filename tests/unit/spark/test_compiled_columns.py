"""`_columns.c` and its stand-in with numpy: the same columns of the same bytes, or both refuse."""

from __future__ import annotations

from random import Random
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow", reason="the extra spark")
pytest.importorskip("numpy", reason="the extra spark")

from kcli.spark.columns import ColumnBatch, decode  # noqa: E402
from kserver.errors import ProtocolError  # noqa: E402
from kserver.wire.batch import LOG_APPEND_TIME, batches, encode_batch  # noqa: E402
from tests.support.extensions import build, exactly  # noqa: E402
from tests.support.record_bytes import fetches, lying_records, records  # noqa: E402

LARGEST = (1 << 63) - 1
WANTED = st.tuples(st.booleans(), st.booleans(), st.booleans())


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> ModuleType:
    return build("kcli.spark._columns", tmp_path_factory.mktemp("built"))


def parts(data: bytes) -> list[ColumnBatch]:
    return [
        ColumnBatch(
            exactly(batch.unfolded()),
            batch.count,
            batch.base_offset,
            batch.last_offset_delta,
            batch.base_timestamp,
            bool(batch.attributes & LOG_APPEND_TIME),
        )
        for batch in batches(data)
    ]


def shown(columns) -> dict[str, list]:
    """As values, after Arrow has looked at everything."""
    starts, offsets, times, keys, values, headers = columns
    count = memoryview(offsets).nbytes // 8
    assert memoryview(starts).nbytes == memoryview(times).nbytes == 8 * count
    found = {
        "starts": bytes(starts),
        "offsets": bytes(offsets),
        "times": bytes(times),
        "keys": keys and of(pa.binary(), count, keys),
        "values": values and of(pa.binary(), count, values),
    }
    if headers:
        lists, names, contents = headers
        all_ = memoryview(names[1]).nbytes // 4 - 1
        children = [
            pa.Array.from_buffers(pa.binary(), all_, buffers(some)) for some in (names, contents)
        ]
        for position, name in enumerate(("names", "contents")):
            found[name] = of(pa.list_(pa.binary()), count, lists, [children[position]])
    return found


def of(type_, count: int, some: list, children: list | None = None) -> list:
    array = pa.Array.from_buffers(type_, count, buffers(some), children=children)
    array.validate(full=True)
    return array.to_pylist()


def buffers(some: list) -> list:
    return [None if buffer is None else pa.py_buffer(buffer) for buffer in some]


def outcome(decoder, *given):
    try:
        return shown(decoder(*given))
    except ProtocolError:
        return "refused"


@given(fetches(), WANTED)
def test_both_find_the_same_in_what_producers_send(compiled, data, wanted):
    found = outcome(compiled.decode, parts(data), *wanted)
    assert found == outcome(decode, parts(data), *wanted)
    assert found != "refused"


@given(st.integers(0, 1 << 32))
def test_both_refuse_the_same_of_what_lies(compiled, seed):
    random = Random(seed)
    for _ in range(50):
        body, count = lying_records(random)
        count += random.choice((0, 0, 0, 0, 0, 0, -1, 1))
        last = count - 1 + random.choice((0, 0, -1, 1))
        base, time = (random.choice((0, 5, LARGEST - 100, -LARGEST)) for _ in range(2))
        one = ColumnBatch(exactly(body), count, base, last, time, random.random() < 0.2)
        given = [one] * random.choice((1, 2))
        assert outcome(compiled.decode, given, True, True, True) == outcome(
            decode, given, True, True, True
        ), (given, bytes(body))


@given(st.lists(st.lists(records, min_size=1, max_size=4), min_size=1, max_size=3), st.data())
def test_both_refuse_the_same_of_what_was_spoilt(compiled, some, choose):
    whole = parts(b"".join(map(encode_batch, some)))
    spoilt = []
    for batch in whole:
        body = bytearray(batch.body)
        for _ in range(choose.draw(st.integers(0, 2))):
            at = choose.draw(st.integers(0, len(body) - 1))
            body[at] = choose.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF]))
        cut = choose.draw(st.sampled_from([0, 0, 0, 1, 5, len(body)]))
        spoilt.append(batch._replace(body=exactly(bytes(body[: len(body) - cut]))))
    assert outcome(compiled.decode, spoilt, True, True, True) == outcome(
        decode, spoilt, True, True, True
    )


def test_none_at_all_are_columns_of_nothing(compiled):
    for none in ([], [ColumnBatch(b"", 0, 7, 0, 0, False)]):
        found = outcome(compiled.decode, none, True, True, True)
        assert found == outcome(decode, none, True, True, True)
        assert found["values"] == []


@pytest.mark.parametrize("decoder", ["compiled", "numpy"])
@pytest.mark.parametrize("size", [9, 10])
def test_a_number_may_have_ten_bytes_and_no_more(compiled, decoder, size):
    number = b"\x80" * size + b"\0"
    rest = b"\0" + number + b"\0\1\1\0"  # attributes, time, offset, key, value, headers
    body = bytes([2 * len(rest)]) + rest
    found = outcome(
        decode if decoder == "numpy" else compiled.decode,
        [ColumnBatch(exactly(body), 1, 0, 0, 0, False)],
        *(True, True, True),
    )
    assert (found == "refused") == (size == 10)


def test_a_buffer_of_no_batch_is_given_back(compiled):
    """After a refusal too: a bytearray that is looked at cannot grow."""
    bodies = [bytearray(b"\0" * 20), bytearray(encode_batch([(0, None, b"v", ())])[61:])]
    given = [ColumnBatch(memoryview(body), 1, 0, 0, 0, False) for body in bodies]
    assert outcome(compiled.decode, given, True, True, True) == "refused"
    assert outcome(compiled.decode, given[1:], True, True, True) != "refused"
    for batch in given:
        batch.body.release()
    for body in bodies:
        body.append(0)


@pytest.mark.parametrize("wrong", [None, (b"",), ("text", 0, 0, 0, 0, False), [b"", 0, 0, 0, 0, 0]])
def test_what_is_no_batch_is_a_type_error_or_the_like_not_a_crash(compiled, wrong):
    with pytest.raises((TypeError, SystemError)):
        compiled.decode([wrong], True, True, True)
