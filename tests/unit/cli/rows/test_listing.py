"""Rows of -o: what is refused, what ends a command early, and what a terminal is shown."""

import io
import json
from types import SimpleNamespace

import click
import pytest

from kcli.client.errors import ClusterUnreachable
from kcli.command.options import Refused
from kcli.rows.listing import Format, rows
from kcli.rows.shapes import RowField, RowShape
from kserver.errors import ConfigError, ErrorCode, KafkaError, ProtocolError

SHAPE = RowShape("k.t", 1, "A row.", (RowField("topic", "string", "Its name."),))


def opened(name="json", template=""):
    return rows(SimpleNamespace(output=Format(name, template)), SHAPE)


def document(capsys):
    return json.loads(capsys.readouterr().out)


def test_one_refusal_loses_no_other_row(capsys):
    with opened() as out:
        out.row(topic="a")
        out.refused("b", KafkaError(ErrorCode.topic_authorization_failed))
        out.row(topic="c")
    assert out.status == 1
    shown = capsys.readouterr()
    assert shown.err == "k: b: Topic authorization failed.\n"
    assert json.loads(shown.out) == {
        "schema": "k.t/1",
        "items": [{"topic": "a"}, {"topic": "c"}],
        "errors": [
            {
                "subject": "b",
                "code": "TOPIC_AUTHORIZATION_FAILED",
                "message": "Topic authorization failed.",
            }
        ],
    }


@pytest.mark.parametrize("name", ["csv", "tsv", "table", "template"])
def test_formats_of_rows_alone_tell_refusals_on_standard_error(name, capsys):
    with opened(name, "{topic}") as out:
        out.refused("b", Refused("why"))
    shown = capsys.readouterr()
    assert shown.err == "k: b: why\n"
    assert shown.out in ("topic\n", "TOPIC\n", "")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KafkaError(ErrorCode.not_controller), "NOT_CONTROLLER"),
        (ClusterUnreachable("listTopics"), "TIMED_OUT"),
        (TimeoutError("not done within 1 s"), "TIMED_OUT"),
        (ProtocolError("bad bytes"), "INVALID"),
        (ConfigError("bad key"), "INVALID_CONFIG"),
        (FileNotFoundError(2, "No such file"), "FILE"),
        (Refused("no"), "REFUSED"),
        (KeyboardInterrupt(), "INTERRUPTED"),
        (SystemExit(143), "INTERRUPTED"),
    ],
)
def test_what_ends_a_command_early_is_in_its_document(error, code, capsys):
    def early():
        with opened() as out:
            out.row(topic="a")
            raise error

    with pytest.raises(type(error)):
        early()
    found = document(capsys)
    assert found["items"] == [{"topic": "a"}]
    (told,) = found["errors"]
    assert (told["subject"], told["code"]) == (None, code)
    assert told["message"]


@pytest.mark.parametrize("error", [click.UsageError("no"), ZeroDivisionError(), BrokenPipeError()])
def test_a_mistake_a_bug_or_a_reader_that_has_gone_leaves_no_document(error, capsys):
    with pytest.raises(type(error)), opened():
        raise error
    assert capsys.readouterr().out == ""


def test_a_template_is_checked_before_any_work():
    with pytest.raises(click.UsageError, match="there is no field 'lag'; known are topic"):
        opened("template", "{lag}")


def test_a_row_has_exactly_the_fields_of_its_shape():
    with pytest.raises(AssertionError), opened() as out:
        out.row(name="a")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        raise OSError


@pytest.mark.parametrize("name", ["json", "jsonl", "yaml", "csv", "tsv", "table", "template"])
def test_a_terminal_obeys_nothing_in_a_row(name, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    with opened(name, "{topic}") as out:
        out.row(topic="\x1b[2J\x9b1m\x07")
    shown = terminal.getvalue()
    assert not any((ord(c) < 0x20 and c != "\n") or 0x7F <= ord(c) < 0xA0 for c in shown)
    assert "[2J" in shown
