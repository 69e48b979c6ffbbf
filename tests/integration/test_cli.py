"""Test `k` as a user runs it: every command in its own process, against our broker."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import termios
import time
from itertools import count
from pathlib import Path

import pytest

from tests.support.process import BrokerProcess
from tests.support.terminal import on_a_terminal
from tests.support.tools import K

TIMEOUT_S = 60
numbers = count(1)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def k(broker):
    """Function that runs `k` with these words, and with bytes as its input."""

    def run(*words: str, input: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*K, *words], input=input, capture_output=True, timeout=TIMEOUT_S, env=environment
        )

    environment = os.environ | {"K_BOOTSTRAP_SERVER": broker.address}
    run.environment = environment
    return run


@pytest.fixture
def topic(k):
    name = f"topic-{next(numbers)}"
    assert k("topics", "--create", "--topic", name, "--partitions", "2").returncode == 0
    return name


def outcome(done):
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def consumed(k, topic, *words):
    """Return the values of all records of a topic, sorted."""
    words = ("--from-beginning", "--exit-at-end", *words)
    done = k("console-consumer", "--topic", topic, *words)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert done.stderr.decode().endswith(f"Processed a total of {len(lines)} messages\n")
    return sorted(lines)


def test_a_topic_s_life(k):
    words = ("--topic", "life", "--partitions", "3", "--config", "retention.ms=1000")
    assert outcome(k("topics", "--create", *words)) == (0, "Created topic life.\n", "")
    assert "life\n" in k("topics", "--list").stdout.decode()
    heading, *partitions = k("topics", "--describe", "--topic", "life").stdout.decode().splitlines()
    assert "\tPartitionCount: 3\tReplicationFactor: 1\tConfigs: " in heading
    assert "retention.ms=1000" in heading
    assert len(partitions) == 3
    assert k("topics", "--alter", "--topic", "life", "--partitions", "5").returncode == 0
    assert len(k("topics", "--describe", "--topic", "life").stdout.splitlines()) == 6
    id = heading.split("\t")[1].removeprefix("TopicId: ")
    assert k("topics", "--describe", "--topic-id", id).stdout.decode().startswith("Topic: life\t")
    assert outcome(k("topics", "--delete", "--topic", "life")) == (0, "", "")
    assert "life\n" not in k("topics", "--list").stdout.decode()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--create --topic {}", "Topic '{}' already exists."),
        ("--create --topic a/b", "Topic name is invalid: 'a/b' contains one or more characters"),
        ("--create --topic new --config foo=1", "Unknown topic config name: foo"),
        (
            "--create --topic new --config retention.ms=abc",
            "Invalid value abc for configuration retention.ms: Not a number of type LONG",
        ),
        ("--alter --topic {} --partitions 2", "Topic already has 2 partition(s)."),
        (
            "--alter --topic {} --partitions 1",
            "The topic {} currently has 2 partition(s); 1 would not be an increase.",
        ),
        ("--delete --topic missing", "Topic 'missing' does not exist as expected"),
        ("--describe --topic missing", "Topic 'missing' does not exist as expected"),
    ],
)
def test_a_refusal_is_told_in_kafkas_words(k, topic, words, why):
    done = k("topics", *words.format(topic).split())
    assert done.returncode == 1
    expected = f"Error while executing topic command : {why.format(topic)}"
    assert done.stdout.decode().startswith(expected)


def test_what_is_there_or_is_missing_can_be_passed_over(k, topic):
    assert outcome(k("topics", "--create", "--topic", topic, "--if-not-exists")) == (0, "", "")
    assert outcome(k("topics", "--delete", "--topic", "missing", "--if-exists")) == (0, "", "")


def test_lines_go_in_and_come_out(k, topic):
    lines = [b"one", b"", b"\xff\x00 bytes", b"x" * 100_000, "zwölf".encode()]
    assert outcome(k("console-producer", "--topic", topic, input=b"\n".join(lines))) == (0, "", "")
    assert consumed(k, topic) == sorted(lines)


def test_keys_and_headers_go_in_and_come_out(k, topic):
    words = ("--property", "parse.key=true", "--reader-property", "parse.headers=true")
    done = k("console-producer", "--topic", topic, *words[:1], words[1], input=b"k1\tv1\n")
    assert done.returncode == 0
    words = ("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true")
    line = b"h1:a,h2:b\tk2\tv2\n"
    assert k("console-producer", "--topic", topic, *words, input=line).returncode == 0
    shown = ("--property", "print.key=true", "--property", "print.headers=true")
    assert consumed(k, topic, *shown) == [b"NO_HEADERS\tk1\tv1", b"h1:a,h2:b\tk2\tv2"]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_understood(k, topic, codec):
    lines = [b"%d" % n * 10 for n in range(1000)]
    words = ("--topic", topic, "--compression-codec", codec)
    assert k("console-producer", *words, input=b"\n".join(lines)).returncode == 0
    assert consumed(k, topic) == sorted(lines)


def test_records_can_be_sent_one_at_a_time(k, topic):
    done = k("console-producer", "--topic", topic, "--sync", input=b"1\n2\n3\n")
    assert outcome(done) == (0, "", "")
    assert consumed(k, topic) == [b"1", b"2", b"3"]


def test_what_was_not_delivered_is_counted(k, topic):
    words = ("--topic", topic, "--command-property", "max.request.size=1000")
    lines = [b"a", b"x" * 2000, b"b", b"y" * 100_000_0]
    done = k("console-producer", *words, input=b"\n".join(lines))
    assert done.returncode == 1
    assert "k console-producer: 2 of 4 records were not delivered: " in done.stderr.decode()
    assert consumed(k, topic) == [b"a", b"b"]


def test_a_line_that_cannot_be_read_ends_it_after_those_before(k, topic):
    words = ("--topic", topic, "--property", "parse.key=true")
    done = k("console-producer", *words, input=b"k\tv\nnokey\nk\tw\n")
    assert outcome(done) == (
        1,
        "",
        "k console-producer: No key separator found on line number 2: 'nokey'\n",
    )
    assert consumed(k, topic) == [b"v"]


def test_no_input_is_no_record(k, topic):
    assert outcome(k("console-producer", "--topic", topic)) == (0, "", "")


def test_a_part_of_a_partition_can_be_read(k, topic):
    k(
        "console-producer",
        "--topic",
        topic,
        "--property",
        "parse.key=true",
        input=b"k\t0\nk\t1\nk\t2\n",
    )
    sizes = k("get-offsets", "--topic", topic).stdout.decode().split()
    partition = next(line.split(":")[1] for line in sizes if line.endswith(":3"))
    words = ("--topic", topic, "--partition", partition, "--offset", "1", "--max-messages", "1")
    done = k("console-consumer", *words)
    assert outcome(done) == (0, "1\n", "Processed a total of 1 messages\n")


def test_all_topics_that_match_are_read(k):
    for name in ("match-a", "match-b", "other-match"):
        k("topics", "--create", "--topic", name)
        k("console-producer", "--topic", name, input=name.encode())
    done = k(
        "console-consumer", "--include", "match-.*", "--from-beginning", "--timeout-ms", "1000"
    )
    assert sorted(done.stdout.split()) == [b"match-a", b"match-b"]


def test_offsets_are_listed_by_partition(k, topic):
    assert k("get-offsets", "--topic", topic).stdout.decode() == f"{topic}:0:0\n{topic}:1:0\n"
    done = k("get-offsets", "--topic", "missing")
    assert outcome(done) == (
        1,
        "",
        "Error occurred: Could not match any topic-partitions with the specified filters\n",
    )


def test_a_broker_s_versions_are_listed(k, broker):
    lines = k("broker-api-versions").stdout.decode().splitlines()
    assert lines[0] == f"{broker.address} (id: 0 rack: null isFenced: false) -> ("
    assert lines[1].startswith("\tProduce(0): ")
    assert lines[-1] == ")"


def test_a_log_is_dumped(k, topic, broker):
    k("console-producer", "--topic", topic, "--sync", input=b"hello\n")
    files = sorted(map(str, broker.data.glob(f"{topic}-*/*.log")))
    done = k("dump-log", "--print-data-log", "--files", ",".join(files))
    assert done.returncode == 0
    assert done.stdout.count(b" payload: hello\n") == 1


def test_a_reader_that_has_enough_ends_the_command_quietly(k, topic):
    lines = b"".join(b"%d\n" % n for n in range(100_000))
    assert k("console-producer", "--topic", topic, input=lines).returncode == 0
    words = [*K, "console-consumer", "--topic", topic, "--from-beginning"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=k.environment
    ) as reading:
        assert reading.stdout.readline().strip().isdigit()
        reading.stdout.close()
        assert reading.wait(TIMEOUT_S) == 0
        told = reading.stderr.read().decode().splitlines()
    assert told[0] == "Unable to write to standard out, closing consumer."
    assert told[1].startswith("Processed a total of ")


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_reading_with_the_count(k, topic, number, status):
    k("console-producer", "--topic", topic, input=b"one\n")
    words = [*K, "console-consumer", "--topic", topic, "--from-beginning"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=k.environment
    ) as reading:
        assert reading.stdout.readline() == b"one\n"
        reading.send_signal(number)
        assert reading.wait(TIMEOUT_S) == status
        assert reading.stderr.read() == b"Processed a total of 1 messages\n"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_what_was_read_before_a_signal_is_sent(k, topic, number, status):
    words = [*K, "console-producer", "--topic", topic, "--timeout", "60000"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, bufsize=0, env=k.environment) as sending:
        sending.stdin.write(b"first\n" * 10_000)
        watching = ("--topic", topic, "--from-beginning", "--max-messages", "1")
        assert k("console-consumer", *watching).returncode == 0
        sending.stdin.write(b"last\n")
        while _unread_bytes(sending.stdin):
            time.sleep(0.01)  # the command cannot notify this process
        sending.send_signal(number)
        assert sending.wait(TIMEOUT_S) == status
    lines = consumed(k, topic)
    assert (len(lines), lines[-1]) == (10_001, b"last")


def _unread_bytes(pipe) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_on_a_terminal_nothing_in_a_record_is_obeyed(k, topic):
    k("console-producer", "--topic", topic, input=b"\x1b[2Jred\x07\n")
    words = [*K, "console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "1"]
    shown = _on_a_terminal(words, b"", k.environment)
    assert b"\\x1b[2Jred\\x07\r\n" in shown
    assert b"\x1b" not in shown


def test_on_a_terminal_a_line_is_asked_for(k, topic):
    shown = _on_a_terminal([*K, "console-producer", "--topic", topic], b"a\nb\n\x04", k.environment)
    assert shown.count(b">") == 3
    assert consumed(k, topic) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("typed", "words", "status"),
    [
        (b"n\n", (), 1),
        (b"\x04", (), 1),
        (b"y\n", (), 0),
        (b"", ("--yes",), 0),
        (b"", ("-force",), 0),
    ],
)
def test_on_a_terminal_a_topic_is_deleted_once_agreed(k, topic, typed, words, status):
    delete = [*K, "topics", "--delete", "--topic", topic, *words]
    shown = _on_a_terminal(delete, typed, k.environment, status)
    question = f"This will delete topic {topic} and all its records.\r\nGo on? [y/N] ".encode()
    assert (question in shown) == (not words)
    assert (b"k topics: nothing was changed" in shown) == bool(status)
    assert (topic in k("topics", "--list").stdout.decode().split()) == bool(status)


def test_a_dry_run_says_what_would_be_done_and_does_nothing(k, topic):
    described = k("topics", "--describe", "--topic", topic).stdout
    for words, said in (
        (f"--delete --topic {topic}", f"delete topic {topic} and all its records"),
        (f"--alter --topic {topic} --partitions 9", f"give topic {topic} 9 partitions in all"),
        ("--create --topic new", "create topic new: partitions 1, replication factor 1"),
    ):
        assert outcome(k("topics", *words.split(), "--dry-run")) == (0, f"Would {said}.\n", "")
    refused = k("topics", "--alter", "--topic", topic, "--partitions", "1", "--dry-run")
    assert (refused.returncode, b"would not be an increase" in refused.stdout) == (1, True)
    assert k("topics", "--describe", "--topic", topic).stdout == described
    assert k("topics", "--list", "--topic", "new").stdout == b"\n"


@pytest.mark.parametrize(("typed", "words"), [(b"n\n", ()), (b"", ("--yes",))])
def test_records_are_deleted_once_agreed_and_a_dry_run_says_which(k, topic, tmp_path, typed, words):
    k("console-producer", "--topic", topic, input=b"a\nb\nc\n" * 10)
    ends = {
        n: int(line.rpartition(":")[2])
        for n, line in enumerate(k("get-offsets", "--topic", topic).stdout.decode().split())
    }
    file = tmp_path / "offsets.json"
    asked = [{"topic": topic, "partition": n, "offset": -1} for n in ends]
    file.write_text(json.dumps({"partitions": asked}))
    steps = [f"delete offsets 0 to {e - 1} of {topic}-{n}" for n, e in ends.items() if e]
    would = "".join(f"Would {step}.\n" for step in steps)
    delete = ["delete-records", "--offset-json-file", str(file)]
    assert outcome(k(*delete, "--dry-run")) == (0, would, "")
    assert len(consumed(k, topic)) == 30
    declined = typed == b"n\n"
    shown = _on_a_terminal([*K, *delete, *words], typed, k.environment, int(declined)).decode()
    question = "".join(f"This will {step}.\r\n" for step in steps) + "Go on? [y/N] "
    assert (question in shown) == (not words)
    assert len(consumed(k, topic)) == (30 if declined else 0)
    if not declined:
        assert all(f"partition: {topic}-{n}\tlow_watermark: {e}" in shown for n, e in ends.items())
        assert outcome(k(*delete, "--dry-run")) == (0, "", "")


@pytest.mark.parametrize("words", [(), ("--dry-run",), ("-o", "json")])
def test_records_that_cannot_be_deleted_make_the_exit_status_1(k, topic, tmp_path, words):
    """Records of other partitions are deleted nevertheless."""
    k("console-producer", "--topic", topic, input=b"a\n")
    lines = k("get-offsets", "--topic", topic).stdout.decode().split()
    ends = [int(line.rpartition(":")[2]) for line in lines]
    too_far = ends.index(0)
    file = tmp_path / "offsets.json"
    asked = [{"topic": topic, "partition": n, "offset": 1} for n in (too_far, 1 - too_far)]
    file.write_text(json.dumps({"partitions": asked}))
    status, out, err = outcome(k("delete-records", "--offset-json-file", str(file), *words))
    assert status == 1
    refusals = [line for line in (out + err).splitlines() if "not within the range" in line]
    assert refusals
    assert all(f"{topic}-{too_far}" in line for line in refusals)
    starts = k("get-offsets", "--topic", topic, "--time", "earliest").stdout.decode().split()
    deleted = 0 if "--dry-run" in words else 1
    assert sorted(int(line.rpartition(":")[2]) for line in starts) == [0, deleted]


def test_a_job_of_spark_is_refused_a_topic_that_is_not_there_before_spark_starts(k):
    words = ["--from", "/nowhere", "--to", "not-there"]
    status, out, err = outcome(k("spark-submit", "replay", *words))
    assert (status, out) == (1, "")
    assert err == (
        "k spark-submit: topic not-there to write to does not exist; create it: "
        "k topics --create --topic not-there\n"
    )


def _on_a_terminal(words, typed, environment, status=0) -> bytes:
    """Return the output of a command run on a terminal with this input; assert its status."""
    ended, shown = on_a_terminal(words, typed=typed, environment=environment)
    assert ended == status
    return shown


def test_timeout_limits_a_command_that_would_not_end(k, topic):
    done = k("console-consumer", "--topic", topic, "--timeout", "0.5")
    assert done.returncode == 124
    assert "k console-consumer: not done within 0.5 s" in done.stderr.decode()


def test_listing_topics_loads_only_what_it_needs(k):
    program = (
        "import sys; from kcli.main import main; main()\n"
        "unwanted = {'pyspark', 'rich', 'crc32c', 'kazoo', 'kserver.log', 'kserver.broker'}\n"
        "print(sorted(unwanted & sys.modules.keys()), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "topics", "--list"], capture_output=True, env=k.environment
    )
    assert done.stderr == b"[]\n"


def test_a_producer_outlives_the_restart_of_its_broker(tmp_path):
    with BrokerProcess(tmp_path / "restarted") as broker:
        environment = os.environ | {"K_BOOTSTRAP_SERVER": broker.address}
        subprocess.run([*K, "topics", "--create", "--topic", "t"], check=True, env=environment)
        words = [*K, "console-producer", "--topic", "t", "--timeout", "0"]
        with subprocess.Popen(words, stdin=subprocess.PIPE, env=environment) as sending:
            lines = [b"%06d" % n for n in range(3_000)]
            for at, line in enumerate(lines):
                sending.stdin.write(line + b"\n")
                if at in (1_000, 2_000):
                    sending.stdin.flush()
                    broker.restart()
            sending.stdin.close()
            assert sending.wait(TIMEOUT_S) == 0
        words = ["console-consumer", "--topic", "t", "--from-beginning", "--max-messages", "3000"]
        done = subprocess.run([*K, *words], capture_output=True, env=environment, timeout=TIMEOUT_S)
        assert done.stdout.split() == lines


# A child process inherits the peak memory of its parent, so the parent is a small process instead
# of pytest.
PEAK_KIB_OF = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
"""


def test_an_endless_pipe_costs_no_memory(k, topic):
    """The piped data is twice the memory that the process may use."""
    limit_bytes, size_bytes = 128 << 20, 256 << 20
    line = b"x" * 9_999 + b"\n"
    words = [*K, "console-producer", "--topic", topic, "--max-memory-bytes", str(16 << 20)]
    with subprocess.Popen(
        [sys.executable, "-c", PEAK_KIB_OF, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=k.environment,
    ) as sending:
        for _ in range(size_bytes // len(line)):
            sending.stdin.write(line)
        sending.stdin.close()
        peak_bytes = int(sending.stdout.read()) << 10
    assert sending.returncode == 0
    assert peak_bytes < limit_bytes
    sizes = k("get-offsets", "--topic", topic).stdout.decode().split()
    assert sum(int(size.split(":")[2]) for size in sizes) == size_bytes // len(line)


def test_a_server_starts_in_the_background_and_is_stopped_by_its_number(tmp_path, free_port):
    node = 10_000_000 + free_port
    (tmp_path / "server.properties").write_text(
        f"node.id={node}\nlog.dirs={tmp_path}/data\nlisteners=PLAINTEXT://127.0.0.1:{free_port}\n"
    )
    environment = os.environ | {
        "LOG_DIR": str(tmp_path / "logs"),
        "K_BOOTSTRAP_SERVER": f"127.0.0.1:{free_port}",
    }

    def k(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*K, *words], capture_output=True, text=True, env=environment, cwd=tmp_path
        )

    # `k server-stop` looks for these words in command lines; K itself runs under another name.
    program = tmp_path / "k"
    program.write_text("import sys; from kcli.main import main; sys.exit(main())\n")
    start = [sys.executable, str(program), "server-start", "-daemon", "server.properties"]
    started = subprocess.run(start, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert (started.returncode, started.stdout, started.stderr) == (0, "", "")
    try:
        assert k("topics", "--list").returncode == 0
        again = subprocess.run(start, capture_output=True, text=True, env=environment, cwd=tmp_path)
        assert again.returncode == 1
        assert again.stderr.startswith("k server-start: ")
        assert k("server-stop", f"--node-id={node + 1}").returncode == 0
        assert k("topics", "--list").returncode == 0
    finally:
        assert k("server-stop", f"--node-id={node}").returncode == 0
    _wait_until_free(tmp_path / "data" / ".lock")


def _wait_until_free(lock: Path) -> None:
    """Wait for the data directory's lock, which a broker holds until its last step."""
    with open(lock, "rb+") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)


@pytest.fixture
def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]
