"""What may stand at the cursor, by declarations and by a cluster that is written down here."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcli.command.command import command_named
from kcli.command.command_list import COMMANDS
from kcli.shell_completion.completion import NOTHING, FoundValues, complete, split
from kcli.shell_completion.completion_values import FORMATTER_KEYS, READER_KEYS, SOURCES
from kcli.spark.jobs import JOBS, job_named

NAMES = [name for group in COMMANDS.values() for name in group]


class Cluster:
    """Two topics on two brokers."""

    def __init__(self, asked: SimpleNamespace | None = None) -> None:
        self.asked = asked

    def topics(self) -> dict[str, int]:
        return {"orders": 3, "payments": 1}

    def brokers(self) -> dict[str, str]:
        return {"1": "one:9092", "2": "two:9092"}

    def topic_keys(self) -> Sequence[str]:
        return ["cleanup.policy", "message.downconversion.enable", "of.another.broker"]

    def groups(self) -> dict[str, str]:
        return {"billing": "Stable", "audit": "Empty"}


def values(line: str) -> list[str]:
    """The candidates at the end of the line, each with what stands before it in its word."""
    found = complete(split(line), Cluster)
    return [found.before + value for value, _ in found.candidates]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("k top", ["topics", "top"]),
        ("k --v", ["--version"]),
        ("k nonsense ", []),
        ("k topics --desc", ["--describe"]),
        ("k topics -desc", ["-describe"]),
        ("k server-start -d", ["-daemon"]),
        ("k topics --describe --desc", []),
        ("k topics --no-such-option --desc", ["--describe"]),
        ("k topics --config a=b --conf", ["--config"]),
        ("k topics --zoo", ["--zookeeper"]),
        ("k topics -- --desc", []),
        ("k completion ", ["bash", "zsh", "fish"]),
        ("k perf-test pro", ["producer"]),
        ("k perf-test producer --num", ["--num-records"]),
        ("k spark-submit ", ["land", "etl", "replay", "compact", "redrive", "audit"]),
        ("k spark-submit --sh", ["--ship"]),
        ("k spark-submit --master local --ship --verbose re", ["replay", "redrive"]),
        ("k spark-submit --conf a=b land --late-a", ["--late-after"]),
        ("k spark-submit land --format ", ["parquet", "json", "delta"]),
        ("k spark-submit etl --topics orders,pay", ["orders,payments"]),
    ],
)
def test_commands_and_options_are_those_declared(line: str, expected: list[str]) -> None:
    assert values(line) == expected


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("k spark-submit ap", "ap"),
        ("k spark-submit --py-files de", "de"),
        ("k spark-submit --verbose app.py in", "in"),
    ],
)
def test_an_application_of_spark_is_a_file(line: str, file: str) -> None:
    assert complete(split(line), Cluster) == FoundValues(file=file)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("k topics --topic ", ["orders", "payments"]),
        ("k topics -topic pay", ["payments"]),
        ("k topics --topic=pay", ["--topic=payments"]),
        ("k topics --topic 'pay", ["payments"]),
        ("k console-consumer --topic orders --partition ", ["0", "1", "2"]),
        ("k console-consumer --topic=payments --partition ", ["0"]),
        ("k console-consumer --partition ", []),
        ("k get-offsets --topic payments --partitions ", ["0"]),
        ("k get-offsets --topic orders --partitions 0,", ["0,0", "0,1", "0,2"]),
        ("k topics --create --partitions ", []),
        ("k get-offsets --topic-partitions or", ["orders"]),
        ("k get-offsets --topic-partitions payments:0,pay", ["payments:0,payments"]),
        ("k get-offsets --topic-partitions payments:", ["payments:0"]),
        ("k topics --bootstrap-server one:9092,t", ["one:9092,two:9092"]),
        ("k get-offsets --broker-list t", ["two:9092"]),
        ("k topics --replica-assignment 1:2,", ["1:2,1", "1:2,2"]),
        ("k topics --replica-assignment 1:2,2:", ["1:2,2:1", "1:2,2:2"]),
        ("k topics --config clean", ["cleanup.policy="]),
        ("k topics --config=of", ["--config=of.another.broker="]),
        ("k topics --config of.another.broker=", []),
        ("k topics --config cleanup.policy=", ["cleanup.policy=compact", "cleanup.policy=delete"]),
        ("k configs --entity-type top", ["topics"]),
        ("k configs --entity-type topics --entity-name ord", ["orders"]),
        ("k configs --entity-type brokers --entity-name ", ["1", "2"]),
        ("k configs --broker-logger ", ["1", "2"]),
        ("k configs --topic orders --add-config cl", ["cleanup.policy="]),
        (
            "k configs --topic orders --add-config a=b,cleanup.policy=c",
            ["a=b,cleanup.policy=compact"],
        ),
        ("k configs --broker 1 --add-config log.prea", ["log.preallocate="]),
        ("k configs --broker 1 --add-config num.part", []),
        ("k configs --broker-defaults --delete-config a,log.prea", ["a,log.preallocate"]),
        ("k configs --topic orders --delete-config cl", ["cleanup.policy"]),
        ("k configs --client c --add-config prod", ["producer_byte_rate="]),
        (
            "k configs --entity-type ips --entity-default --delete-config ",
            ["connection_creation_rate"],
        ),
        ("k topics -o j", ["json", "jsonl"]),
        ("k topics -o=j", ["-o=json", "-o=jsonl"]),
        ("k server-start --override auto.create.topics.enable=t", 1),
        ("k console-producer --command-property acks=a", ["acks=all"]),
        ("k console-consumer --command-property max.poll.r", ["max.poll.records="]),
        ("k console-producer --property parse.k", ["parse.key="]),
        ("k console-consumer --property print.key=t", ["print.key=true"]),
        ("k console-producer --compression-codec --syn", ["--sync"]),
        ("k console-producer --compression-codec z", ["zstd"]),
        ("k consumer-groups --group ", ["billing", "audit"]),
        ("k consumer-groups --list --state stable,Em", ["stable,Empty"]),
        ("k consumer-groups --list --type ", ["Classic", "Consumer"]),
        ("k consumer-groups --topic orders:", ["orders:0", "orders:1", "orders:2"]),
        ("k groups --group-type S", ["Share", "Streams"]),
    ],
)
def test_values_are_what_their_option_takes(line: str, expected: list[str] | int) -> None:
    found = values(line)
    assert (len(found) if isinstance(expected, int) else found) == expected


@pytest.mark.parametrize(
    ("line", "before", "file"),
    [
        ("k dump-log --files ", "", ""),
        ("k dump-log --files a.log,b", "a.log,", "b"),
        ("k topics --command-config=cl", "--command-config=", "cl"),
        ("k server-start serv", "", "serv"),
        ("k zookeeper-server-start zoo", "", "zoo"),
    ],
)
def test_names_of_files_are_left_to_the_shell(line: str, before: str, file: str) -> None:
    assert complete(split(line), Cluster) == FoundValues((), before, file)


def test_the_cluster_is_the_one_that_the_words_lead_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER", "here:9092")
    asked = []

    def names_of(given: SimpleNamespace) -> Cluster:
        asked.append((given.bootstrap_server, given.command_config))
        return Cluster()

    for words in (
        "--topic ",
        "--bootstrap-server=$BROKER --topic ",
        "--broker-list old:9092 --command-config x.properties --topic ",
    ):
        complete(split(f"k get-offsets {words}"), names_of)
    assert asked == [(None, None), ("here:9092", None), ("old:9092", "x.properties")]


@settings(max_examples=30)
@given(st.sampled_from(NAMES), st.lists(st.text() | st.sampled_from(["--", "-", "--topic", "="])))
def test_whatever_was_typed_is_no_error(command: str, words: list[str]) -> None:
    complete([command, *words, ""], Cluster)
    complete([command, *words, "-"], Cluster)


@given(st.lists(st.text(), min_size=1))
def test_a_line_is_split_as_the_shell_does(words: list[str]) -> None:
    assert split(shlex.join(["k", *words])) == words


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("k", [""]),
        ("k ", [""]),
        ("k topics", ["topics"]),
        ("k topics ", ["topics", ""]),
        ("k topics 'or", ["topics", "or"]),
        ('k topics "or ', ["topics", "or "]),
        ("k topics or\\", ["topics", "or"]),
    ],
)
def test_a_line_may_end_within_a_word(line: str, words: list[str]) -> None:
    assert split(line) == words


def test_properties_are_those_that_the_options_explain() -> None:
    for name, option, keys in (
        ("console-producer", "reader-property", READER_KEYS),
        ("console-consumer", "formatter-property", FORMATTER_KEYS),
    ):
        (declared,) = [o for o in command_named(name).options() if o.word == option]
        missing = [key for key in keys if key not in (declared.help or "")]
        assert not missing


def test_every_value_source_is_of_an_option_that_exists() -> None:
    commands = [*map(command_named, NAMES), *map(job_named, JOBS)]
    declared = {option.word for command in commands for option in command.options()}
    assert {name.split()[-1] for name in SOURCES} <= declared


def test_nothing_is_offered_where_nothing_is_known() -> None:
    assert complete(split("k topics --topic-id "), Cluster) == NOTHING
