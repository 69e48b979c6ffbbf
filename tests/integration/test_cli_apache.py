"""`k` and Apache's own scripts, of Kafka 4.3.1, against the same Apache brokers: the same answers.

Compared is standard output, to the letter but for names, ids and times that a run makes up, and
whether the command succeeded.  Where `k` differs on purpose its manual page says so, and here
stands what it does instead.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import subprocess
import sys
from typing import NamedTuple

import pytest

from tests.support import apache_kafka
from tests.support.brokers import QUICK_START, ApacheBroker
from tests.support.perf_lines import forms
from tests.support.process import BrokerProcess
from tests.support.tools import require

NEW, OLD = "4.3.1", "3.9.2"
K = [sys.executable, "-c", "import sys; from kcli.main import main; sys.exit(main())"]
TIMEOUT_S = 120
TOPIC_ID = re.compile(r"TopicId: [\w-]{22}")

RECORDS = [
    b"NO\tkey 1\tvalue 1",
    b"h1:a,h2:NULL\tkey 2\tvalue 2",
    b"NO\tNULL\tno key",
    b"NO\tkey 3\tNULL",
    "NO\tschlüssel\twert".encode(),
    b"NO\t\t",
]
READER = ["parse.key=true", "parse.headers=true", "null.marker=NULL", "ignore.error=true"]
SHOWN = ["timestamp", "partition", "offset", "delivery", "epoch", "headers", "key", "value"]


class Outcome(NamedTuple):
    status: int
    out: bytes
    err: bytes

    @property
    def lines(self) -> list[str]:
        return TOPIC_ID.sub("TopicId: ID", self.out.decode(errors="replace")).splitlines()


def run(command: list[str], input: bytes = b"", **environment: str) -> Outcome:
    done = subprocess.run(
        command,
        input=input,
        capture_output=True,
        timeout=TIMEOUT_S,
        env=os.environ | environment,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def k(command: str, *words: str, input: bytes = b"") -> Outcome:
    return run([*K, command, *words], input)


def apache(command: str, *words: str, input: bytes = b"", version: str = NEW) -> Outcome:
    script = [sys.executable, apache_kafka.__file__, "tool", version, f"kafka-{command}.sh"]
    return run([*script, *words], input, KAFKA_JVM_PERFORMANCE_OPTS=QUICK_START)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory):
    """The broker of a version, started when it is first asked for; two topics wait in it."""
    require("java")
    settings = {"auto.create.topics.enable": "false", "num.partitions": 3}
    with contextlib.ExitStack() as running:

        @functools.cache
        def broker(version: str) -> ApacheBroker:
            directory = tmp_path_factory.mktemp(version)
            started = running.enter_context(ApacheBroker(directory, version, settings))
            _fill(["--bootstrap-server", started.address])
            return started

        yield broker


def _fill(words: list[str]) -> None:
    seen = ["--create", "--topic", "seen", "--config", "retention.ms=1000000"]
    assert k("topics", *words, *seen) == (0, b"Created topic seen.\n", b"")
    assert k("topics", *words, "--create", "--topic", "one", "--partitions", "1").status == 0
    reader = [word for one in READER for word in ("--reader-property", one)]
    lines = b"\n".join(RECORDS)
    sent = k("console-producer", *words, "--topic", "one", *reader, input=lines)
    assert sent == (0, b"", b"")


@pytest.fixture(params=[NEW, OLD])
def broker(request, brokers):
    return brokers(request.param)


@pytest.fixture
def server(broker):
    return ["--bootstrap-server", broker.address]


BY_ALL = [
    ("topics", "--describe"),
    ("topics", "--describe --topics-with-overrides"),
    ("topics", "--create --topic seen"),
    ("topics", "--create --topic a.b/c"),
    ("topics", "--create --topic new --replication-factor 2"),
    ("topics", "--create --topic new --config foo=bar"),
    ("topics", "--alter --topic seen --partitions 1"),
    ("get-offsets", ""),
    ("get-offsets", "--topic one --time max-timestamp"),
    ("broker-api-versions", ""),
    ("cluster", "cluster-id"),
    ("cluster", "list-endpoints"),
    ("log-dirs", "--describe --topic-list one"),
    ("log-dirs", "--describe --broker-list 7,8"),
]
"""What a broker of another version may answer otherwise."""
BY_NEW = [
    ("configs", "--describe --topic seen --all"),
    ("configs", "--describe --entity-type brokers"),
    ("configs", "--alter --topic seen --add-config foo=bar"),
    ("cluster", "list-endpoints --include-fenced-brokers"),
    ("topics", "--list"),
    ("topics", "--list --exclude-internal --topic se.*,one"),
    ("topics", "--describe --topic one"),
    ("topics", "--describe --under-replicated-partitions"),
    ("topics", "--describe --at-min-isr-partitions --topic seen"),
    ("topics", "--describe --topic missing"),
    ("topics", "--describe --topic missing --if-exists"),
    ("topics", "--describe --topic-id 2BmACECHRZOvuI04BXclGw"),
    ("topics", "--create --topic seen --if-not-exists"),
    ("topics", "--create --topic new --replica-assignment 1:1"),
    ("topics", "--create --topic new --config retention.ms=abc"),
    ("topics", "--alter --topic seen --partitions 3"),
    ("topics", "--describe --unavailable-partitions"),
    ("topics", "--describe --under-min-isr-partitions"),
    ("topics", "--describe --exclude-internal --topic se.* --partition-size-limit-per-response 1"),
    ("topics", "--describe --topic-id nonsense"),
    ("topics", "--create --topic new --partitions 0"),
    ("topics", "--create --topic new --replication-factor 0"),
    ("topics", "--create --topic new --config retention.ms"),
    ("topics", "--create --topic new --replica-assignment 1:2,3"),
    ("topics", "--create --topic new --replica-assignment 77"),
    ("topics", "--alter --topic seen --partitions 4 --replica-assignment 1,1,1,77"),
    ("topics", "--alter --topic missing --partitions 4 --if-exists"),
    ("topics", "--delete --topic missing"),
    ("topics", "--delete --topic missing --if-exists"),
    ("get-offsets", "--topic one --time earliest"),
    ("get-offsets", "--topic-partitions one,seen:1-,:0 --exclude-internal-topics"),
    ("get-offsets", "--topic one --time 99999999999999"),
    ("get-offsets", "--topic one,seen --partitions 0,2 --time -2"),
    ("get-offsets", "--topic one --time earliest-local"),
    ("get-offsets", "--topic one --time latest-tiered"),
    ("get-offsets", "--topic one --time earliest-pending-upload"),
    ("get-offsets", "--topic one --time 0"),
    ("get-offsets", "--partitions x"),
    ("get-offsets", "--topic-partitions one:a"),
    ("get-offsets", "--topic-partitions one --topic one"),
    ("get-offsets", "--topic missing"),
    ("get-offsets", "--time nonsense"),
]


@pytest.mark.parametrize(
    ("broker", "command", "words"),
    [*((NEW, *row) for row in BY_ALL + BY_NEW), *((OLD, *row) for row in BY_ALL)],
    indirect=["broker"],
)
def test_answers_are_the_same(server, command, words):
    # kafka-cluster.sh needs its action first.
    ours, theirs = (run(command, *words.split(), *server) for run in (k, apache))
    assert sorted(ours.lines) == sorted(theirs.lines)
    assert ours.status == theirs.status


@pytest.mark.parametrize("broker", [OLD], indirect=True)
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("get-offsets", "--broker-list SERVER --topic one"),
        (
            "console-consumer",
            "--bootstrap-server SERVER --whitelist on. --from-beginning --max-messages 6",
        ),
    ],
)
def test_what_was_removed_since_answers_as_3_9_did(broker, command, words):
    words = words.replace("SERVER", broker.address).split()
    ours, theirs = k(command, *words), apache(command, *words, version=OLD)
    assert (ours.status, ours.out) == (theirs.status, theirs.out)


@pytest.mark.parametrize(
    "words",
    [
        "--list --partitions 2",
        "--create --topic a --if-exists",
        "--describe --if-exists",
        "--list --create --topic a",
        "--create",
        "--list --nonsense",
        "--describe --topics-with-overrides --unavailable-partitions",
        "--create --topic a --partitions",
    ],
)
def test_what_makes_no_sense_is_refused_in_the_same_words(words):
    require("java")
    words = ["--bootstrap-server", "127.0.0.1:1", *words.split()]
    ours, theirs = (run("topics", *words) for run in (k, apache))
    assert (ours.status, theirs.status) == (2, 1)
    assert (ours.out, theirs.out) == (b"", b"")
    assert ours.err.splitlines()[0] == b"k topics: " + theirs.err.splitlines()[0]


@pytest.mark.parametrize("broker", [NEW], indirect=True)
def test_a_dry_run_asks_apache_and_changes_nothing(server):
    before = k("topics", "--describe", *server).lines
    for words, said in (
        ("--create --topic dry", "create topic dry: partitions 3, replication factor 1"),
        ("--alter --topic seen --partitions 5", "give topic seen 5 partitions in all"),
        ("--delete --topic seen", "delete topic seen and all its records"),
    ):
        done = k("topics", *words.split(), "--dry-run", *server)
        assert (done.status, done.lines) == (0, [f"Would {said}."])
    refused = k("topics", "--create", "--topic", "seen", "--dry-run", *server)
    assert (refused.status, b"already exists" in refused.out) == (1, True)
    unregistered = k("cluster", "unregister", "--id", "1", "--dry-run", *server)
    assert unregistered == (0, b"Would unregister broker 1.\n", b"")
    assert k("topics", "--describe", *server).lines == before


@pytest.mark.parametrize("broker", [NEW], indirect=True)
def test_an_unknown_broker_cannot_be_unregistered(server):
    ours, theirs = (run("cluster", "unregister", "--id", "77", *server) for run in (k, apache))
    why = b"Broker ID 77 is not currently registered"
    assert (ours.status, ours.out, ours.err) == (1, b"", b"k cluster: " + why + b"\n")
    assert (theirs.status, theirs.out, why in theirs.err) == (1, b"", True)


def test_a_topic_s_life_is_the_same(server):
    def life(run, name):
        steps = [
            f"--create --topic {name} --partitions 2",
            f"--describe --topic {name}",
            f"--alter --topic {name} --partitions 4",
            f"--describe --topic {name}",
            f"--delete --topic {name}",
        ]
        done = [run("topics", *server, *step.split()) for step in steps]
        return [(one.status, [line.replace(name, "T") for line in one.lines]) for one in done]

    assert life(k, "our_s") == life(apache, "their_s")


@pytest.mark.parametrize("broker", [NEW], indirect=True)
def test_records_are_deleted_the_same(server, tmp_path):
    """But for the exit status, which tells where a partition was refused."""

    def deleted(run):
        name = f"deleted-from-{run.__name__}"
        made = ["--create", "--topic", name, "--partitions", "1"]
        assert k("topics", *server, *made).status == 0
        assert k("console-producer", *server, "--topic", name, input=b"a\nb\nc\n").status == 0
        file, found = tmp_path / name, []
        for offset in (1, 4, 0, -1):
            asked = {"topic": name, "partition": 0, "offset": offset}
            file.write_text(json.dumps({"partitions": [asked], "version": 1}))
            done = run("delete-records", *server, "--offset-json-file", str(file))
            found.append((done.status, [line.replace(name, "T") for line in done.lines]))
        return found

    ours, theirs = deleted(k), deleted(apache)
    assert [lines for _, lines in ours] == [lines for _, lines in theirs]
    assert [status for status, _ in ours] == [0, 1, 0, 0]


@pytest.mark.parametrize("broker", [NEW], indirect=True)
def test_controllers_tell_of_brokers_what_these_tell_themselves(broker, server):
    asked = ["--describe", "--entity-type", "brokers"]
    controllers = ["--bootstrap-controller", f"127.0.0.1:{broker.controller_port}"]
    ours = k("configs", *controllers, *asked)
    assert (ours.status, ours.err) == (0, b"")
    assert ours == k("configs", *server, *asked)


@pytest.mark.parametrize("broker", [NEW], indirect=True)
def test_settings_and_quotas_are_changed_the_same(server):
    def life(run, name):
        steps = [
            "--alter --client NAME --add-config producer_byte_rate=10000000",
            "--alter --topic seen --add-config flush.ms=77,cleanup.policy=[compact,delete]",
            "--describe --topic seen",
        ]
        done = [run("configs", *server, *step.replace("NAME", name).split()) for step in steps]
        return [(one.status, [line.replace(name, "C") for line in one.lines]) for one in done]

    ours = life(k, "our_s")
    assert ours == life(apache, "their_s")
    deleted = ["--alter", "--topic", "seen", "--delete-config", "flush.ms,cleanup.policy"]
    assert k("configs", *server, *deleted).status == 0


@pytest.mark.parametrize("broker", [NEW], indirect=True)
@pytest.mark.parametrize(
    "words",
    [
        "--from-beginning --max-messages 6",
        "--partition 0 --offset 2 --max-messages 2",
        "--partition 0 --offset earliest --max-messages 1 --formatter-property print.key=true",
        "--from-beginning --max-messages 6 --value-deserializer "
        "org.apache.kafka.common.serialization.BytesDeserializer",
        "--from-beginning --max-messages 6 --formatter "
        "org.apache.kafka.tools.consumer.NoOpMessageFormatter",
        "--from-beginning --max-messages 6 "
        + " ".join(f"--formatter-property print.{name}=true" for name in SHOWN),
        "--from-beginning --max-messages 6 --formatter-property print.key=true "
        "--formatter-property key.separator=| --formatter-property null.literal=nothing "
        "--formatter-property print.headers=true --formatter-property headers.separator=&",
    ],
)
def test_records_are_printed_the_same(server, words):
    words = ["--topic", "one", *words.split()]
    ours, theirs = (run("console-consumer", *server, *words) for run in (k, apache))
    assert ours.out == theirs.out
    assert (ours.status, theirs.status) == (0, 0)
    assert ours.err.splitlines()[-1] == theirs.err.splitlines()[-1]


@pytest.mark.parametrize("broker", [NEW], indirect=True)
def test_a_timeout_is_a_normal_end(server):
    words = ["--topic", "one", "--timeout-ms", "2000"]
    ours, theirs = (run("console-consumer", *server, *words) for run in (k, apache))
    assert (ours.status, ours.out) == (theirs.status, theirs.out) == (0, b"")
    assert ours.err == b"Processed a total of 0 messages\n"


@pytest.mark.parametrize("settings", [READER, READER[:1], ["null.marker=value 1"]])
def test_lines_become_the_same_records(server, settings):
    lines = b"\n".join([*RECORDS, b"carriage return\tat the end\r", b"last\t"])
    reader = [word for one in settings for word in ("--reader-property", one)]
    shown = [word for name in SHOWN[5:] for word in ("--formatter-property", f"print.{name}=true")]

    def sent(run):
        name = f"from-{run.__name__}-{READER.index(settings[0]) if settings[0] in READER else 9}"
        name += f"-{len(settings)}"
        words = [*server, "--create", "--topic", name, "--partitions", "1"]
        assert k("topics", *words).status == 0
        assert run("console-producer", *server, "--topic", name, *reader, input=lines).status == 0
        words = [*server, "--topic", name, "--from-beginning", "--max-messages", "8", *shown]
        return k("console-consumer", *words).out

    assert sent(k) == sent(apache)


def test_keys_go_to_the_same_partitions(server):
    lines = b"".join(b"key-%d\t%d\n" % (n, n) for n in range(100))

    def sent(run):
        name = f"keys-{run.__name__}"
        assert k("topics", *server, "--create", "--topic", name, "--partitions", "7").status == 0
        words = ["--topic", name, "--reader-property", "parse.key=true"]
        assert run("console-producer", *server, *words, input=lines).status == 0
        return [line.partition(":")[2] for line in k("get-offsets", *server, "--topic", name).lines]

    assert sent(k) == sent(apache)


@pytest.mark.parametrize("broker", [NEW], indirect=True)
def test_perf_tests_print_lines_of_the_same_form(server, tmp_path):
    payloads = tmp_path / "payloads"
    payloads.write_text("a\nbb\n\nccc\n")
    steps = {
        "producer-perf-test": f"--topic perf --num-records 600 --throughput 300 --payload-file "
        f"{payloads} --warmup-records 100 --reporting-interval 300",
        "consumer-perf-test": "--topic perf --num-records 100 --show-detailed-stats "
        "--reporting-interval 1",
    }
    words = [*server, "--topic", "perf", "--create", "--partitions", "1"]
    assert k("topics", *words).status == 0
    for command, step in steps.items():
        _is_the_same_form(command, server, step)
    short = "--num-records 100000 --timeout 300 --date-format yyyy/MM/dd'T'HH:mm"
    _is_the_same_form("consumer-perf-test", server, f"--topic perf {short}")
    _is_the_same_form(
        "e2e-latency", server, "--topic {} --num-records 2 --producer-acks 1 --record-size 5"
    )


def _is_the_same_form(command: str, server: list[str], words: str) -> None:
    """As far as a program that reads the lines can tell; {} is a name of one's own."""
    ours, theirs = (
        run(command, *server, *words.format(f"{command}-{run.__name__}").split())
        for run in (k, apache)
    )
    assert (ours.status, theirs.status) == (0, 0)
    told = [
        one.out.decode().replace(run.__name__, "") for one, run in ((ours, k), (theirs, apache))
    ]
    assert forms(told[0]) == forms(told[1])
    assert ours.err == b""


DUMPS = [
    [],
    ["--deep-iteration"],
    ["--print-data-log"],
    ["--print-data-log", "--skip-record-metadata"],
    ["--verify-index-only"],
]
OF_OURS = [
    ["--index-sanity-check"],
    ["--max-bytes", "3000", "--deep-iteration"],
    ["--max-message-size", "3000", "--verify-index-only"],
    ["--key-decoder-class", "org.apache.kafka.tools.api.StringDecoder", "--value-decoder-class"],
]


@pytest.mark.parametrize("broker", [NEW], indirect=True)
@pytest.mark.parametrize("words", DUMPS, ids=" ".join)
def test_apaches_files_are_dumped_the_same(broker, server, words):
    directory = broker.data / "one-0"
    files = sorted(str(file) for file in directory.iterdir() if file.suffix in (".log", ".index"))
    words = ["--files", ",".join(files), *words]
    ours, theirs = (run("dump-log", *words) for run in (k, apache))
    assert (ours.status, ours.out) == (theirs.status, theirs.out)


def test_krafts_files_are_dumped_the_same(broker, server, tmp_path):
    """Of a copy: the broker goes on to write."""
    copy = tmp_path / "00000000000000000000.log"
    original = broker.data / "__cluster_metadata-0" / copy.name
    copy.write_bytes(original.read_bytes())
    ours, theirs = (
        run("dump-log", "--deep-iteration", "--files", str(copy)) for run in (k, apache)
    )
    assert (ours.status, ours.out) == (theirs.status, theirs.out)
    assert b"LeaderChange: {" in ours.out


def test_of_our_broker_k_cluster_says_what_the_script_says(tmp_path):
    require("java")
    with BrokerProcess(tmp_path) as ours:
        server = ["--bootstrap-server", ours.address]
        for action in ("cluster-id", "list-endpoints"):
            told = k("cluster", action, *server)
            assert (told.status, told.lines) == (0, apache("cluster", action, *server).lines)
        unregister = ("cluster", "unregister", "--id", "7", *server)
        no, why = k(*unregister), b"The target cluster does not support the broker unregistration"
        assert (no.status, no.out, no.err.startswith(b"k cluster: " + why)) == (1, b"", True)
        assert apache(*unregister).out.startswith(why)


@pytest.fixture(scope="module")
def our_segments(tmp_path_factory):
    """The files of a partition of our own broker: many segments, all codecs, closed in order."""
    require("java")
    with BrokerProcess(tmp_path_factory.mktemp("ours")) as running:
        words = ["--bootstrap-server", running.address]
        settings = ["segment.bytes=4096", "index.interval.bytes=100", "segment.index.bytes=2000"]
        configs = [word for one in settings for word in ("--config", one)]
        topic = ["--topic", "t", "--partitions", "1"]
        assert k("topics", *words, "--create", *topic, *configs).status == 0
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            lines = b"".join(b"%s-%d\tvalue %d\n" % (codec.encode(), n, n) for n in range(500))
            reader = ["--topic", "t", "--reader-property", "parse.key=true", "--batch-size", "2000"]
            sent = k("console-producer", *words, *reader, "--compression-codec", codec, input=lines)
            assert sent.status == 0
    return running.data / "t-0"


@pytest.mark.parametrize("words", DUMPS + OF_OURS, ids=" ".join)
def test_our_files_are_dumped_the_same(our_segments, words):
    kinds = (".log", ".index", ".timeindex", ".snapshot")
    files = sorted(str(file) for file in our_segments.iterdir() if file.suffix in kinds)
    assert len(files) > 12
    words = ["--files", ",".join(files), *words]
    ours = k("dump-log", *words)
    theirs = apache("dump-log", *words)
    assert (ours.status, ours.out) == (theirs.status, theirs.out)
    assert b"Mismatches" not in theirs.err
    assert b"timestamp mismatch" not in theirs.err


@pytest.mark.parametrize("broker", [NEW], indirect=True)
def test_our_consoles_apaches_and_kcat_share_a_topic(broker, server):
    kcat = [require("kcat"), "-b", broker.address, "-t", "mixed"]
    assert k("topics", *server, "--create", "--topic", "mixed", "--partitions", "1").status == 0
    reader = ["--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"]
    for run_one in (k, apache):
        line = f"from:{run_one.__name__}\tkey\twört\n".encode()
        words = [*server, "--topic", "mixed", *reader]
        assert run_one("console-producer", *words, input=line).status == 0
    assert run([*kcat, "-P", "-K:", "-H", "from=kcat"], "key:wört\n".encode()).status == 0

    columns = ["headers", "key", "value"]
    expected = [f"from:{name}\tkey\twört" for name in ("k", "apache", "kcat")]
    words = [*server, "--topic", "mixed", "--from-beginning", "--max-messages", "3"]
    words += [word for name in columns for word in ("--formatter-property", f"print.{name}=true")]
    for run_one in (k, apache):
        assert run_one("console-consumer", *words).out.decode().splitlines() == expected
    shown = run([*kcat, "-C", "-e", "-f", "%h %k %s %K %S %t %p %o\n"]).out.replace(b"=", b":")
    words = [*server, "--topic", "mixed", "--offset", ":end", "-f", "%h %k %s %K %S %t %p %o\\n"]
    assert k("console-consumer", *words).out.replace(b"=", b":") == shown
    assert shown.decode().split("\n")[0] == "from:k key wört 3 5 mixed 0 0"

    printed = run([*kcat, "-C", "-e", "-J"]).out
    copy = [*server, "--topic", "from-kcat"]
    assert k("topics", *copy, "--create").status == 0
    assert k("console-producer", *copy, "--input-format", "json", input=printed).status == 0
    copied = k("console-consumer", *copy, "--offset", ":end", "-f", "%h %k %s %T\\n").out
    assert copied == run([*kcat, "-C", "-e", "-f", "%h %k %s %T\n"]).out


@pytest.mark.parametrize("broker", [NEW], indirect=True)
def test_the_last_records_are_so_many_between_the_gaps_of_transactions(broker, server):
    require("confluent_kafka")
    from confluent_kafka import Producer

    assert k("topics", *server, "--create", "--topic", "gaps", "--partitions", "1").status == 0
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": "gaps"})
    producer.init_transactions()
    for n in range(12):
        producer.begin_transaction()
        producer.produce("gaps", b"%d" % n)
        producer.flush()
        if n % 4 == 3:
            producer.commit_transaction()
        else:
            producer.abort_transaction()

    def last(count, isolation):
        words = [*server, "--topic", "gaps", "--offset", f"-{count}:end"]
        done = k("console-consumer", *words, "--isolation-level", isolation)
        assert done.status == 0
        return [int(line) for line in done.lines]

    assert last(5, "read_uncommitted") == [7, 8, 9, 10, 11]
    assert last(2, "read_committed") == [7, 11]
    assert last(9, "read_committed") == [3, 7, 11]
