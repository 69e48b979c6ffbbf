"""msgpack into columns: what fits, what does not and why, and what bytes that lie cost."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="the extra spark")

import datetime
import tracemalloc

import msgpack
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from kcli.spark.msgpack_values import decode_msgpack, encode_msgpack, leaf_converter, parse
from kcli.spark.schema_converter import ONE_BY_ONE, converter_of, decode_each
from kserver.errors import ConfigError


def one(value: bytes, kind: pa.DataType):
    """What became of one value: its data, or the reason."""
    data, reasons = decode_msgpack(pa.array([value], pa.binary()), kind)
    assert data.type == kind
    assert not (data[0].is_valid and reasons[0].is_valid)
    return reasons[0].as_py() or data[0].as_py()


def field(found: object, kind: pa.DataType):
    """The same of `found` as the field x of a map."""
    told = one(msgpack.packb({"x": found}), pa.struct([("x", kind)]))
    return told["x"] if isinstance(told, dict) else told


@pytest.mark.parametrize(
    ("kind", "found", "kept"),
    [
        (pa.int8(), -128, -128),
        (pa.int64(), (1 << 63) - 1, (1 << 63) - 1),
        (pa.int64(), None, None),
        (pa.int8(), 128, "x: 128 has more than 8 bits"),
        (pa.int64(), 1 << 63, "x: 9223372036854775808 has more than 64 bits"),
        (pa.int64(), 1.0, "x: expected an integer, found a float"),
        (pa.int64(), True, "x: expected an integer, found a boolean"),
        (pa.int64(), "1", "x: expected an integer, found a string"),
        (pa.float64(), 1.5, 1.5),
        (pa.float64(), 3, 3.0),
        (pa.float32(), 0.5, 0.5),
        (pa.float64(), "1.5", "x: expected a float, found a string"),
        (pa.bool_(), False, False),
        (pa.bool_(), 0, "x: expected a boolean, found an integer"),
        (pa.string(), "é", "é"),
        (pa.string(), b"e", "x: expected a string, found binary"),
        (pa.binary(), b"\xff", b"\xff"),
        (pa.binary(), "é", "é".encode()),
        (pa.binary(), [1], "x: expected binary, found an array"),
        (pa.list_(pa.int32()), [1, None], [1, None]),
        (pa.list_(pa.int32()), [1, "a"], "x[1]: expected an integer, found a string"),
        (pa.list_(pa.int32()), {"a": 1}, "x: expected an array, found a map"),
        (pa.map_(pa.string(), pa.int32()), {"a": 1}, [("a", 1)]),
        (pa.map_(pa.int16(), pa.string()), {1: None}, [(1, None)]),
        (pa.map_(pa.string(), pa.int32()), {1: 1}, "x[1]: expected a string, found an integer"),
        (pa.map_(pa.string(), pa.int32()), {None: 1}, "x[None]: is null or missing"),
        (pa.struct([("y", pa.int32())]), {"z": 1}, {"y": None}),
        (pa.struct([("y", pa.int32())]), {"y": []}, "x.y: expected an integer, found an array"),
        (pa.struct([pa.field("y", pa.int32(), False)]), {}, "x.y: is null or missing"),
    ],
)
def test_a_type_takes_what_it_says_and_nothing_else(kind, found, kept):
    assert field(found, kind) == kept


@pytest.mark.parametrize(
    ("seconds", "nanoseconds", "micros"),
    [(5, 1999, 5_000_001), (-1, 999_999_999, -1), (1 << 34, 0, 1_000_000 << 34)],
)
def test_times_of_all_three_lengths_are_cut_to_microseconds(seconds, nanoseconds, micros):
    found = msgpack.packb({"x": msgpack.Timestamp(seconds, nanoseconds)})
    for zone in ("UTC", None):
        kind = pa.struct([("x", pa.timestamp("us", zone))])
        data, _ = decode_msgpack(pa.array([found]), kind)
        assert data.field("x").cast(pa.int64())[0].as_py() == micros


def test_a_time_that_spark_cannot_tell_is_a_reason():
    told = field(msgpack.Timestamp(1 << 62, 0), pa.timestamp("us", "UTC"))
    assert told == "x: a timestamp outside Spark's range"
    told = field(msgpack.ExtType(7, b""), pa.timestamp("us", "UTC"))
    assert told == "x: expected a timestamp, found an extension"


X = pa.struct([("x", pa.int64())])


def test_of_a_key_that_comes_twice_the_last_one_counts():
    assert one(b"\x82\xa1x\x01\xa1x\x02", X) == {"x": 2}
    assert one(b"\x82\xa1x\x01\xa1x\x02", pa.map_(pa.string(), pa.int32())) == [("x", 2)]


def test_keys_that_are_no_strings_and_fields_that_nobody_asked_for_are_passed_over():
    assert one(b"\x84\x91\x01\x02\x80\x03\xa1\xff\x04\xa1x\x05", X) == {"x": 5}
    assert one(b"\x82\xa1y\xa1\xff\xa1x\x05", X) == {"x": 5}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (b"", "not msgpack: it is truncated"),
        (b"\x81\xa1x", "not msgpack: it is truncated"),
        (b"\xc1", "not msgpack: a byte does not begin a value"),
        (b"\x80\x80", "not msgpack: 1 bytes follow the value"),
        (b"\xc0", "is null or missing"),
        (b"\x05", "expected a map, found an integer"),
        (b"\x81\xa1x" + b"\x91" * 5000 + b"\xc0", "refused: it is nested too deeply"),
        (b"\xdf\xff\xff\xff\xff\xa1x\x01", "not msgpack: it is truncated"),
        (b"\x81\xa1x\xdb\xff\xff\xff\xffabc", "not msgpack: it is truncated"),
        (b"\x81\xa1x\xc7\x00\xff", "not msgpack: "),
    ],
)
def test_what_is_not_one_value_has_a_reason(value, told):
    assert told in one(value, X)


def test_lengths_that_lie_cost_nothing():
    """Each array says that it is as long as the value, and each is within the one before."""
    value = b"\xdd\x00\x0f\xff\xff" * 1000 + b"\xc0" * 1_000_000
    tracemalloc.start()
    try:
        assert one(value, X) == "not msgpack: it is truncated"
        assert tracemalloc.get_traced_memory()[1] < 4 * len(value)
    finally:
        tracemalloc.stop()


def test_one_bad_value_takes_no_other_with_it():
    good = msgpack.packb({"x": 1})
    data, reasons = decode_msgpack(pa.array([good, None, b"\xc1", good], pa.binary()), X)
    assert data.to_pylist() == [{"x": 1}, None, None, {"x": 1}]
    assert [reason is None for reason in reasons.to_pylist()] == [True, True, False, True]


def test_types_that_msgpack_has_not_are_refused_by_name():
    for kind, name in ((pa.decimal128(9, 2), "decimal"), (pa.date32(), "date32")):
        with pytest.raises(ConfigError, match=rf"the schema has a\.b as {name}"):
            decode_msgpack(pa.array([b""]), pa.struct([("a", pa.struct([("b", kind)]))]))


ALL = pa.struct(
    [
        ("i", pa.int64()),
        ("f", pa.float64()),
        ("b", pa.bool_()),
        ("s", pa.string()),
        ("y", pa.binary()),
        ("t", pa.timestamp("us", "UTC")),
        ("l", pa.list_(pa.list_(pa.int32()))),
        ("m", pa.map_(pa.string(), pa.struct([("q", pa.float32())]))),
    ]
)
micros = st.integers(-(6 * 10**16), 10**17).map(
    lambda us: (
        datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=us)
    )
)
rows = st.fixed_dictionaries(
    {
        "i": st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
        "f": st.none() | st.floats(allow_nan=False),
        "b": st.none() | st.booleans(),
        "s": st.none() | st.text(),
        "y": st.none() | st.binary(),
        "t": st.none() | micros,
        "l": st.none() | st.lists(st.none() | st.lists(st.none() | st.integers(-9, 9))),
        "m": st.none()
        | st.dictionaries(st.text(), st.none() | st.fixed_dictionaries({"q": st.just(0.5)})).map(
            lambda of: list(of.items())
        ),
    }
)


@given(st.lists(st.none() | rows, max_size=8), st.integers(0, 3))
def test_what_is_written_is_read(values, skip):
    column = pa.array(values, ALL)[skip:]
    data, reasons = decode_msgpack(encode_msgpack(column), ALL)
    assert data.equals(column)
    assert reasons.null_count == len(column)
    plain = [msgpack.unpackb(e.as_py()) for e in encode_msgpack(column) if e.is_valid]
    assert [row["i"] for row in plain] == [row["i"] for row in values[skip:] if row is not None]


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=2)
    | st.binary(max_size=2)
    | st.builds(msgpack.Timestamp, st.integers(-(1 << 63), (1 << 63) - 1))
    | st.just(msgpack.ExtType(5, b"x")),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from([*ALL.names, "q", 1, None, b"i", "\udc80"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)
packed = st.builds(lambda found: msgpack.packb(found, unicode_errors="surrogateescape"), anything)
REQUIRED = pa.struct(
    [
        pa.field("i", pa.int64(), False),
        ("l", pa.list_(pa.field("element", pa.list_(pa.int32()), False))),
        ("m", pa.map_(pa.int64(), pa.binary())),
    ]
)


@given(
    st.sampled_from([ALL, REQUIRED]),
    st.lists(st.none() | packed | st.binary(max_size=6), max_size=4),
    st.lists(rows, max_size=6),
    st.sampled_from([1, 1, 30]),
)
@example(ALL, [msgpack.packb({"t": msgpack.Timestamp(1 << 40)})], [], 1)
def test_all_at_once_is_what_it_is_one_by_one(kind, odd, plain, times):
    good = encode_msgpack(pa.array(plain, ALL)).to_pylist()
    values = [*odd, *good * times, *odd]
    all_at_once = decode_msgpack(pa.array(values, pa.binary()), kind)
    one_by_one = decode_each(values, kind, parse, converter_of(kind, leaf_converter))
    assert all_at_once.data.equals(one_by_one.data)
    assert all_at_once.reasons.to_pylist() == one_by_one.reasons.to_pylist()


def test_what_fits_is_read_at_once(monkeypatch):
    """Else nothing would show that it is no slower than it is said to be."""
    row = {"i": 1, "l": [[1], None], "m": {"a": {"q": 1.5}}, "t": msgpack.Timestamp(1, 5)}
    values = [msgpack.packb(row | {"s": str(n), "more": [{}]}) for n in range(3000)]
    looked_at: list[bytes] = []
    monkeypatch.setattr(
        "kcli.spark.msgpack_values.parse", lambda value: looked_at.append(value) or parse(value)
    )
    data, reasons = decode_msgpack(pa.array([*values, None]), ALL)
    assert (reasons.null_count, looked_at) == (3001, [])
    assert data.field("s")[2999].as_py() == "2999"
    values[2000] = b"\x81"
    data, reasons = decode_msgpack(pa.array(values), ALL)
    assert b"\x81" in looked_at
    assert len(looked_at) <= ONE_BY_ONE
    assert reasons.null_count == data.null_count + 2998 == 2999


def test_a_type_that_msgpack_has_not_is_not_written():
    with pytest.raises(ConfigError, match=r"a is date32\[day\], which msgpack does not have"):
        encode_msgpack(pa.array([{"a": datetime.date(2020, 1, 1)}]))
    assert encode_msgpack(pa.array([{}, None], pa.struct([]))).to_pylist() == [b"\x80", None]
