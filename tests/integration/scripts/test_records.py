"""Test that scripts and `k` write and read records alike: consoles, verifiable clients, perf
tests."""

from __future__ import annotations

import json

import pytest

from tests.support.perf_lines import forms
from tests.support.side_by_side import (
    NEW,
    READER,
    RECORDS,
    apache,
    k,
    run,
)
from tests.support.tools import require

SHOWN = ["timestamp", "partition", "offset", "delivery", "epoch", "headers", "key", "value"]


@pytest.mark.parametrize("broker", [NEW], indirect=True)
def test_the_outcomes_of_numbers_are_told_the_same(server, tmp_path):
    file = tmp_path / "file"
    file.write_text("max.block.ms=1000\n")

    def told(run):
        name = f"numbers-{run.__name__}"
        made = ["--create", "--topic", name, "--partitions", "1"]
        assert k("topics", *server, *made).status == 0
        found = []
        for words in (
            ["--topic", name, "--max-messages", "5", "--value-prefix", "7", "--acks", "1"],
            ["--topic", name, "--max-messages", "3", "--repeating-keys", "2"],
            ["--topic", "missing", "--max-messages", "1", "--command-config", str(file)],
        ):
            done = run("verifiable-producer", *server, *words)
            assert done.status == 0
            events = [json.loads(line) for line in done.out.splitlines()]
            for event in events:
                assert event.pop("timestamp") > 1_700_000_000_000
                event.pop("avg_throughput", None)
            found.append([list(event.items()) for event in events])
        return json.dumps(found).replace(name, "T")

    assert told(k) == told(apache)


@pytest.mark.parametrize("broker", [NEW], indirect=True)
def test_a_members_life_is_told_the_same(server, tmp_path):
    file = tmp_path / "file"
    file.write_text("max.poll.records=3\n")
    topic = ["--topic", "life"]
    assert k("topics", *server, "--create", *topic, "--partitions", "1").status == 0
    sent = k("console-producer", *server, *topic, input=b"a\nb\nc\nd\ne\n")
    assert sent.status == 0

    def told(run):
        found = []
        for words in (
            ["--max-messages", "4", "--verbose", "--command-config", str(file)],
            ["--max-messages", "1", "--group-instance-id", "i", "--enable-autocommit"],
        ):
            group = ["--group-id", f"life-{run.__name__}"]
            done = run("verifiable-consumer", *server, *topic, *group, *words)
            assert done.status == 0
            events = [json.loads(line) for line in done.out.splitlines()]
            for event in events:
                assert event.pop("timestamp") > 1_700_000_000_000
            found.append([list(event.items()) for event in events])
        return found

    assert told(k) == told(apache)


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
    """Assert that both outputs have the same form for a program that parses them; {} becomes a
    unique name."""
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
