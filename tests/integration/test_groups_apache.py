"""Test that `k consumer-groups` and `k groups` print the same text as Apache's scripts of Kafka
4.3.1, on our broker and on Apache's.

Lines are compared in any order, because Apache's has none. The exit status is not compared:
Apache's tool ends with 0 even if all its requests were refused.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import re
import subprocess
import sys
import time
from typing import NamedTuple

import jsonschema
import pytest

from kcli.commands.shapes import declared
from kcli.main import main
from kcli.rows.shapes import schema
from tests.support import apache_kafka
from tests.support import brokers as kinds
from tests.support.apache_scripts import ApacheScripts
from tests.support.rows import READ_BACK, read
from tests.support.terminal import on_a_terminal
from tests.support.tools import K, require

NEW, OLD = "4.3.1", "3.9.2"
SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": 1,
}
JOIN_TIMEOUT_S = 60
RECORDS = 20
LONG = "a-topic.whose_name-is-longer-than-a-column"


class Place(NamedTuple):
    """A broker with groups, and the consumers that keep the groups alive."""

    address: str
    consumers: list


@pytest.fixture(scope="module")
def scripts():
    with ApacheScripts(NEW) as running:
        yield running


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Function that returns the broker of a kind, started at the first call."""
    require("java")
    require("confluent_kafka")
    with contextlib.ExitStack() as running:

        @functools.cache
        def place(kind: str) -> Place:
            directory = tmp_path_factory.mktemp("broker")
            broker = running.enter_context(kinds.running(kind, directory, SETTINGS))
            made = _populated(broker.address, by_kip_848=kind != OLD)
            for consumer in made.consumers:
                running.callback(consumer.close)
            return made

        yield place


def _populated(address: str, *, by_kip_848: bool) -> Place:
    """Create the groups: `live` with two members, one of them static; `idle` with offsets only;
    `new` by KIP-848."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    for topic, partitions in (("t", 3), (LONG, 2)):
        kinds.create_topic(address, topic, partitions)
    producer = Producer({"bootstrap.servers": address})
    for n in range(RECORDS):
        producer.produce("t", b"%d" % n, partition=n % 3)
    producer.flush()
    kinds.await_coordinator(address, "idle")

    def consumer(group: str, **settings: str) -> Consumer:
        given = {
            "bootstrap.servers": address,
            "group.id": group,
            "enable.auto.commit": False,
            # Members stay, however long the tests take.
            "max.poll.interval.ms": 3_600_000,
        }
        return Consumer(given | {key.replace("_", "."): v for key, v in settings.items()})

    idle = consumer("idle")
    offsets = [TopicPartition("t", 0, 3), TopicPartition("t", 2, 99)]
    idle.commit(offsets=offsets, asynchronous=False)
    idle.close()
    one = consumer("live", client_id="one")
    one.subscribe(["t"])
    two = consumer("live", client_id="two", group_instance_id="static-two")
    two.subscribe(["t", LONG])
    members = [one, two]
    if by_kip_848:
        new = consumer("new", client_id="three", group_protocol="consumer")
        new.subscribe(["t"])
        members.append(new)
    deadline = time.monotonic() + JOIN_TIMEOUT_S
    while (
        len(one.assignment()) + len(two.assignment()) != 5
        or not one.assignment()
        or not all(member.assignment() for member in members)
    ):
        assert time.monotonic() < deadline
        for member in members:
            member.poll(0.05)
    two.commit(offsets=[TopicPartition("t", 1, 4)], asynchronous=False)
    return Place(address, members)


@pytest.fixture(params=(kinds.OURS, NEW, OLD))
def place(request, places):
    return places(request.param)


class Told(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture
def k(capsys):
    """Function that runs a command in this process."""

    def run(place: Place, command: str, *words: str) -> Told:
        status = main([command, "--bootstrap-server", place.address, *words])
        return Told(status, *capsys.readouterr())

    return run


GROUPS = "consumer-groups"
HEADINGS = ("TIME", "GROUP", "STATE", "LAG", "LAG-SECONDS", "TREND")
OFFSETS_FORMATTER = "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"
GROUPS_FORMATTER = "org.apache.kafka.tools.consumer.GroupMetadataMessageFormatter"
_numbers = itertools.count(1)
RESET = "--reset-offsets --dry-run --group idle"
REFUSED = 1
ROWS = [
    (0, "groups", "--list"),
    (0, "groups", "--list --consumer"),
    (0, "groups", "--list --group-type classic"),
    (0, "groups", "--list --group-type Consumer --protocol consumer"),
    (0, "groups", "--list --share"),
    (0, "groups", "--list --protocol consumer"),
    (0, GROUPS, "--list"),
    (0, GROUPS, "--list --state"),
    (0, GROUPS, "--list --type --state"),
    (0, GROUPS, "--list --type classic"),
    (0, GROUPS, "--list --state empty,STABLE --type"),
    (0, GROUPS, "--list --state Dead"),
    (0, GROUPS, "--describe --all-groups"),
    (0, GROUPS, "--describe --all-groups --verbose --offsets"),
    (0, GROUPS, "--describe --all-groups --members"),
    (0, GROUPS, "--describe --all-groups --members --verbose"),
    (0, GROUPS, "--describe --all-groups --state"),
    (0, GROUPS, "--describe --group live --group idle --state --verbose"),
    (REFUSED, GROUPS, "--describe --group missing"),
    (REFUSED, GROUPS, "--describe --group missing --members"),
    (REFUSED, GROUPS, "--describe --group missing --group idle --state"),
    (0, GROUPS, f"{RESET} --all-topics --to-earliest"),
    (0, GROUPS, f"{RESET} --topic t --to-latest"),
    (0, GROUPS, f"{RESET} --topic t:0,2 --topic {LONG} --to-offset 5"),
    (0, GROUPS, f"{RESET} --all-topics --shift-by -5"),
    (0, GROUPS, f"{RESET} --topic t:2 --shift-by 1"),
    (0, GROUPS, f"{RESET} --topic t --to-current"),
    (0, GROUPS, f"{RESET} --topic t --to-datetime 2020-01-31T09:05:07.042"),
    (0, GROUPS, f"{RESET} --topic t --to-datetime 2090-01-31T09:05:07.042+01:00"),
    (0, GROUPS, f"{RESET} --topic t --by-duration P1DT2H"),
    (0, GROUPS, f"{RESET} --topic {LONG}:1 --by-duration PT0S"),
    (0, GROUPS, f"{RESET} --topic t --topic {LONG} --to-latest --export"),
    (0, GROUPS, "--reset-offsets --dry-run --group idle --group fresh --topic t:1 --to-earliest"),
    (0, GROUPS, "--reset-offsets --group idle --topic t:1 --to-latest"),
    (REFUSED, GROUPS, "--reset-offsets --execute --group live --topic t --to-earliest"),
    (REFUSED, GROUPS, "--reset-offsets --dry-run --all-groups --all-topics --to-latest --export"),
    (REFUSED, GROUPS, f"{RESET} --topic missing --to-latest"),
    (REFUSED, GROUPS, f"{RESET} --topic t:0,7 --to-latest"),
    (REFUSED, GROUPS, f"{RESET} --topic t --by-duration 5m"),
    (REFUSED, GROUPS, "--delete --group live"),
    (REFUSED, GROUPS, "--delete --group missing --group live"),
    (REFUSED, GROUPS, "--delete-offsets --group live --topic t"),
    (REFUSED, GROUPS, "--delete-offsets --group missing --topic t:0"),
    (REFUSED, GROUPS, "--delete-offsets --group idle --topic missing"),
]


OF_OLD = [row for row in ROWS if re.search("--describe|--delete", row[2])]
"""Rows that also run on a broker of an older version, because its responses may differ."""


@pytest.mark.parametrize(
    ("place", "status", "command", "words"),
    [
        *((kind, *row) for kind in (kinds.OURS, NEW) for row in ROWS),
        *((OLD, *row) for row in OF_OLD),
    ],
    indirect=["place"],
    ids=str,
)
def test_answers_are_the_same(status, command, words, place, k, scripts):
    ours = k(place, command, *words.split())
    theirs = scripts.run(command, "--bootstrap-server", place.address, *words.split())
    assert sorted(ours.out.split("\n")) == sorted(theirs.out.split("\n"))
    assert ours.status == status
    # Other lines on standard error are stack traces or log lines.
    assert sorted(_notices(ours.err)) == sorted(_notices(theirs.err))


def _notices(err: str) -> list[str]:
    return re.findall("^(?:Consumer group|Warning: |WARN: ).*", err, re.M)


def test_what_is_changed_is_changed_the_same(place, k, scripts, tmp_path):
    """Each tool changes its own group; the groups differ only in their names."""
    plan = tmp_path / "plan.csv"

    def life(run, group):
        steps = [
            f"--reset-offsets --group {group} --topic t --to-offset 4 --execute",
            f"--describe --group {group}",
            f"--reset-offsets --group {group} --all-topics --shift-by -1 --execute",
            f"--reset-offsets --group {group} --all-topics --to-current --dry-run --export",
            f"--reset-offsets --group {group} --from-file {plan} --execute",
            f"--reset-offsets --group {group} --group idle --from-file {plan} --dry-run",
            f"--describe --group {group}",
            f"--delete-offsets --group {group} --topic t:0 --topic {LONG}",
            f"--delete-offsets --group {group} --topic t:0 --topic missing --topic t",
            f"--reset-offsets --group {group} --topic t:1 --to-latest --execute",
            f"--delete --group {group} --group missing",
            f"--delete --group {group}",
            f"--reset-offsets --group {group} --topic {LONG}:1 --to-earliest --execute --export",
            f"--describe --group {group} --state",
            f"--delete --group {group}",
        ]
        told = []
        for step in steps:
            plan.write_text("t,0,2\nt,1,0\n\n" if "idle" not in step else f"{group},t,1,1\n")
            done = run(*step.split())
            told.append((step, sorted(done.out.replace(group, "GROUP").split("\n"))))
        return [(step.replace(group, "GROUP"), lines) for step, lines in told]

    ours = life(lambda *words: k(place, GROUPS, *words), "our_s")
    server = ("--bootstrap-server", place.address)
    assert ours == life(lambda *words: scripts.run(GROUPS, *server, *words), "their")


@pytest.mark.parametrize(
    "words",
    [
        "--group a",
        "--list --describe --group a",
        "--members",
        "--list --verbose",
        "--describe --group a --type",
        "--describe --group a --members --offsets",
        "--describe --group a --state Stable",
        "--describe --group a --all-groups",
        "--describe --group a --topic t",
        "--list --group a",
        "--list --topic t",
        "--delete --group a --topic t",
        "--delete-offsets --group a",
        "--reset-offsets --group a --dry-run --execute",
        "--reset-offsets --group a --dry-run --to-earliest --to-latest --topic t",
        "--reset-offsets --group a --dry-run --to-earliest",
        "--reset-offsets --group a --dry-run --to-earliest --topic t:",
        "--reset-offsets --group a --dry-run --to-earliest --topic t:0:1",
        "--reset-offsets --group a --dry-run --to-earliest --topic t:0,x",
        "--delete-offsets --group a --topic t:x",
    ],
)
def test_what_makes_no_sense_is_refused_in_the_same_words(words, places, k, scripts):
    place = places(NEW)
    ours = k(place, GROUPS, *words.split())
    theirs = scripts.run(GROUPS, "--bootstrap-server", place.address, *words.split())
    assert (ours.status, theirs.status) == (2, 1)
    assert (ours.out, theirs.out) == ("", "")
    said = ours.err.splitlines()[0].removeprefix(f"k {GROUPS}: ")
    assert _words(said) in map(_words, theirs.err.splitlines())


def _words(line: str) -> list[str]:
    """Return the words sorted, because Apache's tool names mutually exclusive options in any
    order."""
    line = line.removeprefix('Exception in thread "main" ')
    return sorted(re.split(",? ", line.removeprefix("joptsimple.UnavailableOptionException: ")))


@pytest.mark.parametrize(
    "pattern",
    ["orders-.*", "(?i)a{2,3}?", "(?=a)", "a**", "*", "a{1001}", "(a", "[a", "[z-a]", "\\", "\\y"],
)
def test_a_pattern_is_as_valid(pattern, places, k, scripts):
    ours = k(places(NEW), GROUPS, "--validate-regex", pattern)
    assert ours.out == scripts.run(GROUPS, "--validate-regex", pattern).out
    assert ours.status == (0 if " is valid" in ours.out else 3)


def test_an_offset_outside_of_its_log_is_told(places, k):
    words = f"{RESET} --topic t:0 --to-offset".split()
    for offset, where, target in ((99, "higher than latest", 7), (-1, "lower than earliest", 0)):
        done = k(places(NEW), GROUPS, *words, str(offset))
        assert done.err == (
            f"WARN New offset ({offset}) is {where} offset for topic partition t-0. "
            f"Value will be set to {target}\n"
        )


SHAPED = {
    "k.consumer-groups.list/1": f"{GROUPS} --list",
    "k.consumer-groups.offsets/1": f"{GROUPS} --describe --all-groups",
    "k.consumer-groups.members/1": f"{GROUPS} --describe --all-groups --members",
    "k.consumer-groups.state/1": f"{GROUPS} --describe --all-groups --state",
    "k.consumer-groups.watch/1": f"{GROUPS} --describe --all-groups --watch --until-lag 9999",
    "k.consumer-groups.reset/1": f"{GROUPS} {RESET} --topic t --to-latest",
    "k.groups.list/1": "groups --list",
}


def test_every_shape_of_groups_is_looked_at_here():
    ours = {id for id, (name, _) in declared().items() if name in (GROUPS, "groups")}
    assert SHAPED.keys() == ours


@pytest.mark.parametrize("id", SHAPED)
def test_rows_are_of_their_documented_shape(id, place, k):
    _, shape = declared()[id]
    for name in READ_BACK:
        done = k(place, *SHAPED[id].split(), "-o", name)
        found = read(name, done.out, shape)
        assert done.status == 0
        assert found
        jsonschema.validate({"schema": id, "items": found, "errors": []}, schema(shape))
        assert all(tuple(row) == shape.names for row in found)


def test_rows_tell_how_old_the_next_record_is(place, k):
    done = k(place, GROUPS, "--describe", "--group", "idle", "-o", "jsonl")
    behind, ahead = (json.loads(line) for line in done.out.splitlines())
    assert (behind["current_offset"], behind["lag"]) == (3, 4)
    assert 0 < behind["lag_seconds"] < 3600
    # The committed offset is beyond the log's end: no record waits to be read.
    assert (ahead["lag"], ahead["lag_seconds"]) == (-93, 0)


def test_a_gate_opens_when_a_group_has_come_so_far(place, k):
    """In t-0 the group has four records to read; in t-2 it committed an offset beyond the log's
    end."""
    waiting = f"{GROUPS} --describe --group idle --until-lag".split()
    opened = k(place, *waiting, "4")
    assert opened == k(place, *f"{GROUPS} --describe --group idle".split())
    assert opened.status == 0
    closed = k(place, *waiting, "3", "--timeout", "5s")
    assert (closed.status, closed.out) == (124, "")
    assert closed.err == f"k {GROUPS}: not done within 5 s: the lag of idle is 4\n"
    closed = k(place, *waiting, "3", "--timeout", "5s", "-o", "json")
    (told,) = json.loads(closed.out)["errors"]
    assert (told["code"], told["message"].partition(": ")[2]) == (
        "TIMED_OUT",
        "the lag of idle is 4",
    )
    missing = k(place, *f"{GROUPS} --describe --group missing --until-lag 0".split())
    assert missing.status == REFUSED


def test_what_was_never_committed_cannot_be_shifted(place, k):
    words = f"{GROUPS} --reset-offsets --group never --topic t:0 --shift-by -1 --execute".split()
    done = k(place, *words, "-o", "json")
    assert done.status == 1
    (told,) = json.loads(done.out)["errors"]
    assert told["message"].startswith("Cannot shift offset for partition t-0 since there is no")


def test_a_group_is_watched_until_it_has_read_all(place, k):
    group = f"watched-{next(_numbers)}"
    seek = f"{GROUPS} --reset-offsets --group {group} --topic t:0,1 --execute".split()
    assert k(place, *seek, "--to-earliest").status == 0
    words = f"{GROUPS} --describe --group {group} --watch 50ms --until-lag 0".split()
    with subprocess.Popen(
        [*K, *words, "--bootstrap-server", place.address], stdout=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdout.readline().split() == [*HEADINGS]
        first = watching.stdout.readline().split()
        assert first[1:4] == [group, "Empty", "14"]
        assert 0 < float(first[4]) < 3600
        assert k(place, *seek, "--to-latest").status == 0
        last = watching.stdout.read().splitlines()[-1].split()
        assert last[1:5] == [group, "Empty", "0", "0.0"]
        assert float(last[5].removesuffix("/s")) < 0
        assert watching.wait() == 0
    assert k(place, *f"{GROUPS} --delete --group {group}".split()).status == 0


def test_what_was_committed_for_nothing_counts_as_all_that_there_is(place, k):
    done = k(place, *f"{GROUPS} --describe --group live --watch --until-lag 20 -o jsonl".split())
    look = json.loads(done.out)
    # Twenty records, four of which it has committed.
    assert (look["lag"], look["members"], look["partitions"]) == (16, 2, 5)
    assert 0 < look["lag_seconds"] < 3600


@pytest.mark.parametrize("kind", ["dumb", ""])
def test_a_terminal_without_a_cursor_gets_a_line_a_look(place, kind):
    words = f"{GROUPS} --describe --group idle --watch 10ms".split()
    words += ["--bootstrap-server", place.address]
    environment = os.environ | {"TERM": kind}
    status, shown = on_a_terminal([*K, *words], environment=environment, interrupt_at=b"Empty")
    assert status == 130
    assert b"\x1b" not in shown
    assert shown.split()[: len(HEADINGS)] == [heading.encode() for heading in HEADINGS]


def test_on_a_terminal_the_table_of_each_look_takes_the_place_of_the_last(place):
    words = f"{GROUPS} --describe --group idle --watch 10ms --until-lag 4".split()
    words += ["--bootstrap-server", place.address]
    status, shown = on_a_terminal([*K, *words])
    assert status == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    assert re.search(r"^ *idle +4 +[0-9.]+ +- +Empty", text, re.M)
    assert re.search(r"^ +t +0 +4 ", text, re.M)


def test_the_tools_of_3_9_read_the_same_of_our_broker(places, k):
    """The column widths are those of 3.9."""
    place = places(kinds.OURS)
    server = ("--bootstrap-server", place.address)
    with ApacheScripts(OLD) as scripts:
        for words in (
            "--list --type --state",
            "--describe --group idle",
            "--describe --group live",
            "--describe --group new",
            "--describe --group live --members",
            "--describe --all-groups --state",
            f"{RESET} --all-topics --to-current",
        ):
            # On a busy machine the first request may take more than the default of 5 s.
            asked = (*words.split(), "--timeout", "60000")
            ours, theirs = k(place, GROUPS, *asked), scripts.run(GROUPS, *server, *asked)
            assert sorted(_without_blanks(ours.out)) == sorted(_without_blanks(theirs.out))


def _without_blanks(text: str) -> list[str]:
    return [word for word in text.split() if word != "-"]


def test_apaches_formatters_read_what_our_broker_keeps_of_groups(places, k):
    place = places(kinds.OURS)
    at = ("--topic", "__consumer_offsets")
    (line,) = k(place, "get-offsets", *at).out.splitlines()
    words = f"--partition 0 --offset earliest --max-messages {line.split(':')[2]}".split()
    script = [sys.executable, apache_kafka.__file__, "tool", NEW, "kafka-console-consumer.sh"]
    printing = {
        name: subprocess.Popen(
            [*script, *at, *words, "--bootstrap-server", place.address, "--formatter", name],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"KAFKA_JVM_PERFORMANCE_OPTS": kinds.QUICK_START},
        )
        for name in (OFFSETS_FORMATTER, GROUPS_FORMATTER)
    }
    found = {}
    for name, process in printing.items():
        with process:
            text = process.stdout.read().decode()
        # Kafka's formatters print no line separators.
        found[name] = json.loads("[" + text.replace('}{"key"', '},{"key"') + "]")
    offsets = {
        (key["group"], key["topic"], key["partition"]): one["value"]["data"]["offset"]
        for one in found[OFFSETS_FORMATTER]
        for key in [one["key"]["data"]]
        if one["value"] is not None
    }
    assert offsets["idle", "t", 0] == 3
    assert offsets["live", "t", 1] == 4
    members = [
        one["value"]["data"]["members"]
        for one in found[GROUPS_FORMATTER]
        if one["key"]["data"]["group"] == "live" and one["value"] is not None
    ]
    assert {one["clientId"] for one in members[-1]} == {"one", "two"}


def test_what_is_not_there_stands_among_the_errors_of_rows(place, k):
    done = k(place, *f"{GROUPS} --describe --group missing --group live -o json".split())
    document = json.loads(done.out)
    assert done.status == REFUSED
    assert {row["group"] for row in document["items"]} == {"live"}
    (error,) = document["errors"]
    assert (error["subject"], error["code"]) == ("missing", "GROUP_ID_NOT_FOUND")


def test_a_dry_run_deletes_nothing(place, k):
    steps = {
        "--delete --group idle": "delete group idle and all its committed offsets",
        "--delete-offsets --group idle --topic t:0": "delete what group idle committed for t-0",
    }
    before = k(place, *f"{GROUPS} --describe --group idle".split()).out
    for words, step in steps.items():
        done = k(place, GROUPS, *words.split(), "--dry-run")
        assert (done.status, done.out) == (0, f"Would {step}.\n")
    assert k(place, *f"{GROUPS} --describe --group idle".split()).out == before
    for group in ("missing", "live"):
        refused = k(place, *f"{GROUPS} --delete --dry-run --group idle --group {group}".split())
        assert (refused.status, "Would" in refused.out) == (REFUSED, False)
