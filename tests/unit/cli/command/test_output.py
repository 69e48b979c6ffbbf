"""What a terminal would obey is shown, not sent; a pipe gets the text as it is."""

import io
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcli.command import output


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
        output.print_output("\x1b]0;title\x07")
    assert terminal.getvalue() == "\\x1b]0;title\\x07\n"
    assert pipe.getvalue() == "\x1b]0;title\x07\n"


def test_a_transient_line_gives_way_to_what_is_printed_on_its_terminal(monkeypatch):
    terminal, pipe = Terminal(), io.StringIO()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(Terminal, "fileno", lambda _: os.openpty()[1])
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr("sys.stdout", pipe)
    output.transient("\x1b[2J" + "x" * 100)
    output.print_output("an answer")
    output.complain("a notice")
    output.transient("")
    assert terminal.getvalue() == "\r\x1b[K" + "\\x1b[2J" + "x" * 72 + "\r\x1b[Ka notice\n"
    assert pipe.getvalue() == "an answer\n"


@pytest.mark.parametrize("kind", ["dumb", "", "unknown", None])
def test_nothing_is_redrawn_on_a_terminal_without_a_cursor(kind, monkeypatch):
    if kind is None:
        monkeypatch.delenv("TERM", raising=False)
    else:
        monkeypatch.setenv("TERM", kind)
    terminal = Terminal()
    monkeypatch.setattr(Terminal, "fileno", lambda _: os.openpty()[1])
    monkeypatch.setattr("sys.stderr", terminal)
    output.transient("half done")
    output.complain("a notice")
    assert terminal.getvalue() == "a notice\n"
    assert not output.is_redrawable(terminal)


def test_a_transient_line_is_for_terminals(monkeypatch):
    pipe = io.StringIO()
    monkeypatch.setattr("sys.stderr", pipe)
    output.transient("half done")
    assert pipe.getvalue() == ""
