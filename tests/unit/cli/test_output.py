"""What a terminal would obey is shown, not sent; a pipe gets the text as it is."""

import io

from hypothesis import given
from hypothesis import strategies as st

from kcli import output


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_control_characters_are_shown_by_number():
    assert output.visible("a\x1b[31mb\x00\x7f\x9bc") == r"a\x1b[31mb\x00\x7f\x9bc"


def test_layout_and_letters_stay():
    assert output.visible("a\tb\nä 漢 🙂") == "a\tb\nä 漢 🙂"


@given(st.text())
def test_nothing_a_terminal_obeys_is_left(text):
    shown = output.visible(text)
    assert not any((ord(c) < 0x20 and c not in "\t\n") or 0x7F <= ord(c) < 0xA0 for c in shown)


def test_only_a_terminal_is_protected(monkeypatch):
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        monkeypatch.setattr("sys.stdout", stream)
        output.answer("\x1b]0;title\x07")
    assert terminal.getvalue() == "\\x1b]0;title\\x07\n"
    assert pipe.getvalue() == "\x1b]0;title\x07\n"
