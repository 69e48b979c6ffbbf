from __future__ import annotations

from dataclasses import replace

from kcli.perf.history import Run, baseline, comparable, read

RUN = Run(
    test="producer",
    at="2026-01-03T02:00:07+00:00",
    version="0.1.0",
    topic="perf",
    servers="127.0.0.1:9092",
    workload={"records": 1000, "record_bytes": 200, "properties": {"acks": "1"}},
    host={"name": "a", "cpus": 2},
    results={"p99_ms": 10.0, "records_per_s": 5e5},
)


def with_p99(p99_ms: float, **changes: object) -> Run:
    return replace(RUN, results={"p99_ms": p99_ms}, **changes)


def test_a_line_brings_the_run_back():
    line = RUN.line()
    assert line.count("\n") == 1
    assert line.endswith("\n")
    assert read([line]) == ([RUN], 0)


def test_lines_that_are_no_runs_are_counted_and_left_out():
    line = RUN.line()
    lines = [line, line[:40], "\n", "[]", '{"schema": "k.perf-test.run/9"}', line[:-2], "7", line]
    assert read(lines) == ([RUN, RUN], 5)


def test_the_baseline_is_the_median_of_the_last_ones():
    runs = [with_p99(p99) for p99 in (1, 2, 90, 10, 30)]
    assert baseline(runs, RUN, 3) == ({"p99_ms": 30}, 3)
    assert baseline(runs, RUN, 1) == ({"p99_ms": 30}, 1)
    assert baseline(runs, RUN, 4) == ({"p99_ms": 20}, 4)
    assert baseline(runs, RUN, 99) == ({"p99_ms": 10}, 5)
    assert baseline([], RUN, 5) == ({}, 0)


def test_a_run_that_failed_is_no_measure_of_the_next():
    runs = [with_p99(10), with_p99(99, failed=["p99>+10%: ..."])]
    assert baseline(runs, RUN, 5) == ({"p99_ms": 10}, 1)


def test_only_the_same_test_with_the_same_workload_compares():
    others = [
        with_p99(1, test="consumer"),
        with_p99(2, workload={**RUN.workload, "record_bytes": 100}),
        with_p99(3, workload={**RUN.workload, "properties": {"acks": "all"}}),
    ]
    alike = with_p99(4, topic="other", servers="b:9092", host={"name": "c"}, version="9")
    assert baseline([*others, alike], RUN, 5) == ({"p99_ms": 4}, 1)


def test_secrets_and_addresses_are_not_part_of_what_compares():
    given = {
        "linger.ms": "5",
        "bootstrap.servers": "a:1",
        "client.id": "me",
        "sasl.jaas.config": "password=x",
        "ssl.keystore.password": "y",
        "acks": "all",
    }
    assert comparable(given) == {"acks": "all", "linger.ms": "5"}
