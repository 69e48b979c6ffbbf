"""`k server-stop`: which processes are brokers, and which of them are meant.

The command itself runs in tests/integration, against a broker of its own.
"""

import signal

import pytest

from kcli.command.options import Refused
from kcli.commands.server_stop import RunningServer, after_start, is_selected, signal_named


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("/usr/bin/python3 /usr/bin/k server-start", []),
        ("python k server-start -daemon a.properties", ["-daemon", "a.properties"]),
        ("k server-start a --override b=c", ["a", "--override", "b=c"]),
        ("python3 -m kserver a", ["a"]),
        ("python3 -u -m kserver --override a=b", ["--override", "a=b"]),
        ("python k server-stop", None),
        ("vim k server-start.txt", None),
        ("java kafka.Kafka server.properties", None),
        ("python -m kserver_tools a", None),
        ("mask server-start", None),
        ("", None),
    ],
)
def test_a_broker_is_known_by_its_command_line(line, words):
    assert after_start(line.split()) == words


@pytest.fixture
def server(tmp_path):
    (tmp_path / "a.properties").write_text("node.id=3\nbroker.id=4\nprocess.roles=broker\n")
    return RunningServer(1, ["-daemon", "a.properties", "--override", "x=y"], str(tmp_path))


def test_without_a_filter_every_broker_is_meant(server):
    assert is_selected(server, None, None)


@pytest.mark.parametrize(
    ("node_id", "role", "meant"),
    [
        ("3", None, True),
        ("4", None, True),
        ("5", None, False),
        (None, "broker", True),
        (None, "broker,controller", False),
        ("3", "controller", True),
    ],
)
def test_a_filter_reads_the_broker_s_file(node_id, role, meant, server):
    assert is_selected(server, node_id, role) is meant


@pytest.mark.parametrize("words", [["--override", "node.id=9"], ["--override=node.id=9"]])
def test_overrides_count(words, server):
    assert is_selected(server._replace(words=[*words, "a.properties"]), "9", None)
    assert is_selected(server._replace(words=words), "9", None)


def test_a_file_that_cannot_be_read_is_told(server, capsys):
    assert not is_selected(server._replace(words=["missing"]), "3", None)
    assert "k server-stop: process 1: " in capsys.readouterr().err


@pytest.mark.parametrize("name", ["TERM", "SIGTERM", "15", "term"])
def test_the_signal_can_be_named(name, monkeypatch):
    monkeypatch.setenv("SIGNAL", name)
    assert signal_named() == signal.SIGTERM


def test_the_signal_is_term_unless_named(monkeypatch):
    monkeypatch.delenv("SIGNAL", raising=False)
    assert signal_named() == signal.SIGTERM
    monkeypatch.setenv("SIGNAL", "NONSENSE")
    with pytest.raises(Refused):
        signal_named()
