"""Test `k top` on a real cluster: steady load, a dead broker, and an unreachable cluster."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
import time

import pytest

from kcli.client import Blocking, Consumer, Producer, TopicPartition
from kcli.command.statuses import INTERRUPTED
from tests.support.brokers import until
from tests.support.opened_cluster import opened_cluster
from tests.support.process import BrokerProcess
from tests.support.steady_writer import SteadyWriter
from tests.support.terminal import on_a_terminal
from tests.support.tools import K

PATIENCE_S = 60
SETTINGS = {
    "min.insync.replicas": 2,
    "default.replication.factor": 3,
    "offsets.topic.num.partitions": 4,
    "zookeeper.session.timeout.ms": 2000,
}
BEHIND = 40
"""Offset that the lagging group has committed."""
RECORD = b"x" * 200


def k(address, *words, status=0):
    words = [*K, *map(str, words), "--bootstrap-server", address]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == status, done.stdout + done.stderr
    return done


def once(address, *words, status=0):
    """Return the rows of one sample, by kind and name."""
    told = k(address, "top", "--once", "-o", "json", *words, status=status)
    return {(row["kind"], row["name"]): row for row in json.loads(told.stdout)["items"]}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with opened_cluster(tmp_path_factory.mktemp("cluster"), 3, SETTINGS) as cluster:
        servers = {"bootstrap.servers": cluster.bootstrap_servers}
        for topic in ("orders", "quiet"):
            k(cluster.bootstrap_servers, "topics", "--create", "--topic", topic)
        with Blocking(Producer, servers) as producer:
            for topic in ("orders", "quiet"):
                for _ in range(100):
                    producer.send(topic, RECORD).result()
        for group, topic, offset in (("behind", "orders", BEHIND), ("idle", "quiet", 100)):
            with Blocking(Consumer, servers | {"group.id": group}) as consumer:
                consumer.assign([TopicPartition(topic, 0)])
                consumer.commit({TopicPartition(topic, 0): offset})
        yield cluster


@contextlib.contextmanager
def watched(address, *words):
    """Run `k top -o jsonl`; yield a function that returns the next row. The command is ended with
    Ctrl-C."""

    def read():
        for line in process.stdout:
            rows.put(json.loads(line))

    process = subprocess.Popen(
        [*K, "top", "-o", "jsonl", *words, "--bootstrap-server", address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    rows = queue.SimpleQueue()
    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield lambda: rows.get(timeout=PATIENCE_S)
    finally:
        process.send_signal(signal.SIGINT)
        reader.join(PATIENCE_S)
        said = process.stderr.read()
        process.stderr.close()
        assert process.wait(PATIENCE_S) == INTERRUPTED, said
    assert "Traceback" not in said, said


def seen(next_row, holds):
    """Return the first row for which `holds` returns true."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds(row := next_row()):
        assert time.monotonic() < deadline, row
    return row


def is_broker(row, id):
    return (row.get("kind"), row.get("name")) == ("broker", str(id))


def test_what_is_written_and_what_is_left_to_read(cluster):
    with SteadyWriter(cluster.bootstrap_servers, "orders", RECORD) as writer:
        until(lambda: writer.written > 10)
        before = writer.written
        rows = once(cluster.bootstrap_servers)
        # Samples are two seconds apart, and responses to the first may be late.
        most = writer.written - before
    orders, quiet = rows["topic", "orders"], rows["topic", "quiet"]
    assert 0 < orders["records_in_per_second"] < most
    each = orders["bytes_in_per_second"] / orders["records_in_per_second"]
    assert len(RECORD) / 2 < each < 4 * len(RECORD)
    assert orders["size_bytes"] > (100 + before) * len(RECORD)
    assert (quiet["records_in_per_second"], quiet["bytes_in_per_second"]) == (0, 0)
    assert orders["records_out_per_second"] == orders["bytes_out_per_second"] == 0
    behind, idle = rows["group", "behind"], rows["group", "idle"]
    assert 100 - BEHIND + before <= behind["lag"] <= 100 - BEHIND + writer.written
    assert behind["lag_trend"] == "growing"
    assert 0 < behind["lag_per_second"] < most
    assert (idle["lag"], idle["lag_trend"], idle["state"]) == (0, "steady", "Empty")
    brokers = [row for (kind, _), row in rows.items() if kind == "broker"]
    assert [row["state"] for row in brokers] == ["up"] * 3
    assert [int(row["name"]) for row in brokers if row["is_controller"]] == [cluster.controller]
    busiest = brokers[0]
    assert int(busiest["name"]) == cluster.leader_of("orders")
    assert busiest["address"] == str(cluster.brokers[int(busiest["name"])].address)


def test_what_a_group_commits_goes_out(cluster):
    address = cluster.bootstrap_servers
    servers = {"bootstrap.servers": address, "group.id": "reader"}
    at = TopicPartition("quiet", 0)
    with Blocking(Consumer, servers) as consumer:
        consumer.assign([at])
        consumer.commit({at: 0})
        with watched(address, "--groups", "--group", "reader", "--interval", "200ms") as next_row:
            assert next_row()["records_out_per_second"] == 0
            consumer.commit({at: 60})
            read = seen(next_row, lambda row: row["lag"] == 40)
            assert read["records_out_per_second"] > 0
            assert read["lag_per_second"] == pytest.approx(-read["records_out_per_second"], rel=0.3)
            assert read["lag_trend"] == "shrinking"
    k(address, "consumer-groups", "--delete", "--group", "reader")


def test_only_some_are_shown(cluster):
    address = cluster.bootstrap_servers
    assert once(address, "--topics", "--topic", "ord.*", "--interval", "100ms").keys() == {
        ("topic", "orders")
    }
    assert once(address, "--groups", "--group", "id.*", "--interval", "100ms").keys() == {
        ("group", "idle")
    }
    # Groups that read other topics are excluded.
    assert once(address, "--groups", "--topic", "quiet", "--interval", "100ms").keys() == {
        ("group", "idle")
    }
    assert {kind for kind, _ in once(address, "--brokers", "--interval", "100ms")} == {"broker"}


def test_tables_follow_one_another_where_there_is_no_terminal(cluster):
    told = k(cluster.bootstrap_servers, "top", "--count", 2, "--interval", "100ms")
    lines = told.stdout.splitlines()
    assert [line.split()[0] for line in lines if line.isupper()] == ["BROKER", "TOPIC", "GROUP"] * 2
    assert sum("brokers 3, away 0, controller " in line for line in lines) == 2
    plain = k(cluster.bootstrap_servers, "top", "--once", "--interval", "100ms").stdout
    assert "\x1b" not in plain
    assert len(plain.splitlines()) == len(lines) // 2


def test_on_a_terminal_each_look_takes_the_place_of_the_one_before_until_ctrl_c(cluster):
    live = [*K, "top", "--interval", "200ms", "--bootstrap-server", cluster.bootstrap_servers]
    screen = os.environ | {"COLUMNS": "150", "LINES": "40", "TERM": "xterm"}
    # The first sample has no trend yet.
    status, shown = on_a_terminal(live, environment=screen, interrupt_at=b"steady")
    assert status == INTERRUPTED
    assert shown.count(b"brokers 3, away 0, controller ") >= 2
    assert b"\x1b[1A" in shown  # the cursor moves up again
    assert shown.rstrip().endswith(b"\x1b[?25h")  # and is shown again
    assert b"Traceback" not in shown
    small = screen | {"LINES": "12", "COLUMNS": "60"}
    status, shown = on_a_terminal(live, environment=small, interrupt_at=b"\x1b[1A")
    assert status == INTERRUPTED
    assert b"... and " in shown
    assert shown.count(b"\n", 0, shown.index(b"\x1b[1A")) < 12
    assert b"RECORDS-IN/S" in shown
    assert b"SIZE" not in shown


def test_a_broker_that_dies_is_away_and_its_replicas_have_left_the_isr(cluster):
    address = cluster.bootstrap_servers
    cluster.wait_in_sync("orders")
    victim = cluster.leader_of("orders")
    with (
        SteadyWriter(address, "orders", RECORD),
        watched(address, "--brokers", "--topics", "--interval", "500ms") as next_row,
    ):
        up = seen(next_row, lambda row: is_broker(row, victim))
        assert up["state"] == "up"
        cluster.kill(victim)
        try:
            away = seen(next_row, lambda row: is_broker(row, victim) and row["state"] == "away")
            assert up["time_ms"] <= away["away_since_ms"] < away["time_ms"]
            assert away["address"] == str(cluster.brokers[victim].address)

            def moved(row):
                return row.get("name") == "orders" and row["leader_changes"] == 1

            orders = seen(next_row, lambda row: moved(row) and row["isr_left"] == 1)
            assert orders["state"] == "under-replicated"
            gone = seen(next_row, lambda row: is_broker(row, victim) and row["isr_left"] > 1)
            assert gone["under_replicated"] == gone["isr_left"]
            # The other brokers continue to accept records.
            seen(next_row, lambda row: moved(row) and (row["records_in_per_second"] or 0) > 0)
        finally:
            cluster.start(victim)
        seen(next_row, lambda row: is_broker(row, victim) and row["state"] == "up")
        whole = seen(next_row, lambda row: row.get("name") == "orders" and row["state"] == "ok")
        assert whole["isr_joined"] == 1


def test_a_broker_that_is_silent_does_not_stop_the_others(cluster):
    cluster.wait_in_sync("orders")
    silent = next(id for id in cluster.running if id != cluster.leader_of("orders"))
    pid = cluster.brokers[silent].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        rows = once(cluster.bootstrap_servers)
        assert rows["broker", str(silent)]["state"] == "away"
        assert rows["broker", str(silent)]["away_since_ms"] is None
        assert rows["topic", "orders"]["records_in_per_second"] is not None
    finally:
        os.kill(pid, signal.SIGCONT)
    cluster.wait_in_sync("orders")


def test_a_cluster_that_is_away_for_a_while_does_not_end_it(tmp_path):
    with BrokerProcess(tmp_path) as broker:
        k(broker.address, "topics", "--create", "--topic", "t")
        with watched(broker.address, "--interval", "200ms") as next_row:
            assert seen(next_row, lambda row: row.get("name") == "t")["state"] == "ok"
            broker.kill()
            away = seen(next_row, lambda row: is_broker(row, 0) and row["state"] == "away")
            still = seen(next_row, lambda row: row.get("name") == "t")
            assert still["time_ms"] == away["time_ms"]  # as in the last sample
            broker.start()
            back = seen(next_row, lambda row: is_broker(row, 0) and row["state"] == "up")
            assert back["time_ms"] > away["time_ms"]
    told = seen(next_row, lambda row: row["schema"] == "k.error/1")
    assert (told["subject"], told["code"]) == (None, "TIMED_OUT")


def test_a_cluster_that_is_not_there_is_an_error():
    told = k("127.0.0.1:1", "top", "--once", "--timeout", "500ms", status=124)
    assert told.stdout == ""
    first, last = told.stderr.splitlines()
    assert first.startswith("No connection to 127.0.0.1:1: ")
    assert last == "k top: not done within 0.5 s"
