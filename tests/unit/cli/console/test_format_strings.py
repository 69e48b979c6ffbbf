"""A format string prints a record with the letters of kcat and rpk."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcli.client.consumer.consumer import FetchedBatch, Record
from kcli.console.format_strings import FormatString, MalformedFormat
from kcli.console.formatter import Unprintable
from kserver.wire.batch import TimestampType

HEADERS = (("a", b"1"), ("b", None), ("a", b"\xff"))
RECORD = Record(42, 1700000000000, b"key", b"value", HEADERS)
NULLS = Record(43, -1, None, None)


def shown(text, record=RECORD, null=b""):
    batch = FetchedBatch("topic", 3, [record, record], TimestampType.create_time, 5, 44)
    format = FormatString(text, null)
    once = format.line(batch, record)
    assert format.lines(batch) == 2 * once
    return once


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("", b""),
        ("%t/%p@%o", b"topic/3@42"),
        ("%k=%v\\n", b"key=value\n"),
        ("%s %S %V %K", b"value 5 5 3"),
        ("%T %d %e %H", b"1700000000000 1700000000000 5 3"),
        ("%h", b"a=1,b=,a=\xff"),
        ("%h{%k:%v{hex};}", b"a:31;b:;a:ff;"),
        ("%h{<%k %V>}", b"<a 1><b -1><a 1>"),
        ("%h{%{%k%}}", b"{a}{b}{a}"),
        ("100%% %{%}", b"100% {}"),
        ("\\t\\r\\\\\\x41\\x25\\xff", b"\t\r\\A%\xff"),
        ("[%6o][%-6o][%06o]", b"[    42][42    ][000042]"),
        ("[%6k][%-6k][%2k]", b"[   key][key   ][key]"),
        ("%k{hex} %v{base64}", b"6b6579 dmFsdWU="),
        ("[%-8k{hex}]", b"[6b6579  ]"),
        ("schlüssel: %k\n", "schlüssel: key\n".encode()),
    ],
)
def test_a_record_is_printed(text, printed):
    assert shown(text) == printed


def test_a_null_is_empty_or_what_is_said_and_its_length_is_minus_one():
    assert shown("%k,%v,%K,%V,%h,%H,%T,%v{hex}", NULLS) == b",,-1,-1,,0,-1,"
    assert shown("%k %v{hex} %h", NULLS, b"NULL") == b"NULL NULL "
    assert shown("%h", null=b"NULL") == b"a=1,b=NULL,a=\xff"


def test_columns_count_characters():
    assert shown("[%6v]", Record(0, 0, None, "wört".encode())) == "[  wört]".encode()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("%", "'%' at character 1 of -f"),
        ("ab%!", "'%!' at character 3 of -f"),
        ("\\q", r"'\q' at character 1 of -f"),
        ("\\x4", r"'\x' at character 1 of -f"),
        ("%q", "%q is not a letter of -f"),
        ("%o{hex}", "%o is a number and takes no {...}"),
        (
            "%v{octal}",
            "{octal} is not an encoding; encodings are hex, base64, short, integer, long",
        ),
        ("%v{hex", "the brace at character 3 of -f is not closed"),
        ("%h{%v{hex}", "the brace at character 3 of -f is not closed"),
    ],
)
def test_what_makes_no_sense_is_refused(text, why):
    with pytest.raises(MalformedFormat) as caught:
        FormatString(text)
    assert str(caught.value) == why


def test_what_an_encoding_has_no_form_for_cannot_be_printed():
    with pytest.raises(Unprintable, match="a number of 8 bytes cannot be made of 5"):
        shown("%v{long}")


@given(st.text(string.printable + "%\\{}", max_size=20))
def test_any_text_is_a_format_or_refused(text):
    try:
        format = FormatString(text)
    except MalformedFormat:
        return
    batch = FetchedBatch("topic", 3, [NULLS], TimestampType.create_time, 5, 44)
    assert isinstance(format.line(batch, NULLS), bytes)


@given(st.binary(max_size=20), st.binary(max_size=20))
def test_bytes_come_through_as_they_are(key, value):
    assert shown("%k\\x00%v", Record(0, 0, key, value)) == key + b"\0" + value
