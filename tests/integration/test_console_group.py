"""Test that consumers in a group commit only the records that they have written to standard
output."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import time
from itertools import count

import pytest

from tests.support.brokers import until
from tests.support.process import BrokerProcess
from tests.support.tools import K

TIMEOUT_S = 60
RECORDS = 20_000
SESSION_MS = 6000
PROTOCOLS = ["classic", "consumer"]
numbers = count(1)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    settings = {
        "group.initial.rebalance.delay.ms": 0,
        "group.consumer.session.timeout.ms": SESSION_MS,
        "group.consumer.min.session.timeout.ms": SESSION_MS,
        "group.consumer.heartbeat.interval.ms": 500,
        "group.consumer.min.heartbeat.interval.ms": 500,
    }
    with BrokerProcess(tmp_path_factory.mktemp("broker"), settings) as running:
        lines = b"".join(b"%d-%s\n" % (n, b"x" * 50) for n in range(RECORDS))
        k(running, "console-producer", "--topic", "long", input=lines)
        k(running, "console-producer", "--topic", "mixed", input=b"8 bytes.\n" * 5 + b"5 by.\n" * 5)
        yield running


def k(broker, *words, **options):
    server = ("--bootstrap-server", broker.address)
    return subprocess.run(
        [*K, *words, *server], check=True, capture_output=True, timeout=TIMEOUT_S, **options
    ).stdout


class Group:
    def __init__(self, broker, protocol):
        self.broker = broker
        self.name = f"group-{next(numbers)}"
        self.protocol = protocol

    def reading(self, topic, *words, **options):
        """Start a member that reads from the beginning."""
        properties = [f"group.protocol={self.protocol}"]
        if self.protocol == "classic":
            properties.append(f"session.timeout.ms={SESSION_MS}")
        words += ("--topic", topic, "--group", self.name, "--from-beginning")
        words += tuple(f"--consumer-property={one}" for one in properties)
        server = ("--bootstrap-server", self.broker.address)
        return subprocess.Popen(
            [*K, "console-consumer", *words, *server], stderr=subprocess.PIPE, **options
        )

    @property
    def exists(self):
        return self.name in k(self.broker, "consumer-groups", "--list").decode().split()

    def row(self):
        words = ("consumer-groups", "--describe", "--group", self.name, "-o", "jsonl")
        (line,) = k(self.broker, *words).splitlines()
        return json.loads(line)

    @property
    def committed(self):
        return self.row()["current_offset"] or 0

    @property
    def has_members(self):
        return self.row()["consumer_id"] is not None


@pytest.fixture(params=PROTOCOLS)
def group(request, broker):
    return Group(broker, request.param)


def ended(reading):
    """Wait for the end; return the exit status and the number of messages it claims to have
    processed."""
    status = reading.wait(TIMEOUT_S)
    with reading.stderr:
        told = reading.stderr.read().decode()
    return status, int(re.search(r"Processed a total of (\d+) messages", told)[1])


def test_what_a_full_device_refuses_is_not_committed(group):
    with open("/dev/full", "wb") as full:
        assert ended(group.reading("long", stdout=full)) == (1, 0)
    assert (group.committed, group.has_members) == (0, False)


@pytest.mark.parametrize("words", [(), ("--output-format", "json")], ids=["text", "json"])
def test_of_a_disk_that_fills_the_whole_lines_are_committed(group, tmp_path, words):
    size = 500_000

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    path = tmp_path / "lines"
    with path.open("wb") as file:
        status, printed = ended(group.reading("long", *words, stdout=file, preexec_fn=limit))
    assert status == 1
    assert path.stat().st_size == size
    lines = path.read_bytes().count(b"\n")
    assert 0 < lines < RECORDS
    assert (group.committed, printed) == (lines, lines)


def test_a_member_whose_reader_has_gone_leaves_and_commits_what_the_pipe_took(group):
    reading = group.reading("long", stdout=subprocess.PIPE)
    with reading.stdout:
        assert reading.stdout.readline().startswith(b"0-")
    _, printed = ended(reading)
    assert 0 < printed < RECORDS
    assert (group.committed, group.has_members) == (printed, False)


def test_a_record_that_cannot_be_printed_is_not_committed(group):
    reading = group.reading("mixed", "--format", "%v{long}\\n", stdout=subprocess.PIPE)
    with reading.stdout:
        lines = reading.stdout.read().count(b"\n")
    assert ended(reading) == (1, 5)
    assert (lines, group.committed, group.has_members) == (5, 5, False)


def test_a_reader_that_pauses_longer_than_a_session_costs_nothing(group):
    reading = group.reading("long", "--max-messages", str(RECORDS), stdout=subprocess.PIPE)
    with reading.stdout:
        first = reading.stdout.readline()
        until(lambda: group.exists, TIMEOUT_S)
        member = group.row()["consumer_id"]
        time.sleep(1.5 * SESSION_MS / 1000)  # a session timeout has to pass
        assert group.row()["consumer_id"] == member
        lines = [first, *reading.stdout]
    assert [int(line.partition(b"-")[0]) for line in lines] == list(range(RECORDS))
    assert ended(reading) == (0, RECORDS)
    assert group.committed == RECORDS


def test_what_a_slow_reader_has_read_is_committed_on_the_way(group):
    interval = "--consumer-property=auto.commit.interval.ms=500"
    reading = group.reading("long", interval, stdout=subprocess.PIPE)
    with reading.stdout:
        assert reading.stdout.readline()
        until(lambda: group.exists, TIMEOUT_S)
        deadline = time.monotonic() + TIMEOUT_S
        while not group.committed:
            assert time.monotonic() < deadline
            assert os.read(reading.stdout.fileno(), 60_000)
        assert group.committed < RECORDS
    ended(reading)


@pytest.mark.parametrize("words", [(), ("--group", "impatient")], ids=["alone", "group"])
def test_a_timeout_of_nothing_is_no_failure_to_reach_the_cluster(broker, words):
    k(broker, "console-consumer", "--topic", "long", *words, "--timeout-ms", "0")


class VerifiableGroup(Group):
    def reading(self, topic, *words, **options):
        server = ("--bootstrap-server", self.broker.address, "--group-protocol", self.protocol)
        words = ("--topic", topic, "--group-id", self.name, "--enable-autocommit", *words, *server)
        return subprocess.Popen(
            [*K, "verifiable-consumer", *words], stderr=subprocess.PIPE, **options
        )


@pytest.fixture(params=PROTOCOLS)
def verifiable(request, broker):
    return VerifiableGroup(broker, request.param)


def test_a_verifiable_consumer_commits_none_of_the_poll_that_it_could_not_tell_of(verifiable):
    with verifiable.reading("long", "--verbose", stdout=subprocess.PIPE) as reading:
        # The lines of one poll do not fit into a pipe's buffer.
        while b"record_data" not in reading.stdout.readline():
            pass
        reading.stdout.close()
        reading.wait(TIMEOUT_S)
    assert (verifiable.committed, verifiable.has_members) == (0, False)


def test_a_verifiable_consumer_commits_as_many_records_as_were_asked_for(verifiable):
    with verifiable.reading("long", "--max-messages", "777", stdout=subprocess.DEVNULL) as reading:
        assert reading.wait(TIMEOUT_S) == 0
    assert verifiable.committed == 777


def test_a_verifiable_consumer_whose_reader_has_gone_leaves_though_it_has_nothing_to_tell(
    broker, verifiable
):
    topic = f"idle-{verifiable.protocol}"
    k(broker, "topics", "--create", "--topic", topic)
    with verifiable.reading(topic, stdout=subprocess.PIPE) as reading:
        while b"partitions_assigned" not in reading.stdout.readline():
            pass
        reading.stdout.close()
        assert reading.wait(TIMEOUT_S) == 0
        assert reading.stderr.read() == b""
    words = ("consumer-groups", "--describe", "--group", verifiable.name, "--members")
    assert b"verifiable" not in k(broker, *words)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_measurement_whose_reader_has_gone_ends_and_leaves_its_group(broker, protocol):
    group = Group(broker, protocol)
    words = ["consumer-perf-test", "--topic", "long", "--group", group.name, "--timeout", "10m"]
    words += ["--num-records", str(RECORDS + 1), "--command-property", f"group.protocol={protocol}"]
    with subprocess.Popen(
        [*K, *words, "--bootstrap-server", broker.address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as reading:
        until(lambda: group.exists and group.has_members, TIMEOUT_S)
        reading.stdout.close()
        assert reading.wait(TIMEOUT_S) == 0
        assert reading.stderr.read() == b""
    assert not group.has_members


def test_a_measurement_that_cannot_be_printed_commits_nothing(broker):
    group = Group(broker, "classic")
    words = ("consumer-perf-test", "--topic", "long", "--group", group.name, "--num-records", "9")
    words += ("--bootstrap-server", broker.address)
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*K, *words], stdout=full, stderr=subprocess.PIPE, timeout=TIMEOUT_S, check=False
        )
    assert (done.returncode, done.stderr.decode()) == (
        1,
        "k consumer-perf-test: No space left on device\n",
    )
    assert not group.exists
