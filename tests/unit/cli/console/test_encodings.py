"""Every encoding reads what it shows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcli.console.encodings import ENCODINGS, NotEncodable, UnknownEncoding, encoding

SIZES = {"short": 2, "integer": 4, "long": 8}


@given(st.sampled_from(sorted(ENCODINGS)), st.binary(max_size=40))
def test_bytes_come_back(name, data):
    data = (data + bytes(8))[: SIZES[name]] if name in SIZES else data
    shown = ENCODINGS[name].shown(data)
    assert shown.isascii()
    assert shown.decode().isprintable()
    assert ENCODINGS[name].read(shown) == data


@pytest.mark.parametrize(
    ("name", "text", "data"),
    [
        ("hex", b"fF00", b"\xff\x00"),
        ("base64", b"/wA=", b"\xff\x00"),
        ("short", b"-2", b"\xff\xfe"),
        ("integer", b"+258", b"\0\0\1\2"),
        ("long", b"-9223372036854775808", b"\x80" + bytes(7)),
    ],
)
def test_texts_are_read(name, text, data):
    assert ENCODINGS[name].read(text) == data


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hex", b"f"),
        ("hex", b"f g0"),
        ("hex", b"\xff\xff"),
        ("base64", b"/wA"),
        ("base64", b"/w A="),
        ("base64", b"\xff"),
        ("short", b"32768"),
        ("integer", b""),
        ("integer", b"1_000"),
        ("integer", b" 1"),
        ("long", b"9223372036854775808"),
        ("long", b"9" * 5000),
        ("long", b"1.0"),
    ],
)
def test_what_is_no_such_text_is_refused(name, text):
    with pytest.raises(NotEncodable):
        ENCODINGS[name].read(text)


def test_a_number_has_its_size():
    with pytest.raises(NotEncodable, match="a number of 4 bytes cannot be made of 3"):
        ENCODINGS["integer"].shown(b"abc")


def test_text_needs_no_encoding_and_others_have_names():
    assert encoding("text") is None
    assert encoding("hex") is ENCODINGS["hex"]
    with pytest.raises(UnknownEncoding, match="encodings are text, hex, base64, short,"):
        encoding("octal")
