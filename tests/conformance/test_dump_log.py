"""Test Apache's kafka-dump-log on our files, and `k dump-log` against it on our files and
Apache's."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kserver.wire.batch import batches
from tests.support import apache_kafka
from tests.support.brokers import QUICK_START
from tests.support.tools import K, require

TIMEOUT_S = 120


def printed(command, *words):
    environment = os.environ | {"KAFKA_JVM_PERFORMANCE_OPTS": QUICK_START}
    done = subprocess.run(
        [*command, *words], capture_output=True, timeout=TIMEOUT_S, env=environment
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode(errors="replace")


def apache(version, *words):
    require("java")
    tool = (sys.executable, apache_kafka.__file__, "tool", version, "kafka-dump-log")
    return printed(tool, *words)


def batches_in(filled):
    return [b for path in filled.files(".log") for b in batches(Path(path).read_bytes())]


@pytest.mark.parametrize("version", ["4.3.1", "3.9.2"])
def test_apache_reads_every_record_of_our_segments_and_finds_nothing_wrong(ours, version):
    out = apache(version, "--deep-iteration", "--files", ",".join(ours.files(".log")))
    stored = batches_in(ours)
    assert out.count("isvalid: true") == len(stored)
    assert out.count("| offset: ") == sum(ours.topics.values())
    assert "Found" not in out
    assert "isvalid: false" not in out
    codecs = set(re.findall(r"compresscodec: (\w+)", out))
    assert codecs == {"none", "gzip", "snappy", "lz4", "zstd"}


def test_apache_finds_our_indexes_sane_and_true(ours):
    indexes = ours.files(".index") + ours.files(".timeindex")
    assert len(ours.files(".index")) >= len(ours.topics) + 3
    out = apache("4.3.1", "--index-sanity-check", "--files", ",".join(indexes))
    assert out.count("passed sanity check.") + out.count("is empty.") == len(indexes)
    out = apache("4.3.1", "--verify-index-only", "--files", ",".join(indexes))
    said = [line for line in out.splitlines() if line]
    assert all(line.startswith("Dumping ") or line.endswith(" is empty.") for line in said)


def test_apache_reads_the_producers_in_our_snapshots(ours):
    snapshots = ours.files(".snapshot")
    assert snapshots
    out = apache("4.3.1", "--files", ",".join(snapshots))
    told = set(re.findall(r"producerId: (\d+)", out))
    wrote = {str(batch.producer_id) for batch in batches_in(ours) if batch.producer_id >= 0}
    assert told == wrote


@pytest.mark.parametrize("whose", ["ours", "apaches"])
@pytest.mark.parametrize(
    ("words", "suffixes"),
    [
        ((), (".log", ".index", ".timeindex", ".snapshot")),
        (("--deep-iteration",), (".log",)),
        (("--print-data-log",), (".log",)),
        (("--index-sanity-check",), (".index", ".timeindex")),
        (("--verify-index-only",), (".index", ".timeindex")),
    ],
    ids=lambda value: " ".join(value),
)
def test_k_prints_what_apache_prints(request, whose, words, suffixes):
    filled = request.getfixturevalue(whose)
    files = [path for suffix in suffixes for path in filled.files(suffix)]
    words = (*words, "--files", ",".join(files))
    assert printed(K, "dump-log", *words).splitlines() == apache("4.3.1", *words).splitlines()


@pytest.mark.parametrize(
    ("topic", "decoder"),
    [
        ("__consumer_offsets", "offsets"),
        ("__transaction_state", "transaction-log"),
        ("__cluster_metadata", "cluster-metadata"),
    ],
)
def test_k_decodes_what_apaches_coordinators_and_controllers_keep(apaches, topic, decoder):
    logs = sorted(apaches.broker.data.glob(f"{topic}-*/*.log"))
    words = ("--files", ",".join(str(log) for log in logs if log.stat().st_size))
    words += (f"--{decoder}-decoder",)
    ours = printed(K, "dump-log", *words)
    assert ours == apache("4.3.1", *words)
    assert "payload: {" in ours
    assert "Error at" not in ours
