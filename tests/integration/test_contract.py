"""Test the contract of every command: rows have their documented shape in every format, and every
end has a one-line reason instead of a traceback."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys

import jsonschema
import pytest

from kcli.command.command import Option, command_named
from kcli.command.command_list import COMMANDS
from kcli.commands.shapes import declared
from kcli.main import main
from kcli.rows.shapes import ERROR, schema
from kserver.wire.batch import encode_batch
from kserver.wire.checksum import crc32c
from tests.support.process import BrokerProcess
from tests.support.rows import READ_BACK, as_csv_tells, read
from tests.support.terminal import on_a_terminal
from tests.support.tools import K
from tests.support.transactions import hanging

TIMEOUT_S = 60
NAMES = [name for commands in COMMANDS.values() for name in commands]
SHAPES = {id: shape for id, (name, shape) in declared().items() if " " not in (name or "")}
"""Shapes of all commands except Spark jobs."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    settings = {"transaction.partition.verification.enable": "false"}
    with BrokerProcess(tmp_path_factory.mktemp("broker"), settings) as running:
        os.environ["K_BOOTSTRAP_SERVER"] = running.address
        for topic in ("one", "two.b", "hung"):
            assert main(["topics", "--create", "--topic", topic, "--config", "segment.ms=9"]) == 0
        quota = ["--client-defaults", "--add-config", "request_percentage=50"]
        assert main(["configs", "--alter", *quota]) == 0
        words = ["--topic", "one", "--property", "parse.key=true", "--property", "parse.headers=1"]
        subprocess.run(
            [*K, "console-producer", *words], input="h:a,\u2028:\tk\té\x07\n".encode(), check=True
        )
        reset = ["--reset-offsets", "--group", "g", "--topic", "one", "--to-latest", "--execute"]
        assert main(["consumer-groups", *reset]) == 0
        asyncio.run(hanging(running.address, "hangs", "hung", [b"never read"]))
        yield running
        del os.environ["K_BOOTSTRAP_SERVER"]


@pytest.fixture(scope="module")
def free_port():
    """A port of 127.0.0.1 on which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files of a partition that had transactions."""
    directory = tmp_path_factory.mktemp("t-0")
    records = [(5, b"k", b"\x1b[2J\n", [("h,\t", b"")]), (6, None, None, ())]
    log = encode_batch(records, producer_id=1, producer_epoch=0, base_sequence=0)
    producers = struct.pack(">iqhiqiqiq", 1, 1, 2, 14, 30, 4, 1000, 3, 26)
    content = {
        "log": log + log,
        "index": struct.pack(">ii", 1, 0),
        "timeindex": struct.pack(">qi", 6, 1),
        "txnindex": struct.pack(">hqqqq", 0, 1, 2, 5, 6),
        "snapshot": struct.pack(">hI", 1, crc32c(producers)) + producers,
    }
    for suffix, data in content.items():
        (directory / f"00000000000000000000.{suffix}").write_bytes(data)
    checkpoints = {"leader-epoch": "0\n1\n3 17\n", "recovery-point-offset": "0\n1\nt 0 9\n"}
    for name, text in checkpoints.items():
        (directory / f"00000000000000000000-{name}-checkpoint").write_text(text)
    asked = [{"topic": topic, "partition": 0, "offset": 0} for topic in ("one", "two.b")]
    (directory / "00000000000000000000.json").write_text(json.dumps({"partitions": asked}))
    planned = {"topic": "one", "partition": 0, "replicas": [0, 1], "log_dirs": ["any", "/d"]}
    plan = json.dumps({"partitions": [planned]})
    (directory / "00000000000000000000-plan.json").write_text(plan)
    return directory


ROWS = {
    "k.topics.list/1": "topics --list",
    "k.topics.describe/1": "topics --describe",
    "k.topics.overrides/1": "topics --describe --topics-with-overrides",
    "k.configs.describe/1": "configs --describe --topic one --all",
    "k.configs.quotas/1": "configs --describe --entity-type clients",
    "k.get-offsets/1": "get-offsets --time earliest",
    "k.delete-records/1": "delete-records --offset-json-file {files}.json",
    "k.log-dirs/1": "log-dirs --describe",
    "k.leader-election/1": "leader-election --election-type preferred --topic one --partition 0",
    "k.replica-verification.sums/1": "replica-verification --sums --topics-include one",
    "k.reassign-partitions.verify/1": "reassign-partitions --verify --reassignment-json-file "
    "{files}-plan.json",
    "k.consumer-groups.list/1": "consumer-groups --list",
    "k.consumer-groups.offsets/1": "consumer-groups --describe --group g",
    "k.consumer-groups.state/1": "consumer-groups --describe --group g --state",
    "k.consumer-groups.watch/1": "consumer-groups --describe --group g --watch --until-lag 0",
    "k.consumer-groups.reset/1": "consumer-groups --reset-offsets --dry-run --group g --topic one "
    "--to-current",
    "k.groups.list/1": "groups --list",
    "k.broker-api-versions/1": "broker-api-versions",
    "k.cluster.cluster-id/1": "cluster cluster-id",
    "k.cluster.list-endpoints/1": "cluster list-endpoints",
    "k.dump-log.batches/1": "dump-log --files {files}.log",
    "k.dump-log.records/1": "dump-log --files {files}.log --print-data-log",
    "k.dump-log.index/1": "dump-log --files {files}.index",
    "k.dump-log.timeindex/1": "dump-log --files {files}.timeindex",
    "k.dump-log.txnindex/1": "dump-log --files {files}.txnindex",
    "k.dump-log.snapshot/1": "dump-log --files {files}.snapshot",
    "k.dump-log.leader-epochs/1": "dump-log --files {files}-leader-epoch-checkpoint",
    "k.dump-log.partition-offsets/1": "dump-log --files {files}-recovery-point-offset-checkpoint",
    "k.shapes/1": "shapes",
    "k.top/1": "top --once --interval 100ms",
    "k.transactions.list/1": "transactions list",
    "k.transactions.describe/1": "transactions describe --transactional-id hangs",
    "k.transactions.describe-producers/1": "transactions describe-producers --topic hung "
    "--partition 0",
    "k.transactions.find-hanging/1": "transactions find-hanging --topic hung",
    "k.features.describe/1": "features describe",
    "k.features.version-mapping/1": "features version-mapping",
    "k.features.feature-dependencies/1": "features feature-dependencies --feature group.version=1",
    "k.producer-perf-test.run/1": "producer-perf-test --topic two.b --num-records 9 "
    "--record-size 9 --throughput -1",
    "k.consumer-perf-test.run/1": "consumer-perf-test --topic one --num-records 1",
    "k.e2e-latency.run/1": "e2e-latency --topic two.b --num-records 2 --producer-acks 1 "
    "--record-size 9",
}
MEASURED = {
    id
    for id, words in ROWS.items()
    if re.search("perf-test|e2e-latency|log-dirs|--watch|--once", words) is not None
}
"""Shapes with measured values, which differ in each run."""


@pytest.fixture
def k(broker, files, capsys):
    """Function that runs a command in this process; returns its status and output."""

    def run(line, *words):
        line = line.format(files=files / "00000000000000000000")
        status = main([*line.split(), *words])
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return run


OF_MEMBERS = "k.consumer-groups.members/1"
"""Tested by test_groups_apache.py, where groups have members."""
OF_NODES = "k.spark-cluster.status/1"
"""Tested by spark/test_cluster.py, where a Spark cluster runs."""
OF_MOVES = {"k.reassign-partitions.list/1", "k.reassign-partitions.plan/1"}
"""Tested by test_reassign_partitions.py and test_reassignment_plans.py, where partitions move."""
OF_CLUSTERS = {"k.cluster.roll/1", "k.doctor/1"}
"""Tested by test_cluster_roll.py and test_doctor.py, where brokers start and stop."""


def test_every_shape_is_looked_at_here():
    assert ROWS.keys() == SHAPES.keys() - {ERROR.id, OF_MEMBERS, OF_NODES} - OF_MOVES - OF_CLUSTERS


@pytest.mark.parametrize("id", ROWS)
def test_rows_are_of_their_documented_shape_in_every_format(id, k):
    shape = SHAPES[id]
    found = {}
    for name in READ_BACK:
        status, text, _ = k(ROWS[id], "-o", name)
        assert status == 0
        found[name] = read(name, text, shape)
        document = {"schema": id, "items": found[name], "errors": []}
        jsonschema.validate(document, schema(shape))
        assert found[name]
        assert all(tuple(row) == shape.names for row in found[name])
    if id not in MEASURED:
        assert found["jsonl"] == found["yaml"] == found["tsv"] == found["json"]
        assert found["csv"] == as_csv_tells(found["json"])
        table = k(ROWS[id], "-o", "table")[1].splitlines()
        assert table[0].split() == [name.upper() for name in shape.names]
        assert len(table) == 1 + len(found["json"])
        everything = "|".join(f"{{{name}}}" for name in shape.names)
        lines = k(ROWS[id], "-o", f"template={everything}")[1]
        assert lines.count("|") == (len(shape.names) - 1) * len(found["json"])


@pytest.mark.parametrize("id", ROWS)
def test_an_unknown_field_of_a_template_is_a_usage_error_that_names_those_known(id, k):
    status, out, err = k(ROWS[id], "-o", "template={nonsense}")
    assert (status, out) == (2, "")
    assert f"there is no field 'nonsense'; known are {', '.join(SHAPES[id].names)}\n" in err


@pytest.mark.parametrize("id", ROWS)
def test_an_unknown_format_is_a_usage_error_that_names_those_known(id, k):
    status, out, err = k(ROWS[id], "-o", "xml")
    assert (status, out) == (2, "")
    assert "formats are json, jsonl, yaml, csv, tsv, table and template=" in err


REFUSED = {
    "topics --list --topic (": "REFUSED",
    "topics --describe --topic missing": "REFUSED",
    "topics --describe --bootstrap-server 127.0.0.1:1 --timeout 0.2": "TIMED_OUT",
    "get-offsets --topic missing": "REFUSED",
    "reassign-partitions --verify --reassignment-json-file missing.json": "REFUSED",
    "get-offsets --command-config missing.properties": "REFUSED",
    "broker-api-versions --bootstrap-server 127.0.0.1:1 --timeout 0.2": "TIMED_OUT",
    "dump-log --files 0.log": "FILE",
    "transactions describe --transactional-id missing": "REFUSED",
    "transactions list --bootstrap-server 127.0.0.1:1 --timeout 0.2": "TIMED_OUT",
    "features version-mapping --release-version 1": "REFUSED",
    "groups --list --bootstrap-server 127.0.0.1:1 --timeout 0.2": "TIMED_OUT",
    "consumer-groups --list --bootstrap-server 127.0.0.1:1 --timeout 200ms": "TIMED_OUT",
    "consumer-groups --reset-offsets --dry-run --group g --all-topics --to-datetime x": "REFUSED",
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_is_refused_is_in_the_document_and_told_in_a_line(line, k, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, err = k(line, "-o", "json")
    document = json.loads(out)
    code = REFUSED[line]
    assert status == (124 if code == "TIMED_OUT" else 1)
    jsonschema.validate(document, schema(SHAPES[document["schema"]]))
    (told,) = document["errors"]
    assert told["code"] == code
    assert f"{told['message']}\n" in err
    assert k(line, "-o", "jsonl")[1].count('{"schema": "k.error/1", ') == 1
    assert k(line, "-o", "csv")[1].count("\n") == 1


@pytest.mark.parametrize("id", ROWS)
def test_a_reader_that_has_gone_ends_a_command_quietly(id, broker, files):
    line = ROWS[id].format(files=files / "00000000000000000000")
    gone, writer = os.pipe()
    os.close(gone)
    done = subprocess.run(
        [*K, *line.split(), "-o", "jsonl"], stdout=writer, stderr=subprocess.PIPE, text=True
    )
    os.close(writer)
    assert done.returncode == 0
    assert not re.search("Traceback|internal error|Exception", done.stderr)


SWEPT = [name for name in NAMES if name not in ("server-start", "cluster-start")]
"""Commands except those that would start brokers, with hostile configs."""
SWEEP_TIMEOUT_S = 180
HOSTILE = ["", "\x1b[2J\u202e", "-1", "99999999999999999999", "/", "a=b", "{", "x" * 70_000]
EXPECTED_ENDS = {0, 1, 2, 3, 124, 130}
# Each line runs in a fork of a process that has run the first line, or nothing yet. Ctrl-C is sent
# when no broker is found, or after `delay_s` seconds of CPU time.
SWEEP = """
import io, json, os, signal, sys
from kcli.main import main
def interrupt(*_):
    os.kill(os.getpid(), signal.SIGINT)
class Told(io.TextIOWrapper):
    def write(self, text):
        written = super().write(text)
        if "No connection to " in text:
            interrupt()
        return written
sys.stderr = Told(open(2, "wb", 0), write_through=True)
def run(line, delay_s):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPROF, interrupt)
    sys.argv = ["k", *line]
    signal.setitimer(signal.ITIMER_PROF, delay_s)
    status = main()
    signal.setitimer(signal.ITIMER_PROF, 0)
    return status
lines = json.load(open(sys.argv[1]))
if sys.argv[2:] == ["warm"]:
    run(*lines[0])
for line, delay_s in lines:
    child = os.fork()
    if not child:
        sys.exit(run(line, delay_s))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    # A line may have been cut short by its Ctrl-C.
    print("\\nEND", status, json.dumps(line)[:150], delay_s, file=sys.stderr, flush=True)
"""


def needed(name):
    line = next((line for line in ROWS.values() if line.split()[0] == name), name)
    return line.format(files="/nowhere/0").split()


def hostile_lines(name):
    """Yield lines with a hostile value for each option, next to the command's required words."""
    yield needed(name)
    yield [name]
    values = itertools.cycle(HOSTILE)
    for param in command_named(name).params:
        if not isinstance(param, Option):
            yield from ([*needed(name), value] for value in HOSTILE)
        elif param.is_flag:
            yield [*needed(name), param.opts[0]]
        else:
            yield [*needed(name), param.opts[0], next(values)]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory, free_port):
    """Function that runs lines, each with the CPU seconds before its Ctrl-C; returns (status, line)
    of each."""
    environment = os.environ | {
        "K_BOOTSTRAP_SERVER": f"127.0.0.1:{free_port}",
        "SIGNAL": "0",  # the signal that `k server-stop` sends
    }
    environment.pop("K_DEBUG", None)

    def run(lines, how):
        directory = tmp_path_factory.mktemp("sweep")
        (directory / "lines").write_text(json.dumps(lines))
        done = subprocess.run(
            [sys.executable, "-c", SWEEP, "lines", how],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=directory,
            timeout=SWEEP_TIMEOUT_S,
        )
        err = done.stderr.decode(errors="replace")
        ends = re.findall(r"^END (-?\d+) (.*)$", err, re.M)
        assert (done.returncode, len(ends)) == (0, len(lines)), err[-3000:]
        wrong = re.search(WRONG, err)
        assert wrong is None, err[max(0, wrong.start() - 300) :][:3000]
        return [(int(status), line) for status, line in ends]

    return run


WRONG = "Traceback|internal error|never awaited|Exception ignored"


@pytest.mark.parametrize("name", SWEPT)
def test_hostile_words_are_told_in_lines(name, sweep):
    for status, line in sweep([(line, 0.3) for line in hostile_lines(name)], "warm"):
        assert status in EXPECTED_ENDS, line


@pytest.mark.parametrize("line", ["topics --list -o json", "console-producer --topic t"])
def test_ctrl_c_is_quiet_at_any_moment(line, sweep):
    ends = sweep([(line.split(), ms / 1000) for ms in range(4, 300, 16)], "cold")
    # A command without records to send may end before the signal.
    assert {status for status, _ in ends} <= {0, 130, -signal.SIGINT}


def interrupted(words, at: bytes) -> tuple[int, str]:
    """Run a command with a terminal as standard error; send Ctrl-C when it shows the text `at`."""
    status, shown = on_a_terminal([*K, *words], only_stderr=True, interrupt_at=at)
    return status, shown.decode()


def test_a_long_wait_for_the_cluster_is_told_at_a_terminal(free_port):
    words = ["topics", "--list", "--bootstrap-server", f"127.0.0.1:{free_port}"]
    status, shown = interrupted(words, b"waiting for the cluster, ")
    assert status == 130
    assert shown.endswith("\r\x1b[K")


def test_long_work_shows_how_far_it_is_and_where_ctrl_c_ended_it(tmp_path):
    path = tmp_path / f"{0:020}.log"
    records = [(5, b"k", b"v", ())] * 1000
    with open(path, "wb") as file:
        for n in range(500):
            file.write(encode_batch(records, base_offset=n * 1000))
    size = path.stat().st_size
    words = ["dump-log", "--deep-iteration", "--files", str(path)]
    status, shown = interrupted(words, f"% of {size:,} bytes, ".encode())
    assert status == 130
    last = shown.split("\x1b[K")[-1]
    ended = re.fullmatch(r"k dump-log: ended at byte (\d+) of (\d+) of (.*)\r\n", last)
    assert ended is not None, shown
    assert 0 < int(ended[1]) < int(ended[2]) == size
    assert ended[3] == str(path)


def test_a_broker_needs_no_standard_output(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    settings = [f"log.dirs={tmp_path}", f"listeners=PLAINTEXT://{address}"]
    overrides = " ".join(f"--override {one}" for one in settings)
    line = f"exec {K[0]} -c 'from kcli.main import main; main()' server-start {overrides} >&-"
    with subprocess.Popen(["sh", "-c", line], stderr=subprocess.PIPE) as running:
        words = ["topics", "--list", "--bootstrap-server", address, "--timeout", "30"]
        listed = subprocess.run([*K, *words], stderr=subprocess.DEVNULL)
        assert listed.returncode == 0
        running.terminate()
        assert (running.stderr.read(), running.wait(TIMEOUT_S)) == (b"", 0)
