"""Test that `k` and Apache's script dump files of Apache's brokers and of ours the same way."""

from __future__ import annotations

import pytest

from tests.support.process import BrokerProcess
from tests.support.side_by_side import (
    NEW,
    apache,
    k,
)
from tests.support.tools import require

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
    """A copy is dumped, because the broker continues to write to the file."""
    copy = tmp_path / "00000000000000000000.log"
    original = broker.data / "__cluster_metadata-0" / copy.name
    copy.write_bytes(original.read_bytes())
    ours, theirs = (
        run("dump-log", "--deep-iteration", "--files", str(copy)) for run in (k, apache)
    )
    assert (ours.status, ours.out) == (theirs.status, theirs.out)
    assert b"LeaderChange: {" in ours.out


@pytest.fixture(scope="module")
def our_segments(tmp_path_factory):
    """Files of one partition of our broker: many segments, all codecs, after a clean stop."""
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
