"""`k console-consumer`: which options go together, and what they mean."""

from types import SimpleNamespace

import pytest

from kcli.client.consumer.consumer import FetchedBatch, Record
from kcli.commands import console_consumer as module
from kcli.console.offset_range import Edge, Exact, Last, OffsetRange
from kcli.main import main
from kserver.wire.batch import TimestampType

TOPIC = ["--topic", "t"]


def given(*words: str) -> SimpleNamespace:
    with module.console_consumer.make_context("k", [*TOPIC, *words]) as context:
        return SimpleNamespace(**context.params)


def properties(*words: str) -> dict[str, str]:
    return module._consumer_properties(given(*words))


def test_reading_starts_at_the_end_or_the_beginning():
    assert properties()["auto.offset.reset"] == "latest"
    assert properties("--from-beginning")["auto.offset.reset"] == "earliest"
    words = ["--command-property", "auto.offset.reset=none"]
    assert properties(*words)["auto.offset.reset"] == "none"


@pytest.mark.parametrize(
    ("words", "offsets"),
    [
        ([], None),
        (["--from-beginning"], None),
        (["--partition", "0"], OffsetRange(Edge.END)),
        (["--partition", "0", "--from-beginning"], OffsetRange(Edge.START)),
        (["--partition", "0", "--offset", "Earliest"], OffsetRange(Edge.START)),
        (["--partition", "0", "--offset", "42"], OffsetRange(Exact(42))),
        (["--offset", "-10:end"], OffsetRange(Last(10), Edge.END)),
        (["--offset", "start"], OffsetRange(Edge.START)),
        (["--offset", "42:"], OffsetRange(Exact(42))),
    ],
)
def test_a_partition_starts_where_it_is_told(words, offsets):
    assert module._reading_options(given(*words)).offsets == offsets


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ([], b"\xffv\n"),
        (["--output-format", "lines"], b"\xffv\n"),
        (["--output-format", "hex", "--property", "print.key=true"], b"6b\tff76\n"),
        (["--value-encoding", "hex", "--property", "print.key=true"], b"k\tff76\n"),
        (["--output-format", "short", "--key-encoding", "text"], b"-138\n"),
        (["-f", "%t/%p/%o %k\\n"], b"t/3/7 k\n"),
        (
            ["--output-format", "jsonl"],
            b'{"topic": "t", "partition": 3, "offset": 7, "timestamp": 9, "key": "k", '
            b'"value": {"base64": "/3Y="}, "headers": []}\n',
        ),
        (["--formatter", "NoOpMessageFormatter"], b""),
    ],
)
def test_records_are_printed_as_told(words, shown):
    batch = FetchedBatch("t", 3, [Record(7, 9, b"k", b"\xffv")], TimestampType(0), 0, 8)
    assert module._formats(given(*words)).lines(batch) == shown


def test_an_option_wins_over_a_property():
    words = ["--consumer-property", "isolation.level=read_uncommitted"]
    assert properties(*words)["isolation.level"] == "read_uncommitted"
    assert properties(*words, "--isolation-level", "read_committed")["isolation.level"] == (
        "read_committed"
    )
    assert properties()["client.id"] == "console-consumer"
    assert properties("--command-property", "client.id=me")["client.id"] == "me"


def test_no_limit_is_minus_one_or_none_given():
    assert module._reading_options(given()).messages is None
    assert module._reading_options(given("--max-messages", "-1")).messages is None
    assert module._reading_options(given("--max-messages", "0")).messages == 0
    assert module._reading_options(given("--timeout-ms", "-5")).patience_ms is None
    assert module._reading_options(given("--timeout-ms", "0")).patience_ms == 0
    assert module._reading_options(given("--idle-timeout", "1.5")).patience_ms == 1500


def test_formatter_properties_win_over_deserializers_over_the_file(tmp_path):
    path = tmp_path / "formatter.properties"
    path.write_text("print.key=true\nkey.deserializer=a\nvalue.deserializer=b\n")
    words = ["--formatter-config", str(path), "--key-deserializer", "c", "--property", "x=y"]
    assert module._formatter_properties(given(*words)) == {
        "print.key": "true",
        "key.deserializer": "c",
        "value.deserializer": "b",
        "x": "y",
    }


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "Exactly one of --include/--topic is required. "),
        ([*TOPIC, "--include", "a"], "Exactly one of --include/--topic is required. "),
        (
            ["--include", "a", "--partition", "1"],
            "The topic is required when partition is specified.",
        ),
        ([*TOPIC, "--offset", "1"], "The partition is required when offset is specified."),
        (
            [*TOPIC, "--partition", "1", "--offset", "1", "--from-beginning"],
            "Options from-beginning and offset cannot be specified together.",
        ),
        (
            [*TOPIC, "--offset", "-1:end", "--from-beginning"],
            "Options from-beginning and offset cannot be specified together.",
        ),
        (
            [*TOPIC, "--partition", "1", "--offset", "x"],
            "The provided offset value 'x' is incorrect. Valid values are 'earliest', 'latest', "
            "or a non-negative long.  Beyond these: it is not an offset, a range or a time",
        ),
        (
            [*TOPIC, "--output-format", "xml"],
            "'xml' is not an output format; formats are lines, json, jsonl, msgpack, hex",
        ),
        ([*TOPIC, "-f", "%q"], "%q is not a letter of -f"),
        (
            [*TOPIC, "-f", "%v", "--output-format", "json"],
            'Option "[output-format]" can\'t be used with option "[format]"',
        ),
        (
            [*TOPIC, "--output-format", "json", "--property", "print.key=true"],
            "--formatter-property is only allowed with --output-format lines, not json",
        ),
        (
            [*TOPIC, "--key-encoding", "hex", "--key-deserializer", "x"],
            'Option "[key-encoding]" can\'t be used with option "[key-deserializer]"',
        ),
        ([*TOPIC, "--value-encoding", "octal"], "'octal' is not an encoding; encodings are text"),
        ([*TOPIC, "--grep", "v:("], "( is an invalid regex: a group ("),
        (
            [*TOPIC, "--timeout-ms", "1", "--idle-timeout", "1"],
            'Option "[timeout-ms]" can\'t be used with option "[idle-timeout]"',
        ),
        (
            [*TOPIC, "--partition", "1", "--group", "g"],
            "Options group and partition cannot be specified together.",
        ),
        (
            [*TOPIC, "--group", "a", "--consumer-property", "group.id=b"],
            "The group ids provided in different places (directly using '--group', via "
            "'--consumer-property', or via '--consumer.config') do not match. Detected group ids: "
            "'a', 'b'",
        ),
        (
            [*TOPIC, "--from-beginning", "--consumer-property", "auto.offset.reset=latest"],
            "Can't simultaneously specify --from-beginning and 'auto.offset.reset=latest', please "
            "remove one option",
        ),
        (
            [*TOPIC, "--property", "a=b", "--formatter-property", "a=b"],
            "Options --property and --formatter-property cannot be specified together.",
        ),
        ([*TOPIC, "--formatter", "com.Mine"], "com.Mine is not a formatter that k has"),
        (["--include", "["], "[ is an invalid regex"),
        (
            [*TOPIC, "--group", "g", "--offset", "start"],
            "--offset is not allowed with a group: group g has its own offsets",
        ),
        (
            [*TOPIC, "--command-property", "group.id=g", "-e"],
            "--exit-at-end is not allowed with a group",
        ),
    ],
)
def test_options_that_do_not_go_together_are_a_usage_error(words, why, capsys):
    assert main(["console-consumer", *words]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"k console-consumer: {why}")


def test_a_cluster_that_cannot_be_reached_in_time_ends_with_124(capsys, free_port):
    words = [*TOPIC, "--bootstrap-server", f"127.0.0.1:{free_port}", "--timeout-ms", "100"]
    assert main(["console-consumer", *words]) == 124
    assert capsys.readouterr().err.endswith("Processed a total of 0 messages\n")
