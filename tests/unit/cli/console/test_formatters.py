"""Records are printed as Kafka's console consumer prints them."""

import struct

import pytest

from kcli.client.consumer.consumer import FetchedBatch, Record
from kcli.console.formatter import Unprintable
from kcli.console.formatters import DefaultFormatter, UnknownClass, formatter
from kserver.wire.batch import TimestampType

ALL = ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key")
JAVA = "org.apache.kafka.common.serialization."


def batch(*records, kind=TimestampType.create_time):
    return FetchedBatch("t", 2, list(records), kind, 0, 99)


def record(key=b"k", value=b"v", headers=(), timestamp=1700000000000):
    return Record(7, timestamp, key, value, headers)


def shown(one, kind=TimestampType.create_time, **properties):
    named = {name.replace("_", "."): value for name, value in properties.items()}
    made = DefaultFormatter(named)
    whole = made.lines(batch(one, kind=kind))
    assert whole == made.line(batch(kind=kind), one)
    return whole


def everything(**more):
    return {f"print_{name}": "true" for name in ALL} | more


def test_by_default_a_line_is_the_value():
    assert shown(record(value=b"a\xff\nb")) == b"a\xff\nb\n"
    assert shown(record(value=None)) == b"null\n"
    assert shown(record(value=b"")) == b"\n"


def test_a_batch_is_printed_at_once():
    values = [record(value=b"a"), record(value=None), record(value=b"c")]
    assert DefaultFormatter({}).lines(batch(*values)) == b"a\nnull\nc\n"
    assert DefaultFormatter({}).lines(batch()) == b""
    assert DefaultFormatter({"print.key": "true"}).lines(batch(*values)) == (
        b"k\ta\nk\tnull\nk\tc\n"
    )


def test_columns_have_a_fixed_order():
    one = record(headers=(("h1", b"v1"), ("h2", None)))
    assert shown(one, **everything()) == (
        b"CreateTime:1700000000000\tPartition:2\tOffset:7\tDelivery:NOT_PRESENT\t"
        b"Epoch:NOT_PRESENT\th1:v1,h2:null\tk\tv\n"
    )


def test_separators_and_null_can_be_chosen():
    one = record(key=None, headers=(("a", b"1"), ("b", None)))
    given = {
        "key_separator": " | ",
        "line_separator": ";",
        "headers_separator": "&",
        "null_literal": "NULL",
    }
    assert shown(one, print_key="true", print_headers="TRUE ", **given) == (
        b"a:1&b:NULL | NULL | v;"
    )


def test_the_last_column_is_followed_by_the_line_separator():
    assert shown(record(), print_key="true", print_value="false") == b"k\n"
    assert shown(record(), print_value="false") == b""


@pytest.mark.parametrize("timestamp", [-1, -86_400_000])
def test_a_timestamp_before_1970_is_printed_as_any_other(timestamp):
    assert shown(record(timestamp=timestamp), print_timestamp="true", print_value="false") == (
        b"CreateTime:%d\n" % timestamp
    )


def test_missing_parts_have_words():
    assert shown(record(), print_headers="true", print_value="false") == b"NO_HEADERS\n"
    assert shown(
        record(), kind=TimestampType.log_append_time, print_timestamp="true", print_value="false"
    ) == (b"LogAppendTime:1700000000000\n")


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("String", b"a\xff", "a\ufffd".encode()),
        ("Short", struct.pack(">h", -3), b"-3"),
        ("Integer", struct.pack(">i", 7), b"7"),
        ("Long", struct.pack(">q", 1 << 40), b"1099511627776"),
        ("Boolean", b"\1", b"true"),
        ("Bytes", b"a\\\x00\xff", rb"a\x5C\x00\xFF"),
        ("UUID", b"00000000-0000-0000-0000-00000000000A", b"00000000-0000-0000-0000-00000000000a"),
        ("Double", struct.pack(">d", 1), b"1.0"),
        ("Double", struct.pack(">d", -0.001), b"-0.001"),
        ("Double", struct.pack(">d", 1e7), b"1.0E7"),
        ("Double", struct.pack(">d", 1.25e-5), b"1.25E-5"),
        ("Double", struct.pack(">d", 123456.75), b"123456.75"),
        ("Double", struct.pack(">d", float("nan")), b"NaN"),
        ("Double", struct.pack(">d", float("-inf")), b"-Infinity"),
        ("Double", struct.pack(">d", -0.0), b"-0.0"),
        ("Float", struct.pack(">f", 0.1), b"0.1"),
        ("Float", struct.pack(">f", 16777216), b"1.6777216E7"),
    ],
)
def test_deserializers_print_as_java_does(name, data, text):
    given = {"value_deserializer": f"{JAVA}{name}Deserializer"}
    assert shown(record(value=data), **given) == text + b"\n"


def test_null_is_given_to_a_deserializer_as_its_literal():
    given = {"key_deserializer": f"{JAVA}StringDeserializer", "print_key": "true"}
    assert shown(record(key=None), **given) == b"null\tv\n"
    with pytest.raises(Unprintable, match="Size of data received by LongDeserializer is not 8"):
        shown(record(value=None), value_deserializer=f"{JAVA}LongDeserializer")


@pytest.mark.parametrize(
    "name",
    [
        "org.apache.kafka.tools.consumer.DefaultMessageFormatter",
        "kafka.tools.DefaultMessageFormatter",
        "org.apache.kafka.tools.consumer.LoggingMessageFormatter",
    ],
)
def test_formatters_have_kafkas_names_old_and_new(name):
    assert formatter(name, {}).lines(batch(record())) == b"v\n"


def test_no_op_prints_nothing():
    made = formatter("kafka.tools.NoOpMessageFormatter", {})
    assert made.lines(batch(record())) == made.line(batch(), record()) == b""


@pytest.mark.parametrize("name", ["com.example.Mine", "org.apache.kafka.tools.consumer.Offsets"])
def test_other_classes_are_unknown(name):
    with pytest.raises(UnknownClass):
        formatter(name, {})
    with pytest.raises(UnknownClass):
        DefaultFormatter({"headers.deserializer": name})
