"""Test that k console-producer reads what k console-consumer prints, with real processes and
pipes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import time
from itertools import count

import msgpack
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kcli.client.config import ConsumerConfig, ProducerConfig
from kcli.client.consumer.consumer import Consumer
from kcli.client.producer.producer import Producer
from kserver.model import TopicPartition
from tests.support.process import BrokerProcess
from tests.support.terminal import on_a_terminal
from tests.support.tools import K

TIMEOUT_S = 60
PARTITIONS = 3
numbers = count(1)

hostile = st.sampled_from(
    [b"", b"\n", b"\r\n", b"\t", b"\x00", b"\xff\xfe", b'"', b"\\", b"{}", b"NULL", b"x" * 100_000]
)
contents = st.none() | hostile | st.binary(max_size=50) | st.text(max_size=20).map(str.encode)
names = st.text(max_size=10) | st.sampled_from(["", "\n", '"', "a=b", "\u2028"])
record = st.tuples(
    st.integers(0, PARTITIONS - 1),
    st.integers(0, 1_700_000_000_000),
    contents,
    contents,
    st.lists(st.tuples(names, contents), max_size=4).map(tuple),
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    settings = {
        "group.initial.rebalance.delay.ms": 0,
        # Members of the new protocol learn of changes only from their heartbeats.
        "group.consumer.min.heartbeat.interval.ms": 500,
        "group.consumer.heartbeat.interval.ms": 500,
    }
    with BrokerProcess(tmp_path_factory.mktemp("broker"), settings) as running:
        yield running


@pytest.fixture(scope="module")
def k(broker):
    """Function that runs `k` with these words, and with bytes as its input."""

    def run(*words: str, input: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*K, *words], input=input, capture_output=True, timeout=TIMEOUT_S, env=run.environment
        )

    run.environment = os.environ | {"K_BOOTSTRAP_SERVER": broker.address}
    return run


@pytest.fixture(scope="module")
def new_topic(k):
    def made() -> str:
        name = f"topic-{next(numbers)}"
        words = ["--partitions", str(PARTITIONS), "--config", "retention.ms=-1"]
        assert k("topics", "--create", "--topic", name, *words).returncode == 0
        return name

    return made


@pytest.fixture
def topic(new_topic):
    return new_topic()


def pipe(environment, reading: str, writing: str) -> None:
    """Connect the two commands with a pipe, as a shell does; both must succeed."""
    first = subprocess.Popen([*K, *reading.split()], stdout=subprocess.PIPE, env=environment)
    second = subprocess.run([*K, *writing.split()], stdin=first.stdout, env=environment)
    first.stdout.close()
    assert (first.wait(TIMEOUT_S), second.returncode) == (0, 0)


async def write(address, topic, records):
    config = ProducerConfig.of({"bootstrap.servers": address, "linger.ms": "20"})
    async with Producer(config) as producer:
        for partition, timestamp, key, value, headers in records:
            await producer.send(topic, value, key, partition, timestamp, headers)


async def read(address, topic):
    """Return each partition's records, in order."""
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    config = {"bootstrap.servers": address, "auto.offset.reset": "earliest"}
    async with Consumer(ConsumerConfig.of(config)) as consumer:
        left = sum((await consumer.end_offsets(partitions)).values())
        found = {partition: [] for partition in range(PARTITIONS)}
        consumer.assign(partitions)
        while left > 0:
            for batch in await consumer.poll_batches(5000):
                found[batch.partition] += [row[1:] for row in batch.rows]
                left -= len(batch.rows)
        return found


@pytest.mark.parametrize("format", ["json", "msgpack"])
def test_a_topic_goes_through_a_pipe_into_another_without_loss(format, k, broker, new_topic):
    @settings(max_examples=3, deadline=None, phases=[Phase.generate], database=None)
    @given(st.lists(record, min_size=20, max_size=60))
    def each_record_is_kept(records):
        source, copy = new_topic(), new_topic()
        asyncio.run(write(broker.address, source, records))
        pipe(
            k.environment,
            f"console-consumer --topic {source} --from-beginning -e --output-format {format}",
            f"console-producer --topic {copy} --input-format {format}",
        )
        original = asyncio.run(read(broker.address, source))
        assert sum(map(len, original.values())) == len(records)
        assert asyncio.run(read(broker.address, copy)) == original

    each_record_is_kept()


def test_columns_go_through_a_pipe_as_kafkas_consumer_prints_them(k, broker, new_topic):
    source, copy = new_topic(), new_topic()
    records = [
        (n % PARTITIONS, 1_700_000_000_000 + n, f"k{n}".encode(), b"v\xff\t%d" % n, (("h", b"x"),))
        for n in range(50)
    ]
    records += [(0, 5, None, b"no key", (("a", b"1"), ("b", None))), (1, 6, b"gone", None, ())]
    asyncio.run(write(broker.address, source, records))
    names = ("timestamp", "partition", "headers", "key")
    shown = [f"print.{name}=true" for name in names] + ["null.literal=NO_HEADERS"]
    parsed = [f"parse.{name}=true" for name in names] + ["null.marker=NO_HEADERS"]
    pipe(
        k.environment,
        f"console-consumer --topic {source} --offset :end "
        + " ".join(f"--formatter-property {one}" for one in shown),
        f"console-producer --topic {copy} "
        + " ".join(f"--reader-property {one}" for one in parsed),
    )
    original = asyncio.run(read(broker.address, source))
    assert asyncio.run(read(broker.address, copy)) == original


@pytest.mark.parametrize("encoding", ["hex", "base64", "long"])
def test_encoded_keys_and_values_go_through_a_pipe(encoding, k, broker, new_topic):
    source, copy = new_topic(), new_topic()
    data = [bytes([n]) * 8 for n in (0, 9, 10, 127, 255)]
    asyncio.run(write(broker.address, source, [(0, 5, one, one, ()) for one in data]))
    asyncio.run(
        write(broker.address, source, [(1, 5, None, data[0], ()), (2, 5, data[0], None, ())])
    )
    pipe(
        k.environment,
        f"console-consumer --topic {source} --offset :end --output-format {encoding} "
        "--formatter-property print.key=true",
        f"console-producer --topic {copy} --input-format {encoding} "
        "--reader-property parse.key=true --reader-property null.marker=null",
    )
    expected = sorted([(one, one) for one in data] + [(b"", data[0]), (data[0], b"")])
    found = asyncio.run(read(broker.address, copy))
    pairs = [(row[1] or b"", row[2] or b"") for rows in found.values() for row in rows]
    assert sorted(pairs) == expected
    assert sum(row[1] is None or row[2] is None for rows in found.values() for row in rows) == 2


def test_envelopes_may_name_topics_of_their_own(k, new_topic):
    first, second = new_topic(), new_topic()
    lines = [{"topic": first, "value": "a"}, {"topic": second, "value": "b"}]
    done = k(
        "console-producer",
        "--input-format",
        "msgpack",
        input=b"".join(msgpack.packb(one) for one in lines),
    )
    assert (done.returncode, done.stderr) == (0, b"")
    for topic, value in ((first, "a"), (second, "b")):
        done = k("console-consumer", "--topic", topic, "--offset", ":end", "-f", "%v")
        assert done.stdout == value.encode()
    done = k("console-producer", "--input-format", "json", input=b'{"value": "a"}\n')
    assert (done.returncode, done.stderr) == (
        1,
        b"k console-producer: record 1 names no topic, and --topic is not given\n",
    )


def test_what_cannot_be_delivered_is_named_and_counted_and_the_rest_is(k, topic):
    lines = [{"value": "a"}, {"partition": 99}, {"timestamp": -5}, {"value": "b"}]
    input = "".join(json.dumps(one) + "\n" for one in lines).encode()
    done = k("console-producer", "--topic", topic, "--input-format", "json", input=input)
    assert done.returncode == 1
    assert done.stderr.decode().splitlines() == [
        f"k console-producer: record 2 was not delivered: {topic} has no partition 99, but 3",
        "k console-producer: record 3 was not delivered: Invalid timestamp: -5.",
        f"k console-producer: 2 of 4 records were not delivered: {topic} has no partition 99, but "
        "3; Invalid timestamp: -5.",
    ]
    assert sorted(read_values(k, topic)) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("format", "long", "unit"),
    [("lines", b"x" * 5000, "line"), ("json", b'{"value": "%b"}' % (b"x" * 50_000), "record")],
)
def test_a_line_too_long_is_named_with_the_limit(format, long, unit, k, topic):
    short = b"s" if format == "lines" else b'{"value": "s"}'
    words = ["--topic", topic, "--input-format", format]
    words += ["--command-property", "max.request.size=1000"]
    done = k("console-producer", *words, input=b"\n".join([short, long, short, long]))
    assert done.returncode == 1
    why = "larger than max.request.size, which is 1000 bytes"
    assert done.stderr.decode().splitlines() == [
        f"k console-producer: {unit} 2 was not delivered: {why}",
        f"k console-producer: 2 of 4 records were not delivered: {why}",
    ]
    assert read_values(k, topic) == [b"s", b"s"]


def read_values(k, topic, *words):
    done = k("console-consumer", "--topic", topic, "--from-beginning", "-e", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_rate_is_kept(k, topic):
    began = time.monotonic()
    done = k("console-producer", "--topic", topic, "--rate", "40/s", input=b"x\n" * 41)
    assert (done.returncode, done.stderr) == (0, b"")
    assert time.monotonic() - began > 1
    assert len(read_values(k, topic)) == 41


def test_a_signal_tells_how_many_records_were_delivered(k, topic):
    words = [*K, "console-producer", "--topic", topic, "--timeout", "0"]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, env=k.environment
    ) as sending:
        sending.stdin.write(b"x\n" * 1000)
        watching = ["--topic", topic, "--from-beginning", "--max-messages", "1000"]
        assert k("console-consumer", *watching).returncode == 0
        sending.send_signal(signal.SIGINT)
        assert sending.wait(TIMEOUT_S) == 130
        assert sending.stderr.read() == b"k console-producer: 1000 records were delivered\n"


def committed(k, group: str) -> dict[int, int]:
    """Return the group's committed offset of each partition."""
    told = k("consumer-groups", "--describe", "--group", group, "-o", "json").stdout
    return {row["partition"]: row["current_offset"] for row in json.loads(told)["items"]}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_goes_on_after_what_was_printed_whatever_was_fetched(k, topic, protocol):
    values = [b"%d" % n for n in range(30)]
    pipe_in = b"".join(value + b"\n" for value in values)
    assert k("console-producer", "--topic", topic, input=pipe_in).returncode == 0
    words = ["--group", f"g-{topic}", "--from-beginning"]
    words += ["--consumer-property", f"group.protocol={protocol}"]
    printed = []
    for more in (
        ["--topic", topic, "--max-messages", "7"],
        ["--include", f"{topic}|other", "--max-messages", "7", "--grep", "v:[02468]$"],
        ["--topic", topic, "--timeout-ms", "6000"],
    ):
        done = k("console-consumer", *words, *more)
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout.split())
    first, even, rest = printed
    assert len(first) == len(even) == 7
    assert all(int(value) % 2 == 0 for value in even)
    assert not {*first, *even} & {*rest}
    left = {*values} - {*first, *even, *rest}
    assert all(int(value) % 2 for value in left), "what was passed over, and no more"
    assert sum(committed(k, f"g-{topic}").values()) == 30


def test_ctrl_c_commits_what_was_printed_and_leaves_the_group(k, topic):
    assert k("console-producer", "--topic", topic, input=b"a\nb\n").returncode == 0
    words = [*K, "console-consumer", "--topic", topic, "--group", f"g-{topic}", "--from-beginning"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=k.environment
    ) as reading:
        assert [reading.stdout.readline() for _ in range(2)] == [b"a\n", b"b\n"]
        reading.send_signal(signal.SIGINT)
        assert reading.wait(TIMEOUT_S) == 130
        assert reading.stderr.read() == b"Processed a total of 2 messages\n"
    assert sum(committed(k, f"g-{topic}").values()) == 2
    state = k("consumer-groups", "--describe", "--group", f"g-{topic}", "--state", "-o", "json")
    assert [row["members"] for row in json.loads(state.stdout)["items"]] == [0]


def test_a_reader_that_has_gone_ends_it_though_no_record_comes(k, topic):
    assert k("console-producer", "--topic", topic, input=b"a\n").returncode == 0
    words = [*K, "console-consumer", "--topic", topic, "--group", f"g-{topic}", "--from-beginning"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=k.environment
    ) as reading:
        assert reading.stdout.readline() == b"a\n"
        reading.stdout.close()
        assert reading.wait(TIMEOUT_S) == 0
        assert reading.stderr.read().splitlines() == [
            b"Unable to write to standard out, closing consumer.",
            b"Processed a total of 1 messages",
        ]
    assert sum(committed(k, f"g-{topic}").values()) == 1


@pytest.fixture(scope="module")
def filled(k, broker, new_topic):
    """A topic with ten records in each partition: p0-0, p0-1, ..., one second apart."""
    name = new_topic()
    records = [
        (partition, 1_700_000_000_000 + 1000 * n, b"k%d" % n, b"p%d-%d" % (partition, n), ())
        for n in range(10)
        for partition in range(PARTITIONS)
    ]
    asyncio.run(write(broker.address, name, records))
    return name


def values(partition, numbers):
    return [f"p{partition}-{n}" for n in numbers]


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        (["--offset", ":end"], range(10)),
        (["--offset", "start", "-e"], range(10)),
        (["--from-beginning", "-e"], range(10)),
        (["--offset", "end", "-e"], ()),
        (["--offset", "-3:end"], (7, 8, 9)),
        (["--offset", "-3", "--idle-timeout", "1"], (7, 8, 9)),
        (["--offset", "-99:end"], range(10)),
        (["--offset", "+8", "-e"], (8, 9)),
        (["--offset", "2:4"], (2, 3)),
        (["--offset", "@1700000003000:1700000005000"], (3, 4)),
        (["--offset", "@2023-11-14T22:13:27Z:end"], (7, 8, 9)),
        (["--offset", "@1700000003000:1500ms"], (3, 4)),
        (["--offset", ":end", "--grep", "v:-[24]$"], (2, 4)),
        (["--offset", ":end", "--grep", "!k:k[0-7]"], (8, 9)),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_a_part_of_a_topic_is_read(words, numbers, k, filled):
    done = k("console-consumer", "--topic", filled, *words, "-f", "%v\\n")
    expected = [value for p in range(PARTITIONS) for value in values(p, numbers)]
    assert sorted(done.stdout.decode().split()) == expected
    assert done.returncode == 0
    assert done.stderr.decode() == f"Processed a total of {len(expected)} messages\n"


def test_of_what_matches_no_more_is_printed_than_wanted(k, filled):
    words = ["--from-beginning", "--grep", "v:-[5-9]", "--max-messages", "4", "--partition", "1"]
    done = k("console-consumer", "--topic", filled, *words)
    assert done.stdout.decode().split() == values(1, [5, 6, 7, 8])
    assert done.stderr == b"Processed a total of 4 messages\n"


def test_a_topic_without_records_ends_at_its_end(k, topic):
    for words in (["--offset", ":end"], ["-e"], ["--offset", "-5:end"]):
        done = k("console-consumer", "--topic", topic, *words)
        assert (done.returncode, done.stdout) == (0, b"")


def test_a_record_without_a_key_is_refused_by_a_compacted_topic_with_the_reason(k):
    named = ("--topic", "compacted")
    done = k("topics", "--create", *named, "--config", "cleanup.policy=compact")
    assert done.returncode == 0, done.stderr
    done = k("console-producer", *named, input=b"one\ntwo\n")
    assert done.returncode == 1
    told, total = done.stderr.decode().splitlines()
    why = (
        "One or more records have been rejected due to 2 record errors: "
        "Compacted topic cannot accept message without key"
    )
    assert told == f"k console-producer: a record was not delivered: {why}"
    assert total == f"k console-producer: 2 of 2 records were not delivered: {why}"


def test_how_far_a_file_is_sent_is_shown_on_a_terminal(k, topic, tmp_path):
    (tmp_path / "records").write_bytes(b"record\n" * 40)
    words = [*K, "console-producer", "--topic", topic, "--rate", "20/s"]
    send = f'exec "$@" <{tmp_path}/records'
    status, shown = on_a_terminal(["sh", "-c", send, "sh", *words], environment=k.environment)
    assert status == 0
    assert re.search(rb"\r\x1b\[K *[1-9][0-9]?% of 280 bytes, [0-9]+ s left", shown), shown
    assert shown.endswith(b"\r\x1b[K")
