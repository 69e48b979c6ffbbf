"""Log lines: one a record, whatever clients call themselves."""

from __future__ import annotations

import json
import logging
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kserver.world.log_lines import JsonLogLines, TextLines, printable

HOSTILE = "app\n[2026-01-01 00:00:00,000] INFO [KafkaServer id=0] started\x1b[2J\u202e\x00\udcff"


def record(message: str, *args: object, error: BaseException | None = None, **extra: object):
    caught = (type(error), error, error.__traceback__) if error else None
    made = logging.LogRecord("kserver.x", logging.INFO, "", 1, message, args, caught)
    vars(made).update(extra)
    return made


@given(st.text())
def test_what_was_made_printable_is_and_says_the_same(text):
    shown = printable(text)
    assert shown.isprintable()
    assert shown == text or not text.isprintable()


@pytest.mark.parametrize("formatter", [TextLines(), JsonLogLines()], ids=["text", "json"])
def test_a_hostile_name_makes_no_second_line_and_moves_no_cursor(formatter):
    line = formatter.format(record("client %s", HOSTILE))
    assert line.isprintable()
    assert line.encode()


def test_text_has_time_level_message_and_logger():
    line = TextLines().format(record("a %d", 7))
    assert line.endswith("] INFO a 7 (kserver.x)")


def test_a_traceback_in_text_cannot_begin_a_line_of_the_log():
    try:
        raise ValueError(HOSTILE)
    except ValueError as error:
        first, *rest = TextLines().format(record("failed", error=error)).split("\n")
    assert first.endswith("failed (kserver.x)")
    assert all(line.startswith("    ") and line.isprintable() for line in rest)
    assert "    ValueError: app" in rest


@given(st.text(), st.dictionaries(st.text(), st.none() | st.integers() | st.text()))
def test_json_is_one_object_that_says_what_was_logged(text, facts):
    line = JsonLogLines().format(record("%s", text, facts={"fact": facts}))
    assert "\n" not in line
    told = json.loads(line)
    assert (told["level"], told["logger"], told["message"]) == ("INFO", "kserver.x", text)
    assert told["fact"] == facts
    assert told["time"].endswith("Z")
    assert "exception" not in told


def test_json_has_the_exception():
    try:
        raise ValueError("x")
    except ValueError:
        made = record("failed")
        made.exc_info = sys.exc_info()
    told = json.loads(JsonLogLines().format(made))
    assert told["exception"].endswith("ValueError: x")
