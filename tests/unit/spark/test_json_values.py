"""JSON into columns: what fits, what does not and why; both readers make the same of every text."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="the extra spark")

import datetime
import decimal
import json

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from kcli.spark.json_values import decode_json, leaf_converter, parse
from kcli.spark.schema_converter import ONE_BY_ONE, converter_of, decode, decode_each
from kserver.errors import ConfigError


def one(text: str | bytes, kind: pa.DataType):
    value = text.encode() if isinstance(text, str) else text
    data, reasons = decode_json(pa.array([value], pa.binary()), kind)
    assert data.type == kind
    assert not (data[0].is_valid and reasons[0].is_valid)
    return reasons[0].as_py() or data[0].as_py()


def field(text: str, kind: pa.DataType):
    told = one('{"x":' + text + "}", pa.struct([("x", kind)]))
    return told["x"] if isinstance(told, dict) else told


UTC = datetime.UTC
TIMES = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("kind", "text", "kept"),
    [
        (pa.int8(), "-128", -128),
        (pa.int8(), "128", "x: 128 has more than 8 bits"),
        (pa.int64(), "null", None),
        (pa.int64(), "9223372036854775808", "x: 9223372036854775808 has more than 64 bits"),
        (pa.int64(), "1.0", "x: expected an integer, found a float"),
        (pa.int64(), "true", "x: expected an integer, found a boolean"),
        (pa.float64(), "1e3", 1000.0),
        (pa.float64(), "3", 3.0),
        (pa.float64(), '"-Infinity"', float("-inf")),
        (pa.float64(), '"3"', "x: expected a number, found a string"),
        (pa.float64(), "1" + "0" * 400, "x: an integer too large for a float"),
        (pa.bool_(), "false", False),
        (pa.bool_(), "0", "x: expected a boolean, found an integer"),
        (pa.string(), '"é\\u00e9"', "éé"),
        (pa.string(), "1.50", "1.50"),
        (pa.string(), '{"a": [1, {"b": null}]}', '{"a":[1,{"b":null}]}'),
        (pa.binary(), '"AQI="', b"\1\2"),
        (pa.binary(), '"A"', "x: a string that is not base64"),
        (pa.decimal128(5, 2), "1.005", decimal.Decimal("1.01")),
        (pa.decimal128(5, 2), '"12"', decimal.Decimal("12.00")),
        (pa.decimal128(5, 2), "999.999", "x: a number that does not fit decimal(5,2)"),
        (pa.decimal128(5, 2), "1e9999999", "x: a number that does not fit decimal(5,2)"),
        (pa.decimal128(5, 2), '"NaN"', "x: a number that does not fit decimal(5,2)"),
        (pa.decimal128(5, 2), '"x"', "x: expected a number, found a string"),
        (pa.date32(), '"2020-02-29"', datetime.date(2020, 2, 29)),
        (pa.date32(), '"2021-02-29"', "x: a string that is not a date, such as 2020-01-31"),
        (TIMES, "60", datetime.datetime(1970, 1, 1, 0, 1, tzinfo=UTC)),
        (
            TIMES,
            '"2020-01-31T23:59:59.1234567+01:00"',
            datetime.datetime(2020, 1, 31, 22, 59, 59, 123456, tzinfo=UTC),
        ),
        (TIMES, '"2020-01-31 23:59:59"', datetime.datetime(2020, 1, 31, 23, 59, 59, tzinfo=UTC)),
        (
            TIMES,
            '"31.1.2020"',
            "x: a string that is not a time, such as 2020-01-31T23:59:59.123Z",
        ),
        (
            pa.timestamp("us"),
            '"2020-01-31T00:00:00Z"',
            "x: a string that is not a time, such as 2020-01-31T23:59:59.123",
        ),
        (pa.timestamp("us"), '"2020-01-31T00:00:01"', datetime.datetime(2020, 1, 31, 0, 0, 1)),
        (pa.list_(pa.int32()), "[1,null]", [1, None]),
        (pa.list_(pa.int32()), '[1,"a"]', "x[1]: expected an integer, found a string"),
        (pa.map_(pa.string(), pa.int32()), '{"a":1,"a":2}', [("a", 2)]),
        (pa.map_(pa.string(), pa.int32()), "[]", "x: expected a map, found an array"),
        (pa.struct([pa.field("y", pa.int32(), False)]), "{}", "x.y: is null or missing"),
    ],
)
def test_a_type_takes_what_it_says_and_nothing_else(kind, text, kept):
    assert field(text, kind) == kept


X = pa.struct([("x", pa.int64())])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "it is empty"),
        (" \n", "it is empty"),
        ("null", "is null or missing"),
        ("[]", "expected a map, found an array"),
        ("{", "not JSON"),
        ('{"x":1} x', "not JSON: Extra data"),
        ('{"x":1}{"x":2}', "not JSON: Extra data"),
        ('{"x":1},"r":{"x":2}', "not JSON: Extra data"),
        ('{"x":1}}\n{"r":{"x":2}', "not JSON: Extra data"),
        ('{"y":"', "not JSON: Unterminated string"),
        (b'{"y":"\xff"}', "not JSON: it is not UTF-8"),
        ("[" * 100_000, "nested too deep"),
        ('{"x":' + "9" * 5000 + "}", "too many digits"),
    ],
)
def test_what_is_not_one_value_has_a_reason_and_takes_no_other_with_it(text, told):
    value = text if isinstance(text, bytes) else text.encode()
    good = b'{"x":1}'
    data, reasons = decode_json(pa.array([good, value, None, good], pa.binary()), X)
    assert data.to_pylist() == [{"x": 1}, None, None, {"x": 1}]
    assert told in reasons[1].as_py()
    assert reasons.null_count == 3


def test_types_that_json_has_not_are_refused_by_name():
    with pytest.raises(ConfigError, match=r"the schema has a as duration"):
        decode_json(pa.array([b""]), pa.struct([("a", pa.duration("us"))]))


PLAIN = pa.struct(
    [
        ("i", pa.int32()),
        ("d", pa.float64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("l", pa.list_(pa.int64())),
        ("o", pa.struct([("s", pa.string()), ("l", pa.list_(pa.float32()))])),
        ("t", pa.timestamp("us", "UTC")),
        ("u", pa.list_(pa.timestamp("us"))),
        ("e", pa.date32()),
        ("c", pa.decimal128(5, 2)),
    ]
)
REQUIRED = pa.struct(
    [
        pa.field("i", pa.int32(), False),
        ("l", pa.list_(pa.field("element", pa.int64(), False))),
        ("o", pa.struct([pa.field("s", pa.string(), False)])),
    ]
)
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 65), 1 << 65)
    | st.integers(-5, 5)
    | st.floats()
    | st.text(max_size=3)
)
anything = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*PLAIN.names, "r", "z"]), inner)
    ),
    max_leaves=8,
)
digits = st.sampled_from(["", ".1", ".123456", ".1234567", "."])
days = st.sampled_from(["2020-02-29", "2021-02-29", "0000-01-01", "0001-01-01", "10000-01-01"])
hours = st.sampled_from(["T23:59:59", " 00:00:00", "T24:00:00", "T23:59:60", "T1:00:00", ""])
zones = st.sampled_from(["", "Z", "+01:00", "-23:59", "+24:00", "z"])
times = st.builds("".join, st.tuples(days, hours, digits, zones))
fine = st.datetimes(datetime.datetime(1, 1, 2)).map(datetime.datetime.isoformat)
fitting = st.fixed_dictionaries(
    {},
    optional={
        "i": st.none() | st.integers(-(1 << 31), (1 << 31) - 1),
        "d": st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-5, 5),
        "s": st.none() | st.text(max_size=3),
        "b": st.none() | st.booleans(),
        "l": st.none() | st.lists(st.none() | st.integers(-5, 5), max_size=3),
        "o": st.none() | st.fixed_dictionaries({}, optional={"s": st.text(), "l": st.just([1.5])}),
        "t": fine.map(lambda time: f"{time}+01:00") | times | st.integers(-5, 5),
        "u": st.lists(fine | times | st.none(), max_size=2),
        "e": days | fine.map(lambda time: time[:10]),
        "c": st.sampled_from([1, 1.5, "1.25", "1e1", "x", 1.005, 999.99, 1000, -0.0, "", "1_0"]),
        "z": anything,
    },
)
texts = (
    st.builds(json.dumps, fitting | anything, indent=st.sampled_from([None, None, 1])).map(
        str.encode
    )
    | st.text('{}[]":,0123456789.eE+- \n\\rilsd', max_size=12).map(str.encode)
    | st.binary(max_size=6)
)


@given(
    st.sampled_from([PLAIN, REQUIRED]),
    st.lists(st.none() | texts, max_size=4),
    st.lists(fitting.map(json.dumps), max_size=8),
    st.sampled_from([1, 1, 20]),
)
@example(PLAIN, [b'{"t":253402300800}'], [], 1)
def test_all_at_once_is_what_it_is_one_by_one(kind, odd, plain, times):
    values = [*odd, *[text.encode() for text in plain] * times, *odd]
    all_at_once = decode_json(pa.array(values, pa.binary()), kind)
    one_by_one = decode_each(values, kind, parse, converter_of(kind, leaf_converter))
    assert as_text(all_at_once.data) == as_text(one_by_one.data)
    assert all_at_once.reasons.to_pylist() == one_by_one.reasons.to_pylist()


def as_text(data: pa.StructArray) -> str:
    """In which NaN is itself; times as numbers, since Spark has some that Python has not."""
    parts = [p.cast(pa.int64()) if pa.types.is_timestamp(p.type) else p for p in data.flatten()]
    return str([data.is_valid().to_pylist(), *(part.to_pylist() for part in parts)])


def test_what_fits_is_read_at_once(monkeypatch):
    """Else nothing would show that it is no slower than it is said to be."""
    good = {
        "i": 1,
        "d": 1.5,
        "o": {"l": [1, 0.5]},
        "t": "2020-01-31T23:59:59.5Z",
        "u": ["2020-01-31 00:00:00", None],
        "e": "2020-01-31",
        "c": "1.25",
    }
    values = [json.dumps(good | {"s": str(n), "more": [{}]}).encode() for n in range(3000)]
    looked_at: list[bytes] = []
    monkeypatch.setattr(
        "kcli.spark.json_values.parse", lambda value: looked_at.append(value) or parse(value)
    )
    data, reasons = decode_json(pa.array([*values, None]), PLAIN)
    assert (reasons.null_count, looked_at) == (3001, [])
    assert data.field("s")[2999].as_py() == "2999"
    values[2000] = b"{"
    data, reasons = decode_json(pa.array(values), PLAIN)
    assert b"{" in looked_at
    assert len(looked_at) <= ONE_BY_ONE
    assert reasons.null_count == data.null_count + 2998 == 2999


def test_values_of_which_many_are_bad_are_seldom_tried_at_once_in_vain():
    """Each time takes as long as 50 of them one by one."""
    tried: list[int] = []
    values = pa.array([b"{"] * 5000)

    def in_vain(part: pa.Array) -> None:
        tried.append(len(part))

    found = decode(values, X, parse, leaf_converter, in_vain)
    assert found.reasons.null_count == 0
    assert len(tried) < 5000 / ONE_BY_ONE + 5


def test_a_value_that_is_nested_too_deep_has_a_reason_and_ends_no_task():
    # More than the stack of any Python takes: which is enough differs from version to version.
    deep = '{"s":' + "[" * 200_000 + "]" * 200_000 + "}"
    assert one(deep, pa.struct([("s", pa.string())])) == "refused: it is nested too deeply"
