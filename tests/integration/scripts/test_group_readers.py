"""Test how `k console-consumer` and Apache's end in a group, and which offsets they have
committed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from itertools import count

import pytest

from tests.support import apache_kafka
from tests.support.brokers import QUICK_START, until
from tests.support.side_by_side import NEW, k
from tests.support.tools import K

pytestmark = pytest.mark.parametrize("broker", [NEW], indirect=True)
TIMEOUT_S = 60
SESSION_MS = 6000
RECORDS = 2000
LINES = b"".join(b"%d-%s\n" % (n, b"x" * 500) for n in range(RECORDS))
"""More than a pipe's buffer."""
TOOLS = {
    "k": lambda command: [*K, command],
    "apache": lambda command: [
        sys.executable, apache_kafka.__file__, "tool", NEW, f"kafka-{command}.sh"
    ],
}  # fmt: skip
numbers = count(1)
running = []


@pytest.fixture(autouse=True)
def ended():
    """Kill all processes that a test has started."""
    yield
    while running:
        process = running.pop()
        process.kill()
        process.wait(TIMEOUT_S)


@pytest.fixture(params=TOOLS)
def tool(request):
    return TOOLS[request.param]


@pytest.fixture
def topic(server):
    name = f"readers-{next(numbers)}"
    assert k("topics", *server, "--create", "--topic", name, "--partitions", "1").status == 0
    return name


@pytest.fixture
def long(server, topic):
    sent = k("console-producer", *server, "--topic", topic, input=LINES)
    assert sent.status == 0
    return topic


def start(command, **streams):
    environment = os.environ | {"KAFKA_JVM_PERFORMANCE_OPTS": QUICK_START}
    running.append(subprocess.Popen(command, stderr=subprocess.PIPE, env=environment, **streams))
    return running[-1]


def reading(tool, server, topic, *words, **streams):
    """Start a member of a group that is named after the topic."""
    words = ["--topic", topic, "--group", topic, "--from-beginning", *words]
    words += ["--command-property", f"session.timeout.ms={SESSION_MS}"]
    return start([*tool("console-consumer"), *server, *words], **streams)


def status(process):
    _, told = process.communicate(timeout=TIMEOUT_S)
    assert b"Exception" not in told, told
    return process.returncode


def group(server, topic):
    """Return the offset that the group has committed, and whether it has a member."""
    told = k("consumer-groups", *server, "--describe", "--group", topic, "-o", "jsonl").out
    rows = [json.loads(line) for line in told.splitlines()]
    # A group that does not exist yet has a row with only an error.
    committed = max((row.get("current_offset") or 0 for row in rows), default=0)
    return committed, any(row.get("consumer_id") is not None for row in rows)


def has_member(server, topic):
    return group(server, topic)[1]


def test_what_a_full_device_refuses_is_not_committed(tool, server, long):
    with open("/dev/full", "wb") as full:
        status(reading(tool, server, long, stdout=full))
    committed, stays = group(server, long)
    # Apache's consumer counts the record whose line could not be written as read.
    assert committed <= (1 if tool is TOOLS["apache"] else 0)
    assert not stays


def test_a_member_whose_reader_has_gone_leaves(tool, server, long):
    process = reading(tool, server, long, stdout=subprocess.PIPE)
    assert process.stdout.readline().startswith(b"0-")
    process.stdout.close()
    process.stdout = None
    status(process)
    committed, stays = group(server, long)
    assert committed < RECORDS
    assert not stays


def test_a_reader_that_pauses_longer_than_a_session_reads_each_record_once(tool, server, long):
    words = ["--max-messages", str(RECORDS)]
    process = reading(tool, server, long, *words, stdout=subprocess.PIPE)
    with process.stdout:
        lines = [process.stdout.readline()]
        time.sleep(1.5 * SESSION_MS / 1000)  # a session timeout has to pass
        lines += process.stdout
        process.stdout = None
    assert [int(line.partition(b"-")[0]) for line in lines] == list(range(RECORDS))
    assert status(process) == 0
    assert group(server, long) == (RECORDS, False)


def test_a_closed_terminal_lets_the_member_leave_with_what_it_printed(tool, server, long):
    process = reading(tool, server, long, stdout=subprocess.DEVNULL)
    until(lambda: has_member(server, long), TIMEOUT_S)
    process.send_signal(signal.SIGHUP)
    assert status(process) == 128 + signal.SIGHUP
    assert not has_member(server, long)


def test_a_closed_terminal_loses_no_line_that_the_producer_was_given(tool, server, topic):
    command = [*tool("console-producer"), *server, "--topic", topic]
    # The first batch shows that lines arrive; later ones linger in the producer.
    process = start([*command, "--timeout", "5000"], stdin=subprocess.PIPE)
    process.stdin.write(b"1\n2\n3\n")
    process.stdin.flush()
    until(lambda: b":3" in k("get-offsets", *server, "--topic", topic).out, TIMEOUT_S)
    process.stdin.write(b"4\n5\n")
    process.stdin.flush()
    time.sleep(1)  # there is no sign that the lines have been read
    process.send_signal(signal.SIGHUP)
    process.wait(TIMEOUT_S)
    process.stdin.close()
    process.stderr.close()
    assert process.returncode == 128 + signal.SIGHUP
    assert k("get-offsets", *server, "--topic", topic).out == f"{topic}:0:5\n".encode()
