"""Every end of `k` has its exit status and its place: answers on stdout, reasons on stderr."""

import json
import os
import signal
import subprocess
import sys

import click
import pytest

from kcli import main as module
from kcli.client.errors import ClusterUnreachable
from kcli.command.command_list import COMMANDS
from kcli.main import main
from kserver.errors import ConfigError, ErrorCode, KafkaError

NAMES = [name for group in COMMANDS.values() for name in group]


def test_k_alone_shows_every_command(capsys):
    assert main([]) == 0
    shown = capsys.readouterr().out
    for group, commands in COMMANDS.items():
        assert f"\n{group}:\n" in shown
        assert all(f"\n  {name} " in shown for name in commands)


def test_version_is_one_line_and_loads_nothing(capsys):
    program = (
        "import sys; from kcli.main import main; status = main()\n"
        "print(sorted({'click', 'asyncio', 'kio', 'rich', 'logging'} & sys.modules.keys()))\n"
        "sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "--version"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "k 0.1.0\n[]\n", "")


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_help_and_a_version(name, capsys):
    assert main([name, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"Usage: k {name} ")
    assert main([name, "--version"]) == 0
    assert capsys.readouterr().out == "0.1.0\n"


def test_an_unknown_command_names_near_ones(capsys):
    assert main(["topic"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "unknown command 'topic'. Did you mean topics or top?" in shown.err


def test_a_script_name_of_kafka_leads_to_its_command(capsys):
    assert main(["kafka-topics.sh", "--list"]) == 2
    assert "Did you mean topics?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (click.UsageError("nonsense"), 2, "k topics: nonsense"),
        (KafkaError(ErrorCode.invalid_topic_exception, "why"), 1, "k topics: why"),
        (
            KafkaError(ErrorCode.unknown_topic_or_partition),
            1,
            "k topics: This server does not host this topic-partition.",
        ),
        (ConfigError("bad key"), 1, "k topics: bad key"),
        (ClusterUnreachable("listTopics"), 124, "k topics: Timed out waiting for a node"),
        (TimeoutError("not done within 1 s"), 124, "k topics: not done within 1 s"),
        (FileNotFoundError(2, "No such file", "f.properties"), 1, "f.properties: No such file"),
        (KeyboardInterrupt(), 130, ""),
        (click.exceptions.Abort(), 130, ""),
        (BrokenPipeError(), 0, ""),
    ],
)
def test_each_error_has_its_status(error, status, text, capsys):
    def raises(_words):
        raise error

    assert module.ended(["topics"], raises) == status
    shown = capsys.readouterr()
    assert shown.out == ""
    assert text in shown.err


def test_ctrl_c_is_quiet_while_a_class_is_made(capsys):
    class Interrupts:
        def __set_name__(self, owner, name):
            raise KeyboardInterrupt

    assert module.ended(["topics"], lambda _words: type("Made", (), {"x": Interrupts()})) == 130
    assert capsys.readouterr().err == ""


def test_a_bug_is_one_line_with_a_hint(capsys, monkeypatch):
    monkeypatch.delenv("K_DEBUG", raising=False)
    assert module.ended(["topics"], lambda _words: 1 // 0) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("k topics: internal error: ZeroDivisionError: ")
    assert lines[1:] == ["K_DEBUG=1 shows where."]


def test_an_argument_that_is_not_utf_8_is_named(capsys):
    words = ["topics", "--topic", "caf\udce9"]
    assert module.ended(words, lambda words: words[-1].encode()) == 2
    told = "k topics: the argument caf\\xe9 is not UTF-8; write it in UTF-8\n"
    assert capsys.readouterr().err == told


@pytest.mark.parametrize(
    "words",
    [
        ["console-producer", "--topic", "caf\udce9"],
        ["console-producer", "--topic", "t", "--producer-property", "client.id=\udce9"],
        ["producer-perf-test", "--topic", "caf\udce9", "--num-records", "1"],
        ["verifiable-producer", "--topic", "caf\udce9"],
    ],
    ids=lambda words: words[-1].encode(errors="backslashreplace").decode(),
)
def test_an_option_that_is_not_utf_8_is_refused_before_anything_is_read_or_sent(words, capsys):
    assert main([*words, "--bootstrap-server", "127.0.0.1:1"]) == 2
    assert capsys.readouterr().err.endswith(" is not UTF-8; write it in UTF-8\n")


def test_the_name_of_a_file_need_not_be_utf_8(tmp_path, capsys):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    with open(path, "w") as file:
        file.write("no.such.key=1\n")
    main(["topics", "--list", "--command-config", path, "--timeout", "1ms"])
    assert "no.such.key" in capsys.readouterr().err


def test_a_text_of_a_file_that_utf_8_does_not_have_is_no_internal_error(capsys):
    assert module.ended(["delete-records"], lambda _: "\udce9".encode()) == 1
    told = "k delete-records: '\\udce9' has half of a surrogate pair, which UTF-8 does not have\n"
    assert capsys.readouterr().err == told


def test_k_debug_shows_where(monkeypatch):
    monkeypatch.setenv("K_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        module.ended(["topics"], lambda _words: 1 // 0)


def test_a_closed_pipe_is_quiet():
    program = "from kcli.main import main; raise SystemExit(main(['topics', '--help']))"
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-c", program], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def shell(line):
    """What a shell makes of a line with K in it, and what that said on standard error."""
    k = f"{sys.executable} -c 'from kcli.main import main; raise SystemExit(main())'"
    script = line.replace("K", k, 1)
    done = subprocess.run(["sh", "-c", script], stdin=subprocess.DEVNULL, capture_output=True)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.parametrize("words", ["--version", "topics --help", "shapes", "shapes -o table"])
def test_an_answer_that_cannot_be_written_is_a_failure(words):
    name = "k" if words[0] == "-" else f"k {words.split()[0]}"
    assert shell(f"K {words} > /dev/full") == (1, "", f"{name}: No space left on device\n")
    assert shell(f"K {words} >&-") == (1, "", f"{name}: Bad file descriptor\n")


def test_a_notice_that_cannot_be_written_is_none():
    assert shell("K topics 2> /dev/full") == (2, "", "")
    assert shell("K topics 2>&-") == (2, "", "")
    assert shell("K topics <&- 2>&- >&-") == (2, "", "")


def test_ctrl_c_is_quiet_at_any_moment(free_port):
    """A document that was begun is ended."""
    words = ["-c", "from kcli.main import main; raise SystemExit(main())", "topics", "--list"]
    words += ["-o", "json", "--bootstrap-server", f"127.0.0.1:{free_port}"]
    with subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as waiting:
        assert "No connection to 127.0.0.1:" in waiting.stderr.readline()
        waiting.send_signal(signal.SIGINT)
        out, err = waiting.communicate()
    assert (waiting.returncode, err) == (130, "")
    assert json.loads(out) == {
        "schema": "k.topics.list/1",
        "items": [],
        "errors": [{"subject": None, "code": "INTERRUPTED", "message": "ended by a signal"}],
    }


CTRL_C_AS_ITS_HANDLER_IS_REMOVED = """
import os, signal, sys
from kcli.main import main
remove, presses = signal.signal, [signal.SIGINT] * 2
def press_and_remove(number, handler):
    if presses and handler is signal.SIG_DFL:
        os.kill(os.getpid(), presses.pop())
    return remove(number, handler)
signal.signal = press_and_remove
sys.argv = ["k", "topics", "--help"]
sys.exit(main())
"""


def test_ctrl_c_is_quiet_while_its_handler_is_removed():
    command = [sys.executable, "-c", CTRL_C_AS_ITS_HANDLER_IS_REMOVED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (130, "")


CTRL_C_AS_AN_OBJECT_GOES = """
import sys
from kcli.main import _unraisable
sys.unraisablehook = _unraisable
class Gone:
    def __del__(self):
        raise KeyboardInterrupt
try:
    Gone()
    while True:
        pass
except KeyboardInterrupt:
    print("it came again")
"""


def test_ctrl_c_where_python_ignores_it_comes_again():
    command = [sys.executable, "-c", CTRL_C_AS_AN_OBJECT_GOES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("it came again\n", "")


CTRL_C_AS_A_LOOP_IS_MADE = """
import asyncio, sys
from kcli.main import _unraisable
sys.unraisablehook = _unraisable
asyncio.SelectorEventLoop.__new__(asyncio.SelectorEventLoop)
class Faulty:
    def __del__(self):
        raise ValueError("a fault of its own")
Faulty()
"""


def test_a_loop_that_was_never_made_goes_in_silence_and_nothing_else_does():
    command = [sys.executable, "-c", CTRL_C_AS_A_LOOP_IS_MADE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "a fault of its own" in done.stderr
    assert done.stderr.count("Exception ignored") == 1
