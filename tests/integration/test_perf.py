"""Test the performance commands as cron runs them, with a real broker behind a proxy that can
delay."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.support.process import BrokerProcess
from tests.support.slow_proxy import SlowProxy
from tests.support.tools import K

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 120
SLOW_S = 0.4
numbers = count(1)


@pytest.fixture(scope="module")
def way() -> Iterator[SlowProxy]:
    with SlowProxy() as proxy:
        yield proxy


@pytest.fixture(scope="module")
def broker(way, tmp_path_factory) -> Iterator[BrokerProcess]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        way.target = free.getsockname()
    settings = {
        "listeners": "PLAINTEXT://{}:{}".format(*way.target),
        "advertised.listeners": f"PLAINTEXT://{way.address}",
        "group.initial.rebalance.delay.ms": "0",
    }
    with BrokerProcess(tmp_path_factory.mktemp("broker"), settings) as running:
        yield running


@pytest.fixture(autouse=True)
def not_slow(way):
    yield
    way.delay_s = 0.0


@pytest.fixture
def topic() -> str:
    return f"perf-{next(numbers)}"


@pytest.fixture
def k(broker, way):
    """Function that runs `k`; returns status, standard output and standard error."""

    def run(*words: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [*K, *words], capture_output=True, text=True, timeout=TIMEOUT_S, env=environment
        )
        return done.returncode, done.stdout, done.stderr

    environment = os.environ | {"K_BOOTSTRAP_SERVER": way.address}
    run.environment = environment
    return run


def values(k, topic: str) -> list[str]:
    words = ("--topic", topic, "--from-beginning", "--timeout-ms", "1000")
    return k("console-consumer", *words)[1].splitlines()


def document(out: str) -> tuple[list[dict], list[dict]]:
    found = json.loads(out)
    return found["items"], found["errors"]


def test_what_is_sent_is_what_was_asked_for(k, topic, tmp_path):
    file = tmp_path / "payloads"
    file.write_text("one;two;;three;;")
    words = ("--topic", topic, "--throughput", "-1", "--num-records")
    status, out, _ = k("producer-perf-test", *words, "10", "--payload-monotonic")
    assert (status, values(k, topic)) == (0, [str(n) for n in range(10)])

    delimiter = ("--payload-file", str(file), "--payload-delimiter", ";")
    status, out, _ = k("producer-perf-test", *words, "100", *delimiter)
    assert out.splitlines()[:2] == [f"Reading payloads from: {file}", "Number of records read: 4"]
    assert set(values(k, topic)[10:]) == {"one", "two", "", "three"}

    properties = ("--producer-props", "acks=1", "compression.type=lz4")
    assert k("perf-test", "producer", *words, "5", "--record-size", "9", *properties)[0] == 0
    assert all(re.fullmatch("[A-Z]{9}", value) for value in values(k, topic)[110:])
    assert len(values(k, topic)) == 115


def test_rows_say_what_the_lines_say(k, topic):
    words = ("--topic", topic, "--num-records", "600", "--record-size", "100")
    status, out, err = k(
        *("producer-perf-test", *words, "--throughput", "1000", "--warmup-records", "100"),
        *("--reporting-interval", "100", "-o", "json"),
    )
    items, errors = document(out)
    assert (status, err, errors) == (0, "", [])
    assert [item["records"] for item in items[-2:]] == [600, 500]
    assert [item["phase"] for item in items[-2:]] == ["total", "steady"]
    assert {item["phase"] for item in items[:-2]} == {"window"}

    status, out, err = k("perf-test", "consumer", *words[:4], "-o", "json")
    (total,), errors = document(out)
    assert (status, err, errors) == (0, "", [])
    assert total["records"] == 600
    assert total["mib"] == pytest.approx(600 * 100 / (1 << 20), abs=0.001)

    words = (*words[:2], "--num-records", "20", "--producer-acks", "all", "--record-size", "50")
    headers = ("--num-headers", "2", "--record-header-key-size", "3", "--record-header-size", "-1")
    status, out, err = k("e2e-latency", *words, "--record-key-size", "4", *headers, "-o", "json")
    (total,), errors = document(out)
    assert (status, err, errors) == (0, "", [])
    assert total["records"] == 20
    assert 0 < total["p50_ms"] <= total["p99_ms"] <= total["max_ms"]


def test_too_few_records_are_told_of_and_can_be_checked(k, topic):
    words = ("--topic", topic, "--num-records", "10", "--timeout", "500")
    status, out, err = k("consumer-perf-test", *words)
    assert (status, err) == (0, "")
    assert out.splitlines()[1].startswith("WARNING: Exiting before consuming the expected number")
    status, _, err = k("consumer-perf-test", *words, "--fail-if", "records<10")
    assert (status, err) == (3, "k consumer-perf-test: records<10: records is 0 now\n")


def test_a_group_reads_what_it_has_not_read_and_joining_is_a_time_of_its_own(k, topic):
    words = ("--topic", topic, "--num-records", "20")
    assert k("producer-perf-test", *words, "--throughput", "-1", "--record-size", "10")[0] == 0
    words = (*words, "--group", f"g-{topic}", "-o", "json", "--timeout")
    status, out, err = k("consumer-perf-test", *words, "60000")
    (*_, total), errors = document(out)
    assert (status, err, errors, total["records"]) == (0, "", [], 20)
    assert 0 < total["rebalance_ms"] <= total["end_ms"] - total["start_ms"]
    (*_, total), _ = document(k("consumer-perf-test", *words, "1000")[1])
    assert total["records"] == 0


def test_records_that_are_refused_make_the_status_1_and_no_measure(k, topic, tmp_path):
    runs = tmp_path / "runs.jsonl"
    create = ("--create", "--topic", topic, "--config", "max.message.bytes=500")
    assert k("topics", *create)[0] == 0
    words = ("--topic", topic, "--num-records", "3", "--throughput", "-1", "--history", str(runs))
    status, out, err = k("producer-perf-test", *words, "--record-size", "1000")
    assert status == 1
    assert out.startswith("0 records sent, 0.000000 records/sec (0.00 MB/sec), NaN ms avg latency")
    assert err.startswith("k producer-perf-test: 3 of 3 records were not delivered: ")
    (run,) = map(json.loads, runs.read_text().splitlines())
    assert run["failed"] == [err.removeprefix("k producer-perf-test: ").strip()]


def test_no_cluster_is_a_timeout_and_no_line(k, tmp_path):
    nowhere = ("--bootstrap-server", "127.0.0.1:1", "--topic", "t", "--num-records", "1")
    words = ("--throughput", "-1", "--record-size", "1", "--command-property", "max.block.ms=200")
    assert k("producer-perf-test", *nowhere, *words)[:2] == (124, "")
    assert k("consumer-perf-test", *nowhere, "--timeout", "200")[0] == 124


def test_ctrl_c_ends_with_what_was_measured(k, topic):
    words = ("--num-records", "100000", "--throughput", "500", "--record-size", "10")
    command = [*K, "producer-perf-test", "--topic", topic, *words, "--reporting-interval", "200"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=k.environment
    ) as process:
        assert "records sent" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, err) == (130, "")
    assert re.match(r"\d+ records sent, .* ms 99\.9th\.$", out.splitlines()[-1])


def crontab(path: Path, **edited: str) -> tuple[dict[str, str], str]:
    """Return the environment and the only command of a crontab, as cron reads them after the
    edits."""
    environment, commands = {}, []
    for line in path.read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if match := re.fullmatch(r"(\w+)\s*=\s*(.*)", line):
            environment[match[1]] = match[2]
        else:
            *when, command = line.split(None, 5)
            assert len(when) == 5
            assert "%" not in command, "cron takes a % for the end of the command"
            commands.append(command)
    (command,) = commands
    for there, here in edited.items():
        assert there in command
        command = command.replace(there, here)
    return environment, command


def test_the_night_that_is_slower_is_found_by_the_line_for_cron(way, broker, tmp_path):
    runs, log = tmp_path / "nightly-perf.jsonl", tmp_path / "nightly-perf.log"
    given, command = crontab(
        ROOT / "examples/nightly-perf.crontab",
        **{
            "/opt/k/examples": str(ROOT / "examples"),
            "/var/lib/k/nightly-perf.jsonl": str(runs),
            "/var/log/nightly-perf.log": str(log),
        },
    )
    # Only paths and sizes of the example are replaced; its crontab line runs as it is.
    bin_directory = tmp_path / "bin"
    bin_directory.mkdir()
    k = bin_directory / "k"
    k.write_text(f'#!/bin/sh\nexec {" ".join(map(repr, K))} "$@"\n')
    k.chmod(0o755)
    assert given["PATH"].startswith("/opt/k/.venv/bin:")
    assert given["K_BOOTSTRAP_SERVER"]
    environment = given | {
        "PATH": given["PATH"].replace("/opt/k/.venv/bin", str(bin_directory)),
        "K_BOOTSTRAP_SERVER": way.address,
        "PYTHONPATH": str(ROOT),
        "RECORDS": "1000",
        "WARMUP": "200",
    }

    def night() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", "-c", command],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )

    # The first night has no baseline to compare with.
    first = night()
    assert first.returncode == 0, first.stderr
    assert "has no run like this one yet" in first.stderr
    # The second night is slower, which the line must report.
    way.delay_s = SLOW_S
    second = night()
    assert (second.returncode, second.stdout) == (3, "")
    assert re.search(
        r"^k perf-test producer: p99>\+50%: p99_ms is [\d.]+ now, \+[\d.]+% on the baseline of "
        r"[\d.]+ \(1 run in .*nightly-perf\.jsonl\)$",
        second.stderr,
        re.M,
    ), second.stderr
    kept = [json.loads(line) for line in runs.read_text().splitlines()]
    assert [bool(run["failed"]) for run in kept] == [False, True]
    assert kept[1]["results"]["p50_ms"] >= 2 * SLOW_S * 1000 > kept[0]["results"]["p50_ms"]
    assert log.read_text().count("steady state records sent") == 2
