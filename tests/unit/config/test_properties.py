import pytest
from hypothesis import given
from hypothesis import strategies as st

from kserver.config.properties import PropertyEntry, decode, parse, render
from kserver.errors import ConfigError


def pairs(text: str) -> list[tuple[str, str]]:
    return [(entry.key, entry.value) for entry in parse(text)]


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("a=1", "a", "1"),
        ("b : 2", "b", "2"),
        ("c 3", "c", "3"),
        ("d", "d", ""),
        ("  e\t=\tx", "e", "x"),
        ("l==m", "l", "=m"),
        ("n = trail  ", "n", "trail  "),
        (r"f\ g\:\=h = i\tj", "f g:=h", "i\tj"),
        (r"k=\u00e9\ud83d\ude00", "k", "é😀"),
        (r"t=\q\\", "t", "q\\"),
        ("q \\\n  = z", "q", "z"),
        ("m = x \\\n    y", "m", "x y"),
        ("r=a\\\n# not a comment", "r", "a# not a comment"),
        ("s=a\\\\\n", "s", "a\\"),
    ],
)
def test_an_entry_is_read_as_java_reads_it(text: str, key: str, value: str) -> None:
    assert pairs(text) == [(key, value)]


@pytest.mark.parametrize("text", ["", "\n", "# a=1", "  ! a=1", "\\\n# a=1", "\t\n"])
def test_comments_and_blank_lines_say_nothing(text: str) -> None:
    assert parse(text) == []


def test_an_entry_knows_the_line_it_starts_on() -> None:
    assert parse("# c\n\na=1 \\\n  2\r\nb=3\rc=4") == [
        PropertyEntry("a", "1 2", 3),
        PropertyEntry("b", "3", 5),
        PropertyEntry("c", "4", 6),
    ]


def test_a_broken_escape_names_its_line() -> None:
    with pytest.raises(ConfigError, match=r"line 2: Malformed"):
        parse("a=1\nb=\\u12g4")


def test_bytes_are_utf8_and_else_latin1() -> None:
    assert decode("ä".encode()) == "ä"
    assert decode("ä".encode("latin-1")) == "ä"


def test_a_byte_order_mark_is_no_part_of_the_first_key() -> None:
    assert parse(decode(b"\xef\xbb\xbfport=1")) == [PropertyEntry("port", "1", 1)]


TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.dictionaries(TEXT.filter(bool), TEXT))
def test_what_is_rendered_reads_back(values: dict[str, str]) -> None:
    text = render(values)
    assert text.isascii()
    assert dict(pairs(text)) == values


@given(st.text(alphabet="ab\\\n\r=: \t#!\f"))
def test_no_text_without_escapes_of_characters_is_refused(text: str) -> None:
    for entry in parse(text):
        assert 1 <= entry.line <= len(text) + 1
