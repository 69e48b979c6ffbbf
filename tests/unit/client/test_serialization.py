from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcli.client.serialization import DESERIALIZERS, PACKAGE, SERIALIZERS

VALUES = {
    "String": st.text(),
    "Short": st.integers(-(2**15), 2**15 - 1),
    "Integer": st.integers(-(2**31), 2**31 - 1),
    "Long": st.integers(-(2**63), 2**63 - 1),
    "Float": st.floats(width=32, allow_nan=False),
    "Double": st.floats(allow_nan=False),
    "Boolean": st.booleans(),
    "UUID": st.uuids(),
    "ByteArray": st.binary(),
    "ByteBuffer": st.binary(),
    "Bytes": st.binary(),
}


@pytest.mark.parametrize("kind", VALUES)
@given(st.data())
def test_what_is_written_is_read(kind, data):
    value = data.draw(VALUES[kind])
    written = SERIALIZERS[f"{PACKAGE}{kind}Serializer"](value)
    assert DESERIALIZERS[f"{PACKAGE}{kind}Deserializer"](written) == value


@pytest.mark.parametrize(
    ("kind", "value", "data"),
    [
        ("String", "ü", b"\xc3\xbc"),
        ("Short", -2, b"\xff\xfe"),
        ("Integer", 1, b"\0\0\0\1"),
        ("Long", 1, b"\0\0\0\0\0\0\0\1"),
        ("Float", 1.0, b"\x3f\x80\0\0"),
        ("Double", 1.0, b"\x3f\xf0\0\0\0\0\0\0"),
        ("Boolean", True, b"\1"),
        ("UUID", UUID(int=1), b"00000000-0000-0000-0000-000000000001"),
    ],
)
def test_the_bytes_are_those_of_javas_serializers(kind, value, data):
    assert SERIALIZERS[f"{PACKAGE}{kind}Serializer"](value) == data


@pytest.mark.parametrize(
    ("kind", "data"),
    [("Integer", b"123"), ("Long", b""), ("Boolean", b"\2"), ("UUID", b"x"), ("Void", b"")],
)
def test_what_is_not_of_the_kind_is_refused(kind, data):
    with pytest.raises(Exception):  # noqa: B017 - a deserializer may raise what it likes
        DESERIALIZERS[f"{PACKAGE}{kind}Deserializer"](data)


def test_text_that_is_not_utf_8_is_read_as_java_reads_it():
    assert DESERIALIZERS[f"{PACKAGE}StringDeserializer"](b"a\xff") == "a\ufffd"
