"""Lines come out of any chunks as they went in, and split as Kafka's LineMessageReader splits."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcli.console.encodings import encoding
from kcli.console.incoming import Incoming, TooLarge, Unreadable
from kcli.console.line_reader import LineReader, Lines, LineSplitter

BOTH = {"parse.key": "true", "parse.headers": "true"}


def split(chunks, limit=100):
    splitter = LineSplitter(limit)
    return [line for chunk in chunks for line in splitter.feed(chunk)] + splitter.end()


def read(line, **properties):
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return tuple(LineReader(named).read(line, 1)[:3])


def refusal(line, **properties):
    with pytest.raises(Unreadable) as caught:
        read(line, **properties)
    return str(caught.value)


@given(
    st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"").rstrip(b"\r"))),
    st.lists(st.integers(0, 200)),
    st.sampled_from([b"\n", b"\r\n"]),
    st.booleans(),
)
def test_lines_do_not_depend_on_chunks(lines, cuts, end, ends):
    data = end.join(lines) + (end if ends else b"")
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    chunks = [data[a:b] for a, b in pairwise(edges)]
    expected = lines if ends or (lines and lines[-1]) else lines[:-1]
    if not lines and ends:
        expected = [b""]
    assert split(chunks) == expected


def test_an_empty_line_is_a_line_but_the_end_is_not():
    assert split([b"\n\n"]) == [b"", b""]
    assert split([b""]) == []


def test_a_carriage_return_belongs_to_the_line_s_end_alone():
    assert split([b"a\rb\r\nc\r"]) == [b"a\rb", b"c"]
    assert split([b"a\r", b"\nb"]) == [b"a", b"b"]


def test_of_a_line_without_end_no_more_is_kept_than_shows_that_it_is_too_long():
    assert split([b"x" * 7] * 1000 + [b"\nnext\n"], limit=50) == [b"x" * 51, b"next"]
    assert split([b"x" * 1000], limit=50) == [b"x" * 51]


def test_without_settings_a_line_is_a_value():
    assert LineReader({}).is_plain
    assert read(b"h:v\tk\tv\xff") == (b"h:v\tk\tv\xff", None, ())


def test_a_key_ends_at_the_first_separator():
    assert read(b"k\tv\tw", parse_key="true") == (b"v\tw", b"k", ())
    assert read(b"k::v", parse_key=" TRUE ", key_separator="::") == (b"v", b"k", ())
    assert read(b"\tv", parse_key="true") == (b"v", b"", ())
    assert not LineReader({"parse.key": "true"}).is_plain


def test_headers_come_first():
    value, key, headers, *_ = LineReader(BOTH).read(b"h1:v1,h2:v:2\tk\tv", 1)
    assert (value, key, headers) == (b"v", b"k", (("h1", b"v1"), ("h2", b"v:2")))


def test_the_separator_of_headers_is_a_pattern():
    assert read(b"a:1;b:2|c:3\tv", parse_headers="true", headers_separator="[;|]")[2] == (
        ("a", b"1"),
        ("b", b"2"),
        ("c", b"3"),
    )


def test_empty_pairs_at_the_end_are_dropped():
    assert read(b"a:1,,\tv", parse_headers="true")[2] == (("a", b"1"),)


def test_the_null_marker_stands_for_null():
    given = {"parse_key": "true", "parse_headers": "true", "null_marker": "N"}
    assert read(b"h:N\tN\tN", **given) == (None, None, (("h", None),))
    assert read(b"N\tk\tv", **given) == (b"v", b"k", ())
    assert read(b"N", null_marker="N") == (None, None, ())
    assert refusal(b"N:x\tk\tv", **given) == (
        "Header keys should not be equal to the null marker 'N' as they can't be null"
    )


def test_what_is_missing_is_named_with_its_line():
    assert refusal(b"nokey", parse_key="true") == (
        "No key separator found on line number 1: 'nokey'"
    )
    assert refusal(b"v", parse_headers="true") == (
        "No headers delimiter found on line number 1: 'v'"
    )
    assert refusal(b"x\tv", parse_headers="true") == (
        "No header key separator found in pair 'x' on line number 1"
    )


def test_errors_can_be_ignored():
    given = {"parse_key": "true", "parse_headers": "true", "ignore_error": "true"}
    assert read(b"nothing", **given) == (b"nothing", None, ())
    assert read(b"x\tv", **given) == (b"v", None, (("x", None),))


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({"headers.delimiter": ","}, "headers.delimiter and headers.separator may not be equal"),
        (
            {"headers.delimiter": ":"},
            "headers.delimiter and headers.key.separator may not be equal",
        ),
        (
            {"headers.separator": ":"},
            "headers.separator and headers.key.separator may not be equal",
        ),
        ({"null.marker": "\t"}, "null.marker and key.separator may not be equal"),
        ({"null.marker": ","}, "null.marker and headers.separator may not be equal"),
        (
            {"null.marker": "|", "headers.delimiter": "|"},
            "null.marker and headers.delimiter may not be equal",
        ),
        ({"null.marker": ":"}, "null.marker and headers.key.separator may not be equal"),
        ({"headers.separator": "["}, "headers.separator [ is an invalid regex"),
    ],
)
def test_separators_that_cannot_be_told_apart_are_refused(properties, why):
    with pytest.raises(Unreadable) as caught:
        LineReader(properties)
    assert str(caught.value).startswith(why)


@pytest.mark.parametrize(
    ("line", "timestamp", "partition"),
    [
        (b"CreateTime:1700000000000\tPartition:3\tk\tv", 1700000000000, 3),
        (b"LogAppendTime:17\tPartition:0\tk\tv", 17, 0),
        (b"1700000000000\t12\tk\tv", 1700000000000, 12),
        (b"NO_TIMESTAMP\t1\tk\tv", None, 1),
        (b"CreateTime:-1\t1\tk\tv", None, 1),
    ],
)
def test_time_and_partition_come_first_as_kafkas_consumer_prints_them(line, timestamp, partition):
    names = {f"parse.{name}": "true" for name in ("timestamp", "partition", "key")}
    assert LineReader(names).read(line, 1) == Incoming(b"v", b"k", (), partition, timestamp)


@pytest.mark.parametrize("text", [b"", b"x", b"-1", b"CreateTime:", b"1.5", b"9" * 20])
@pytest.mark.parametrize("name", ["timestamp", "partition"])
def test_what_is_no_time_or_partition_is_told_with_its_line(text, name):
    reader = LineReader({f"parse.{name}": "true"})
    with pytest.raises(Unreadable, match=f"on line number 7 is not a valid {name}"):
        reader.read(text + b"\tv", 7)


def test_keys_and_values_may_be_encoded_but_a_null_is_not():
    reader = LineReader(
        {"parse.key": "true", "null.marker": "NULL"}, encoding("long"), encoding("hex")
    )
    assert reader.read(b"1\tff00", 1)[:2] == (b"\xff\x00", b"\0\0\0\0\0\0\0\1")
    assert reader.read(b"NULL\tNULL", 1)[:2] == (None, None)
    with pytest.raises(Unreadable, match="line 2: 'zz' is not hex"):
        reader.read(b"1\tzz", 2)


def test_a_line_of_which_the_end_was_not_kept_is_too_large():
    lines = Lines(LineReader({"parse.key": "true"}), 100)
    first, second = lines.feed(b"k\t" + b"x" * 1000 + b"\nk\tv\n")
    with pytest.raises(TooLarge):
        lines.read(first, 1)
    assert lines.read(second, 2).value == b"v"
