"""Test `k cluster-start`, a cluster on this machine: its output, signals, errors and data."""

from __future__ import annotations

import itertools
import os
import queue
import re
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import confluent_kafka
import kafka
import pytest

from tests.support import apache_kafka
from tests.support.brokers import QUICK_START
from tests.support.tools import K, require

PATIENCE_S = 60
TOOLS = "4.3.1"
READY = re.compile(r"(zookeeper|broker \d+) ready on (\S+), pid (\d+)")
DIED = re.compile(r"(zookeeper|broker \d+) \(pid (\d+)\) died: (.*)")


def k(*words: object, input: str = "") -> subprocess.CompletedProcess[str]:
    command = [*K, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, input=input, timeout=PATIENCE_S)


class Cluster:
    """A process of `k cluster-start`, with its output."""

    def __init__(self, *words: object) -> None:
        self.words = words
        self.pids: dict[str, int] = {}
        self.addresses: dict[str, str] = {}
        self.lines: list[str] = []
        self.log: list[str] = []
        self._said: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def __enter__(self) -> Cluster:
        self.process = subprocess.Popen(
            [*K, "cluster-start", "--port", "0", *map(str, self.words)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        readers = ((self.process.stdout, self._said.put), (self.process.stderr, self.log.append))
        self._threads = [threading.Thread(target=self._read, args=each) for each in readers]
        for thread in self._threads:
            thread.start()
        self.told("cluster ready: (.*)")
        return self

    def _read(self, stream, take) -> None:
        for line in stream:
            take(line.rstrip("\n"))
        if stream is self.process.stdout:
            self._said.put(None)

    def told(self, pattern: str) -> re.Match[str]:
        """Return the match of the next line that matches the pattern completely."""
        while True:
            line = self._said.get(timeout=PATIENCE_S)
            assert line is not None, f"it ended without {pattern}:\n" + "\n".join(self.log)
            self.lines.append(line)
            if ready := READY.fullmatch(line):
                self.addresses[ready[1]], self.pids[ready[1]] = ready[2], int(ready[3])
            if found := re.fullmatch(pattern, line):
                return found

    @property
    def bootstrap(self) -> str:
        return ",".join(
            self.addresses[name] for name in sorted(self.addresses) if name != "zookeeper"
        )

    def k(self, command: str, *words: object, input: str = "") -> str:
        done = k(command, "--bootstrap-server", self.bootstrap, *words, input=input)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def leader(self, topic: str) -> int | None:
        found = re.search(r"Leader: (\d+)", self.k("topics", "--describe", "--topic", topic))
        return int(found[1]) if found else None

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        status = self.process.wait(PATIENCE_S)
        for thread in self._threads:
            thread.join()
        while (line := self._said.get()) is not None:
            self.lines.append(line)
        return status

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for thread in self._threads:
            thread.join()
        self.process.stdout.close()
        self.process.stderr.close()


def ended(pid: int) -> bool:
    """Return whether the process ends within `PATIENCE_S`."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(PATIENCE_S * 1000))
    finally:
        os.close(descriptor)


def data_of(cluster: Cluster) -> Path:
    said = next(line for line in cluster.log if "data in" in line)
    return Path(re.search(r"data in ([^,\n]+)", said)[1])


def test_it_tells_of_each_server_and_is_complete_when_it_says_so():
    with Cluster() as cluster:
        assert cluster.lines[0].startswith("zookeeper ready on 127.0.0.1:")
        assert sorted(cluster.pids) == ["broker 1", "broker 2", "broker 3", "zookeeper"]
        assert cluster.lines[-1] == f"cluster ready: {cluster.bootstrap}"
        for name, address in cluster.addresses.items():
            if name != "zookeeper":
                done = k("cluster", "list-endpoints", "--bootstrap-server", address, "-o", "tsv")
                assert [line.split("\t")[0] for line in done.stdout.splitlines()[1:]] == [*"123"]
        # All three brokers are available at once.
        cluster.k("topics", "--create", "--topic", "orders", "--partitions", "3")
        assert "ReplicationFactor: 3" in cluster.k("topics", "--describe", "--topic", "orders")
        cluster.k("console-producer", "--topic", "orders", input="a\nb\n")
        group = ("--group", "g", "--from-beginning", "--max-messages", 2)
        assert sorted(cluster.k("console-consumer", "--topic", "orders", *group).split()) == [*"ab"]
        internal = cluster.k("topics", "--describe", "--topic", "__consumer_offsets")
        assert "ReplicationFactor: 3" in internal
        data = data_of(cluster)
        assert data.is_dir()
        assert cluster.stop() == 0
        assert not data.exists()
    assert all(ended(pid) for pid in cluster.pids.values())


def test_a_dead_broker_is_told_of_stays_dead_and_is_not_missed():
    with Cluster() as cluster:
        cluster.k("topics", "--create", "--topic", "orders", "--partitions", "1")
        cluster.k("console-producer", "--topic", "orders", input="before\n")
        leader = cluster.leader("orders")
        name = f"broker {leader}"
        os.kill(cluster.pids[name], signal.SIGKILL)
        died = cluster.told(DIED.pattern)
        assert died.groups() == (name, str(cluster.pids[name]), "killed by SIGKILL")
        cluster.k("console-producer", "--topic", "orders", input="after\n")
        read = ("--from-beginning", "--exit-at-end")
        assert cluster.k("console-consumer", "--topic", "orders", *read) == "before\nafter\n"
        assert cluster.leader("orders") != leader
        host, _, port = cluster.addresses[name].rpartition(":")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)))
        assert cluster.stop() == 0
        assert not [line for line in cluster.lines if line.startswith(f"{name} ")][2:]


def test_with_restart_a_dead_broker_comes_back_where_it_was():
    with Cluster("--restart") as cluster:
        before, address = cluster.pids["broker 2"], cluster.addresses["broker 2"]
        os.kill(before, signal.SIGKILL)
        cluster.told(DIED.pattern)
        cluster.told(READY.pattern)
        assert cluster.addresses["broker 2"] == address
        assert cluster.pids["broker 2"] != before
        assert cluster.stop(signal.SIGINT) == 0


def test_the_same_cluster_comes_back_on_its_data(tmp_path):
    with Cluster("--data", tmp_path / "c") as cluster:
        id = cluster.k("cluster", "cluster-id")
        cluster.k("topics", "--create", "--topic", "orders")
        cluster.k("console-producer", "--topic", "orders", input="kept\n")
        refused = k("cluster-start", "--port", "0", "--data", tmp_path / "c")
        assert refused.returncode == 1
        assert refused.stderr.splitlines()[-1] == (
            f"k cluster-start: {tmp_path}/c is in use by another k cluster-start; stop it, or name"
            " another directory with --data"
        )
        assert cluster.stop() == 0
    with Cluster("--data", tmp_path / "c", "--brokers", "2") as cluster:
        assert cluster.k("cluster", "cluster-id") == id
        read = ("--from-beginning", "--exit-at-end")
        assert cluster.k("console-consumer", "--topic", "orders", *read) == "kept\n"
        assert any("also has the data of broker 3, which --brokers 2" in s for s in cluster.log)
        assert cluster.stop() == 0


CLIENTS = ("kafka-python", "confluent-kafka", "Apache's console tools")


def written_by(client: str, servers: str, topic: str, values: list[str]) -> None:
    """Produce the values with acks=all; return once all are acknowledged."""
    if client == "kafka-python":
        producer = kafka.KafkaProducer(bootstrap_servers=servers.split(","), acks="all")
        for sent in [producer.send(topic, value.encode()) for value in values]:
            sent.get(PATIENCE_S)
        producer.close()
    elif client == "confluent-kafka":
        failures: list[object] = []
        producer = confluent_kafka.Producer({"bootstrap.servers": servers})
        for value in values:
            producer.produce(
                topic, value, on_delivery=lambda error, _: error and failures.append(error)
            )
        assert producer.flush(PATIENCE_S) == 0
        assert not failures
    else:
        lines = "".join(f"{value}\n" for value in values)
        words = ("--bootstrap-server", servers, "--topic", topic)
        apaches("kafka-console-producer.sh", *words, "--request-required-acks", "all", input=lines)


def read_by(client: str, servers: str, topic: str, count: int) -> list[str]:
    """Return `count` values, read in a group named after the client."""
    if client == "kafka-python":
        consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=servers.split(","),
            group_id=client,
            auto_offset_reset="earliest",
            consumer_timeout_ms=1000 * PATIENCE_S,
        )
        read = [record.value.decode() for record in itertools.islice(consumer, count)]
        consumer.close()
        return read
    if client == "confluent-kafka":
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": client,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([topic])
        messages = consumer.consume(count, PATIENCE_S)
        consumer.close()
        return [message.value().decode() for message in messages]
    words = ("--bootstrap-server", servers, "--topic", topic, "--group", "console")
    most = ("--from-beginning", "--max-messages", count, "--timeout-ms", 1000 * PATIENCE_S)
    return apaches("kafka-console-consumer.sh", *words, *most).splitlines()


def apaches(script: str, *words: object, input: str = "") -> str:
    require("java")
    command = [sys.executable, apache_kafka.__file__, "tool", TOOLS, script, *map(str, words)]
    environment = os.environ | {"KAFKA_JVM_PERFORMANCE_OPTS": QUICK_START}
    done = subprocess.run(
        command, capture_output=True, text=True, input=input, env=environment, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_clients_of_all_kinds_read_what_each_has_written():
    values = [f"value {number}" for number in range(100)]
    with Cluster() as cluster:
        for number, client in enumerate(CLIENTS):
            topic = f"topic-{number}"
            cluster.k("topics", "--create", "--topic", topic, "--replication-factor", 3)
            written_by(client, cluster.bootstrap, topic, values)
            for reader in CLIENTS:
                assert read_by(reader, cluster.bootstrap, topic, len(values)) == values
        assert cluster.stop() == 0


def test_servers_are_stopped_in_order():
    with Cluster() as cluster:
        assert cluster.stop() == 0
        stopped = [line.split("|")[0].strip() for line in cluster.log if "INFO stopped" in line]
        assert stopped == ["broker 3", "broker 2", "broker 1", "zookeeper"]


WAYS = ("SIGINT", "SIGTERM", "SIGHUP", "kill -9 of it", "of a broker", "of the ZooKeeper")


@pytest.mark.parametrize("way", WAYS)
def test_however_it_is_killed_no_process_is_left_and_the_next_start_has_all_data(way, tmp_path):
    with Cluster("--data", tmp_path / "c") as cluster:
        cluster.k("topics", "--create", "--topic", "orders", "--replication-factor", 3)
        sent = "".join(f"{number}\n" for number in range(1000))
        cluster.k("console-producer", "--topic", "orders", "--sync", input=sent)
        if way.startswith("SIG"):
            cluster.process.send_signal(signal.Signals[way])
        elif way == "kill -9 of it":
            cluster.process.kill()
        else:
            victim = "zookeeper" if "Zoo" in way else f"broker {cluster.leader('orders')}"
            os.kill(cluster.pids[victim], signal.SIGKILL)
            assert cluster.told(DIED.pattern)[1] == victim
            cluster.process.terminate()
        cluster.wait()
        assert all(ended(pid) for pid in cluster.pids.values())
    with Cluster("--data", tmp_path / "c") as cluster:
        read = ("--from-beginning", "--max-messages", 1000, "--timeout-ms", 1000 * PATIENCE_S)
        assert cluster.k("console-consumer", "--topic", "orders", *read) == sent
        assert cluster.stop() == 0
    assert all(ended(pid) for pid in cluster.pids.values())


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGHUP])
def test_a_hangup_after_the_first_signal_ends_nothing_at_once(first):
    with Cluster("--brokers", "2") as cluster:
        cluster.process.send_signal(first)
        cluster.process.send_signal(signal.SIGHUP)
        assert cluster.wait() == 0
        stopped = [line.split("|")[0].strip() for line in cluster.log if "INFO stopped" in line]
        assert stopped == ["broker 2", "broker 1", "zookeeper"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_all_at_once(number):
    with Cluster() as cluster:
        data = data_of(cluster)
        os.kill(cluster.pids["broker 2"], signal.SIGSTOP)
        cluster.process.send_signal(number)
        assert ended(cluster.pids["broker 3"])
        assert cluster.stop(number) == 128 + number
        assert not data.exists()
    assert all(ended(pid) for pid in cluster.pids.values())


def test_servers_die_with_a_killed_parent():
    with Cluster() as cluster:
        data = data_of(cluster)
        os.kill(cluster.pids["broker 1"], signal.SIGSTOP)
        cluster.process.kill()
        assert all(ended(pid) for pid in cluster.pids.values())
    subprocess.run(["rm", "-r", data], check=True)


def test_it_ends_when_no_broker_is_left():
    with Cluster("--brokers", "1") as cluster:
        os.kill(cluster.pids["broker 1"], signal.SIGKILL)
        assert cluster.wait() == 1
        assert cluster.lines[-1].endswith("died: killed by SIGKILL")
        assert "k cluster-start: no broker is left" in cluster.log
    assert ended(cluster.pids["zookeeper"])


def test_what_is_not_logged_is_told_all_the_same():
    with Cluster("--brokers", "2", "--override", "log.level=ERROR") as cluster:
        assert sorted(cluster.pids) == ["broker 1", "broker 2", "zookeeper"]
        assert not any("INFO" in line for line in cluster.log if line.startswith("broker"))
        assert cluster.stop() == 0


def test_a_reader_that_has_gone_stops_nothing():
    command = [*K, "cluster-start", "--port", "0", "--brokers", "2", "--restart"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        pids = {}
        for line in process.stdout:
            if ready := READY.fullmatch(line.rstrip()):
                pids[ready[1]] = int(ready[3])
            if line.startswith("cluster ready"):
                break
        process.stdout.close()
        os.kill(pids["broker 2"], signal.SIGKILL)
        # It prints that the broker died and that its successor is ready, and continues without a
        # reader.
        assert any("broker 2" in line and " started in " in line for line in process.stderr)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, said
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (["--brokers", "0"], 2, "--brokers 0 is out of range: choose a number from 1 to 100"),
        (["--brokers", "101"], 2, "--brokers 101 is out of range: choose a number from 1 to 100"),
        (["--brokers", "x"], 2, "Cannot parse argument 'x' of option brokers"),
        (["--port", "70000"], 2, "--port 70000 is not a port"),
        (["--port", "65535"], 2, "the last would listen at port 65537"),
        (["--override", "listeners=x"], 2, "use --port to choose where the brokers listen"),
        (["--override", "x"], 2, "--override x is not KEY=VALUE"),
        (["--override", "num.partitions=many"], 1, "Invalid value 'many' for configuration"),
        (["--data", "/dev/null/x"], 1, "/dev/null/x cannot be used: Not a directory"),
    ],
)
def test_what_cannot_be_started_is_refused_in_a_line(words, status, told):
    refused = k("cluster-start", *words)
    assert refused.returncode == status
    assert told in refused.stderr
    assert "Traceback" not in refused.stderr
    assert refused.stdout == ""


def test_a_port_that_is_taken_is_named_with_its_broker():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = k("cluster-start", "--brokers", "1", "--port", port)
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert refused.stderr.splitlines()[-1] == (
        f"k cluster-start: broker 1 cannot listen at 127.0.0.1:{port}: Address already in use;"
        " stop what listens there, or choose other ports with --port"
    )


def test_the_data_of_another_cluster_is_refused_with_its_path(tmp_path):
    for name in ("one", "other"):
        with Cluster("--data", tmp_path / name, "--brokers", "1") as cluster:
            assert cluster.stop() == 0
    (tmp_path / "one/broker-1").rename(tmp_path / "away")
    (tmp_path / "other/broker-1").rename(tmp_path / "one/broker-1")
    refused = k("cluster-start", "--port", "0", "--data", tmp_path / "one", "--brokers", "1")
    assert refused.returncode == 1
    assert "cluster ready" not in refused.stdout
    assert re.search(
        "^k cluster-start: broker 1 did not start: The Cluster ID .* doesn't match stored clusterId"
        f" .* in {tmp_path}/one/broker-1/meta.properties. The ZooKeeper's data is of another"
        " cluster than this broker's: move the broker's data away, or choose another directory with"
        " --data.$",
        refused.stderr,
        re.M,
    )
    assert "Traceback" not in refused.stderr
    (tmp_path / "one/zookeeper").rename(tmp_path / "away/zookeeper")
    refused = k("cluster-start", "--port", "0", "--data", tmp_path / "one", "--brokers", "1")
    assert refused.returncode == 2
    assert "has the data of broker-1, but not of their ZooKeeper" in refused.stderr


REMEDY = "name a directory that can be written to with --data"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/sys/k-cluster", "Operation not permitted"),
        # Even root cannot create a file there.
        ("/proc", "No such file or directory"),
    ],
    ids=["to be made", "to be written to"],
)
def test_a_directory_that_cannot_be_used_is_named(path, reason):
    refused = k("cluster-start", "--port", "0", "--data", path)
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert refused.stderr.splitlines()[-1] == (
        f"k cluster-start: --data {path} cannot be used: {reason}; {REMEDY}"
    )


def test_a_file_is_not_taken_for_a_directory(tmp_path):
    (tmp_path / "file").write_text("kept")
    refused = k("cluster-start", "--port", "0", "--data", tmp_path / "file")
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1] == (
        f"k cluster-start: --data {tmp_path}/file cannot be used: File exists; {REMEDY}"
    )
    assert (tmp_path / "file").read_text() == "kept"


def test_a_broker_that_cannot_start_ends_it_with_its_reason(tmp_path):
    (tmp_path / "broker-2").mkdir()
    (tmp_path / "broker-2/meta.properties").write_text("version=0\nbroker.id=7\n")
    refused = k("cluster-start", "--port", "0", "--data", tmp_path)
    assert refused.returncode == 1
    assert re.search(
        "^k cluster-start: broker 2 did not start: Configured broker.id 2 doesn't match",
        refused.stderr,
        re.M,
    )
    assert "cluster ready" not in refused.stdout
