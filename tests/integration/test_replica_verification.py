"""Test `k replica-verification` on three brokers: with equal replicas, with a corrupted replica,
and with an unavailable broker."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from kserver.wire.batch import CRC_START, HEADER_SIZE
from tests.support.opened_cluster import opened_cluster
from tests.support.tools import K, require
from tests.support.verifications import OURS, QUICK, apache_s, until, verifying

PATIENCE_S = 100
SETTINGS = {"zookeeper.session.timeout.ms": 2000, "auto.leader.rebalance.enable": "false"}
RECORDS = 30
CRC_AT, VALUE_AT = CRC_START - 4, HEADER_SIZE + 8


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with opened_cluster(tmp_path_factory.mktemp("cluster"), 3, SETTINGS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def k(cluster):
    def run(command, *words, input=""):
        words = [*K, command, "--bootstrap-server", cluster.bootstrap_servers, *words]
        done = subprocess.run(
            words, input=input, capture_output=True, text=True, timeout=PATIENCE_S
        )
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.fixture(scope="module")
def changed(cluster, k):
    """Three topics led by broker 1. While broker 3 was stopped, one bit of two of its logs was
    flipped, in a checksum and in a record."""
    topics = {"sound": None, "stamped": CRC_AT, "rotten": VALUE_AT}
    for topic in topics:
        made = k("topics", "--create", "--topic", topic, "--replica-assignment", "1:2:3")
        assert made[0] == 0, made
        for number in range(RECORDS // 10):
            lines = "\n".join(f"{number} {one}" for one in range(10))
            acks = ("--request-required-acks", "all")
            assert k("console-producer", "--topic", topic, *acks, input=lines)[0] == 0
        cluster.wait_in_sync(topic)
    cluster.stop(3)
    for topic, at in topics.items():
        if at is not None:
            path = cluster.directory / "broker-3" / f"{topic}-0" / f"{0:020}.log"
            with path.open("r+b") as file:
                file.seek(at)
                (byte,) = file.read(1)
                file.seek(at)
                file.write(bytes([byte ^ 1]))
    cluster.start(3)
    for topic in topics:
        cluster.wait_in_sync(topic)
    return cluster


def ours(cluster, *words):
    return verifying(
        [*K, "replica-verification"], "--broker-list", cluster.bootstrap_servers, *words
    )


def test_sound_replicas_have_no_lag_and_nothing_else_is_told(changed):
    with ours(changed, "--topics-include", "sound", "--time", "-2", *QUICK) as (_, lines):
        told = until(lines, "max lag is 0")
        told += until(lines, "max lag is 0")
    assert told[0] == "verification process is started"
    assert told[-1] == f"max lag is 0 for partition sound-0 at offset {RECORDS} among 1 partitions"
    assert not [one for one in told if "unmatched" in one or "doesn't match" in one]


@pytest.mark.parametrize("topic", ["stamped", "rotten"])
def test_a_replica_that_differs_is_told_once_and_the_rest_is_verified(changed, topic):
    with ours(changed, "--topics-include", topic, "--time", "-2", *QUICK) as (_, lines):
        told = until(lines, "max lag is 0")
        told += until(lines, "max lag is 0")
    (differs,) = [one for one in told if "max lag" not in one and "started" not in one]
    found = re.fullmatch(
        f"partition {topic}-0 has unmatched checksum at offset 9; replica 1's checksum "
        r"(\d+); replica 3's checksum (\d+)",
        differs,
    )
    assert found is not None, differs
    assert found[1] != found[2]
    assert f"at offset {RECORDS} among 1" in told[-1]


@pytest.mark.parametrize("topic", ["sound", "stamped"])
def test_kafkas_script_says_the_same(changed, topic):
    """Compare the output for a topic with different stored checksums and for one with equal
    replicas; Kafka's script does not detect changed record bytes."""
    require("java")
    words = ("--topics-include", topic, "--time", "-2", "--broker-list")
    words = (*words, changed.bootstrap_servers, *QUICK)
    ends = f"max lag is 0 for partition {topic}-0 at offset {RECORDS} among 1 partitions"
    with verifying(apache_s(), *words) as (_, lines):
        theirs = until(lines, ends)
    with verifying(OURS, *words) as (_, lines):
        mine = until(lines, ends)
    assert [one for one in mine if "max lag is" not in one or one == ends] == [
        one for one in theirs if "max lag is" not in one or one == ends
    ]


def test_sums_tell_which_replica_differs(changed, k):
    status, out, err = k("replica-verification", "--sums", "--topics-include", "sound")
    assert (status, err) == (0, "")
    lines = [line.split("\t") for line in out.splitlines()]
    assert [line[:3] for line in lines] == [
        ["sound-0", f"replica: {id}", f"offsets: 0 to {RECORDS}"] for id in (1, 2, 3)
    ]
    assert len({(line[3], line[4]) for line in lines}) == 1
    words = ("--sums", "--topics-include", "rotten|sound", "-o", "jsonl")
    status, out, err = k("replica-verification", *words)
    rows = [json.loads(line) for line in out.splitlines()]
    assert (status, err, len(rows)) == (3, "", 6)
    differing = [(row["topic"], row["replica"]) for row in rows if row["differs"]]
    assert differing == [("rotten", 3)]
    assert {row["bytes"] for row in rows if row["topic"] == "sound"} == {
        (changed.directory / "broker-1" / "sound-0" / f"{0:020}.log").stat().st_size
    }


def test_small_fetches_sum_up_the_same(changed, k):
    words = ("--sums", "--topics-include", "sound")
    whole = k("replica-verification", *words)
    assert k("replica-verification", *words, "--fetch-size", "1") == whole


def test_what_cannot_be_done_is_told_in_a_line(k):
    for words, status, told in (
        (("--topics-include", "none"), 1, "No topics found. --topics-include, if specified, is "),
        (("--topics-include", "("), 1, "( is an invalid regex: a group ( is not closed by )"),
        (("--fetch-size", "0"), 2, "--fetch-size must be at least 1, not 0"),
        (("--max-wait-ms", "-1"), 2, "--max-wait-ms must be at least 0, not -1"),
        (("--time", "x"), 2, "Cannot parse argument 'x' of option time"),
        (("-o", "json"), 2, "--output is only allowed with --sums"),
        (("--sums", "--time", "-2"), 2, "can't be used with option"),
    ):
        found, out, err = k("replica-verification", *words)
        assert (found, out) == (status, "")
        assert err.startswith("k replica-verification: ")
        assert told in err.splitlines()[0]


def test_a_broker_that_is_not_there_delays_what_it_has(changed, k):
    changed.kill(2)
    try:
        words = ("--topics-include", "sound", "--time", "-2", *QUICK)
        with ours(changed, *words) as (process, lines):
            told = until(lines, f"max lag is {RECORDS} ")
            assert told[-1].endswith(" for partition sound-0 at offset 0 among 1 partitions")
            status, out, err = k("replica-verification", "--sums", *words[:2])
            assert (status, out.count("sha256")) == (1, 2)
            assert "k replica-verification: sound-0, replica 2: " in err
            changed.start(2)
            until(lines, f"max lag is 0 for partition sound-0 at offset {RECORDS} ")
            process.terminate()
            assert "k replica-verification: replica 2: " in process.stderr.read()
    finally:
        if 2 not in changed.running:
            changed.start(2)
