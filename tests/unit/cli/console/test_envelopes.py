"""An envelope keeps a whole record, and what is none is refused."""

import io
import json
import string
from itertools import pairwise

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcli.client.consumer.consumer import FetchedBatch, Record
from kcli.console.envelope_input import JsonLinesInput, MsgpackMaps
from kcli.console.envelopes import JsonFormatter, MsgpackFormatter, from_json, from_map
from kcli.console.incoming import Incoming, TooLarge, Unreadable
from kserver.wire.batch import TimestampType

LIMIT = 1 << 20
FORMATS = {
    "json": (JsonFormatter, JsonLinesInput),
    "msgpack": (MsgpackFormatter, MsgpackMaps),
}

texts = st.text(max_size=30).map(str.encode)
hostile = st.sampled_from([b"", b"\n", b"\r\n", b'"}', b"\\u0000", b"\xff\xfe", b"null", b"\x00"])
contents = st.none() | hostile | st.binary(max_size=40) | texts
names = st.text(max_size=10) | st.sampled_from(["", "key", "\n", '"', "\u2028", "\U0001f600"])
records = st.builds(
    Record,
    st.integers(0, (1 << 63) - 1),
    st.integers(-1, (1 << 63) - 1),
    contents,
    contents,
    st.lists(st.tuples(names, contents), max_size=4).map(tuple),
)
batches = st.builds(
    FetchedBatch,
    st.text(string.ascii_letters + "._-", min_size=1, max_size=10),
    st.integers(0, 1000),
    st.lists(records, max_size=6),
    st.sampled_from(TimestampType),
    st.just(0),
    st.just(0),
)


def incoming(batch, record):
    timestamp = None if record.timestamp == -1 else record.timestamp
    return Incoming(
        record.value, record.key, record.headers, batch.partition, timestamp, batch.topic
    )


def read_back(reader, data, cuts):
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [p for a, b in pairwise(edges) for p in reader.feed(data[a:b])]
    pieces += reader.end()
    return [reader.read(piece, number) for number, piece in enumerate(pieces, 1)]


@given(
    st.sampled_from(sorted(FORMATS)), st.lists(batches, max_size=3), st.lists(st.integers(0, 500))
)
def test_what_is_printed_is_read_as_the_same_record(name, given_batches, cuts):
    formatter, reader = FORMATS[name][0](), FORMATS[name][1](LIMIT)
    printed = b"".join(formatter.lines(batch) for batch in given_batches)
    singly = b"".join(formatter.line(b, record) for b in given_batches for record in b.records)
    assert printed == singly
    expected = [incoming(batch, record) for batch in given_batches for record in batch.records]
    assert read_back(reader, printed, cuts) == expected


@given(batches)
def test_json_is_an_object_a_line(batch):
    lines = JsonFormatter().lines(batch).split(b"\n")
    assert lines.pop() == b""
    shown = [json.loads(line) for line in lines]
    assert [one["offset"] for one in shown] == [record.offset for record in batch.records]
    fields = ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
    assert all(list(one) == fields for one in shown)


@given(batches)
def test_msgpack_is_a_map_a_record(batch):
    shown = list(msgpack.Unpacker(io.BytesIO(MsgpackFormatter().lines(batch))))
    assert [one["value"] for one in shown] == [record.value for record in batch.records]


def test_text_stays_readable():
    batch = FetchedBatch(
        "t", 1, [Record(7, 5, None, b"w\xc3\xb6rt", (("h", b"\xff"),))], TimestampType(0), 0, 8
    )
    assert JsonFormatter().lines(batch).decode() == (
        '{"topic": "t", "partition": 1, "offset": 7, "timestamp": 5, "key": null, '
        '"value": "wört", "headers": [{"key": "h", "value": {"base64": "/w=="}}]}\n'
    )


def test_what_is_left_out_is_null_or_none():
    assert from_json(b"{}") == Incoming(None)
    assert from_map({"value": "v"}) == Incoming(b"v")


def test_what_kcat_prints_is_read():
    line = (
        b'{"topic":"t","partition":2,"offset":9,"tstype":"create","ts":1700000000000,"broker":1,'
        b'"headers":["a","x","b",null],"key":"k","payload":"v"}'
    )
    headers = (("a", b"x"), ("b", None))
    assert from_json(line) == Incoming(b"v", b"k", headers, 2, 1700000000000, "t")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"value", "it is not JSON: Expecting value at character 1"),
        (b'{"value": "v"', "it is not JSON: Expecting ',' delimiter at character 14"),
        (b"\xff", "it is not UTF-8"),
        (b"[" * 100_000, "it is not JSON: a number is too long, or the nesting is too deep"),
        (b"9" * 10_000, "it is not JSON: a number is too long, or the nesting is too deep"),
        (b'["v"]', "it is not a JSON object"),
        (b'{"headrs": []}', "it has a field 'headrs'; fields are topic, partition, timestamp"),
        (b'{"value": "a", "payload": "b"}', "it has both value and payload"),
        (b'{"value": 1}', 'value is neither a string, null, nor {"base64": ...}'),
        (b'{"key": {"base64": "/w", "x": 1}}', "key is neither a string"),
        (b'{"key": {"base64": "/w"}}', "key is not base64"),
        (b'{"key": {"base64": "\\u00e9"}}', "key is not base64"),
        (b'{"key": "\\ud800"}', "key has half of a surrogate pair"),
        (b'{"topic": 1}', "topic is not a string"),
        (b'{"topic": "\\udfff"}', "topic has half of a surrogate pair"),
        (b'{"partition": "0"}', "partition is not a whole number"),
        (b'{"partition": true}', "partition is not a whole number"),
        (b'{"timestamp": 1.5}', "timestamp is not a whole number"),
        (b'{"headers": {"a": "b"}}', "headers are not a list"),
        (b'{"headers": ["a"]}', "headers are a list with a name that has no value"),
        (b'{"headers": [{"key": null}]}', "a header's key is not a string"),
        (b'{"headers": [{"key": "\\ud800"}]}', "a header's key has half of a surrogate pair"),
        (b'{"headers": [{"key": "a", "v": ""}]}', 'a header is not like {"key": ..., "value": ...'),
        (b'{"headers": [{"key": "a"}, "b"]}', "a header is not like"),
    ],
)
def test_what_is_no_envelope_is_refused(line, why):
    with pytest.raises(Unreadable) as caught:
        from_json(line)
    assert str(caught.value).startswith(why)


def test_lines_are_named_by_their_number_and_empty_ones_passed_over():
    reader = JsonLinesInput(LIMIT)
    pieces = reader.feed(b'{"value": "a"}\n\n  \n{"value": "b"}\nx\n')
    assert [reader.read(piece, n).value for n, piece in enumerate(pieces[:2])] == [b"a", b"b"]
    with pytest.raises(Unreadable, match=r"^line 5: it is not JSON"):
        reader.read(pieces[2], 3)


def test_of_a_line_that_no_request_could_hold_the_end_is_not_kept():
    reader = JsonLinesInput(1000)
    data = b'{"value": "' + b"\\u0000" * 5000 + b'"}\n{"value": "b"}\n'
    first, second = reader.feed(data)
    with pytest.raises(TooLarge):
        reader.read(first, 1)
    assert reader.read(second, 2).value == b"b"


MAP = msgpack.packb({"value": b"x" * 100})


@pytest.mark.parametrize(
    ("rest", "why"),
    [
        (b"\xc1", f"record 2: no msgpack begins at byte {len(MAP)}"),
        (b"\x92" * 2000, f"record 2: no msgpack begins at byte {len(MAP)}"),
        (b"\xa2\xff\xff", f"record 2: no msgpack begins at byte {len(MAP)}"),
        (b"\x81\x01\x01", f"record 2: no msgpack begins at byte {len(MAP)}"),
        (b"\xd7\xff" + b"\xff" * 8, f"record 2: no msgpack begins at byte {len(MAP)}"),
        (b"\xc6\xff\xff\xff\xff" + bytes(100_000), "record 2: it is larger than max.request.size"),
        (b"\xdc\x03\x00" + MAP * 300, "record 2: it is larger than max.request.size"),
        (MAP[:-1], "record 2: the input ends within it"),
        (b"\x01", "record 2: it is not a map"),
        (b"\x81\xa1x\x01", "record 2: it has a field 'x'"),
        (b"\x81\xa5value\x01", "record 2: value is neither"),
        (b"\x81\xa5value\xd6\xff\0\0\0\0", "record 2: value is neither"),
    ],
)
def test_what_is_no_msgpack_ends_the_input_after_what_came_before(rest, why):
    reader = MsgpackMaps(1000)
    first, second, *_ = [*reader.feed(MAP + rest), *reader.end()]
    assert reader.read(first, 1).value == b"x" * 100
    with pytest.raises(Unreadable) as caught:
        reader.read(second, 2)
    assert str(caught.value).startswith(why)


@pytest.mark.parametrize("field", ["ts", "timestamp"])
def test_a_timestamp_of_minus_one_is_none(field):
    line = f'{{"value": "v", "{field}": -1}}'.encode()
    assert from_json(line).timestamp is None
    assert from_json(line.replace(b"-1", b"0")).timestamp == 0


def test_a_byte_order_mark_is_no_part_of_a_record():
    assert from_json(b'\xef\xbb\xbf{"value": "v"}') == from_json(b'{"value": "v"}')
