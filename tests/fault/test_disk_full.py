"""Test a broker on a full file system: which requests fail, which are served, and which data is
readable once space is free again.

Mounts a tmpfs, which needs root on Linux. Where that is not possible the tests are skipped; in CI
they fail.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

import pytest

from kserver.errors import ErrorCode
from kserver.log.checkpoint import LOG_STARTS, decode_offsets
from kserver.model import TopicPartition
from kserver.wire.api_key import ApiKey
from kserver.wire.batch import batches
from tests.contract.api.calls import Topic, batch, fetch, produce, topic_id
from tests.support.brokers import create_topic, until
from tests.support.process import BrokerProcess
from tests.support.wire_client import WireClient, milliseconds

PAGE_BYTES = 4096
NO_SPACE = "No space left on device"
VALUE = os.urandom(20_000)


class SmallDisk:
    """A tmpfs of `size_bytes` bytes."""

    def __init__(self, path, size_bytes):
        path.mkdir()
        self.path = path
        self._mount(f"size={size_bytes}")

    def _mount(self, options):
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.path)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            reason = f"no tmpfs can be mounted here: {done.stderr.strip()}"
            pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)

    def resize(self, size_bytes):
        self._mount(f"remount,size={size_bytes}")

    def unmount(self):
        subprocess.run(["umount", "--lazy", str(self.path)], check=True)


@pytest.fixture
def disk(tmp_path):
    disk = SmallDisk(tmp_path / "small", 4 << 20)
    yield disk
    disk.unmount()


def fill(client, topic):
    """Produce until a request fails; return the acknowledged values and the error code."""
    acked = []
    while True:
        value = b"%d " % len(acked) + VALUE
        answer = produce(client, 9, topic, batch(value))
        if answer.error_code is not ErrorCode.none:
            return acked, answer.error_code
        assert answer.base_offset == len(acked)
        acked.append(value)


def values(client, topic):
    found = []
    while True:
        answer = fetch(client, 12, topic, len(found))
        assert answer.error_code is ErrorCode.none
        if not answer.records:
            return found
        for one in batches(answer.records):
            found += [r.value for r in one.records() if r.offset >= len(found)]


def log_starts(broker):
    """Return what is on disk."""
    path = broker.data / LOG_STARTS
    return decode_offsets(path.read_bytes(), str(path)) if path.exists() else {}


def test_the_only_directory_is_full(tmp_path, disk):
    """Produce fails and fetch succeeds; with free space, produce works again without a restart."""
    broker = BrokerProcess(tmp_path, {"log.dirs": disk.path / "data"})
    with broker:
        name = create_topic(broker.address, "t", segment_bytes=1 << 20)
        with WireClient(broker.address) as client:
            topic = Topic(name, topic_id(client, name))
            acked, error = fill(client, topic)
            assert error is ErrorCode.kafka_storage_error
            assert len(acked) > 50
            assert values(client, topic) == acked
            assert fill(client, topic) == ([], ErrorCode.kafka_storage_error)
            until(lambda: any(" is full; " in line for line in broker.output))
            told = [line for line in broker.output if " is full; " in line]
            assert len(told) == 1
            assert NO_SPACE in told[0]
            assert str(broker.data) in told[0]

            disk.resize(32 << 20)
            assert produce(client, 9, topic, batch(b"on")).base_offset == len(acked)
            until(lambda: any("has free space again" in line for line in broker.output))
        broker.kill()
        broker.start()
        with WireClient(broker.address) as client:
            assert values(client, topic) == [*acked, b"on"]
        assert broker.stop() == 0
        assert not any("Traceback" in line for line in broker.output), "".join(broker.output)


def test_deleted_records_make_room(tmp_path, disk):
    settings = {"log.dirs": disk.path / "data", "log.retention.check.interval.ms": 100}
    config = {"segment_bytes": 1 << 20, "retention_ms": -1, "file_delete_delay_ms": 0}
    with BrokerProcess(tmp_path, settings) as broker:
        name = create_topic(broker.address, "t", **config)
        with WireClient(broker.address) as client:
            topic = Topic(name, topic_id(client, name))
            acked, _ = fill(client, topic)
            deleted = [{"partition_index": 0, "offset": 100}]
            topics = [{"name": name, "partitions": deleted}]
            answer = client.call(
                ApiKey.DELETE_RECORDS, 2, topics=topics, timeout=milliseconds(9000)
            )
            assert answer.topics[0].partitions[0].low_watermark == 100
            on = batch(VALUE)
            until(lambda: produce(client, 9, topic, on).error_code is ErrorCode.none)
            until(lambda: log_starts(broker) == {TopicPartition(name, 0): 100})
            broker.kill()
        broker.start()
        with WireClient(broker.address) as client:
            first = fetch(client, 12, topic, 100)
            assert first.log_start_offset == 100
            (record, *_), *_ = (one.records() for one in batches(first.records))
            assert (record.offset, record.value) == (100, acked[100])


def test_one_of_two_directories_is_full(tmp_path, disk):
    """Produce fails for the partitions on the full directory and succeeds for the others."""
    broker = BrokerProcess(tmp_path, {"log.dirs": f"{tmp_path / 'data'},{disk.path / 'data'}"})
    with broker:
        topics = {}
        with WireClient(broker.address) as client:
            for number in range(4):
                name = create_topic(broker.address, f"t{number}", segment_bytes=1 << 20)
                topics[name] = Topic(name, topic_id(client, name))
            small = [
                topic for name, topic in topics.items() if (disk.path / f"data/{name}-0").exists()
            ]
            large = [topic for topic in topics.values() if topic not in small]
            assert len(small) == len(large) == 2
            kept, more = batch(b"kept"), batch(VALUE)
            for topic in topics.values():
                assert produce(client, 9, topic, kept).error_code is ErrorCode.none
            full, beside = small
            acked = 0
            while produce(client, 9, full, more).error_code is ErrorCode.none:
                acked += 1
            # A record of the other partition may still fit where one of the first did not.
            acked_beside = 0
            while produce(client, 9, beside, more).error_code is ErrorCode.none:
                acked_beside += 1
            for topic in small:
                assert produce(client, 9, topic, more).error_code is ErrorCode.kafka_storage_error
                assert fetch(client, 12, topic, 0).error_code is ErrorCode.none
            for topic in large:
                assert produce(client, 9, topic, kept).base_offset == 1
                assert values(client, topic) == [b"kept", b"kept"]

            # New partitions are created in the directory with free space.
            leave_pages(0, disk.path / "filler")
            for number in range(2):
                name = create_topic(broker.address, f"later{number}")
                later = Topic(name, topic_id(client, name))
                assert produce(client, 9, later, more).error_code is ErrorCode.none
                assert (tmp_path / f"data/{name}-0").exists()
                assert not (disk.path / f"data/{name}-0").exists()

            disk.resize(32 << 20)
            for topic in small:
                assert produce(client, 9, topic, more).error_code is ErrorCode.none
        assert broker.stop() == 0
        broker.start()
        with WireClient(broker.address) as client:
            assert values(client, full) == [b"kept", *[VALUE] * (acked + 1)]
            assert values(client, beside) == [b"kept", *[VALUE] * (acked_beside + 1)]
        assert not any("went offline: " in line for line in broker.output), "".join(broker.output)


@pytest.mark.parametrize("pages", [0, 1, 2])
def test_a_topic_for_which_there_is_no_room_is_as_it_was_answered_once_there_is(
    tmp_path, disk, pages
):
    """The metadata store is on the same disk, so the topic may be created before its log fails."""
    broker = BrokerProcess(tmp_path, {"log.dirs": disk.path / "data"})
    with broker:
        create_topic(broker.address, "before")
        filler = disk.path / "filler"
        leave_pages(pages, filler)
        made = None
        with WireClient(broker.address) as client, contextlib.suppress(ConnectionError):
            made = is_made(client, "t")
            # The broker continues if the log could be created; otherwise it exits.
            client.call(ApiKey.METADATA, 9, topics=None)
            is_made(client, "next")
        filler.unlink()
        try:
            status = broker.wait(1)
        except subprocess.TimeoutExpired:
            status = broker.stop()
        failed = any("went offline: " in line for line in broker.output)
        assert status == (1 if failed else 0), "".join(broker.output)
        assert not any("Traceback" in line for line in broker.output), "".join(broker.output)
        broker.start()
        with WireClient(broker.address) as client:
            there = {topic.name for topic in client.call(ApiKey.METADATA, 9, topics=None).topics}
            assert "before" in there
            if made is not None:
                assert ("t" in there) is made
            for name in ("before", "t"):
                if name not in there:
                    create_topic(broker.address, name)
                topic = Topic(name, topic_id(client, name))
                assert produce(client, 9, topic, batch(b"a")).error_code is ErrorCode.none


@pytest.mark.parametrize("stop", [BrokerProcess.stop, BrokerProcess.kill])
@pytest.mark.parametrize("due", ["a deleted topic", "deleted segments", "retention", "nothing"])
def test_a_broker_starts_on_a_full_disk_and_removes_what_is_due(tmp_path, disk, due, stop):
    """It frees space itself if it can; otherwise it serves existing data until space is freed."""
    settings = {"log.dirs": disk.path / "data", "log.retention.check.interval.ms": 3_600_000}
    if due == "deleted segments":
        settings["log.retention.check.interval.ms"] = 10
    config = {
        "segment_bytes": 1 << 18,
        "retention_ms": 1 if due == "retention" else -1,
        "file_delete_delay_ms": 3_600_000,
    }
    broker = BrokerProcess(tmp_path, settings)
    with broker, WireClient(broker.address) as client:
        kept, old = (
            Topic(name, topic_id(client, name))
            for name in (
                create_topic(broker.address, "kept", retention_ms=-1),
                create_topic(broker.address, "old", **config),
            )
        )
        for topic in (kept, *[old] * 40):
            assert produce(client, 9, topic, batch(VALUE)).error_code is ErrorCode.none
        # Leave files behind that the next start may remove.
        if due == "a deleted topic":
            client.call(ApiKey.DELETE_TOPICS, 4, topic_names=[old.name], timeout=milliseconds(9000))
        elif due == "deleted segments":
            partitions = [{"partition_index": 0, "offset": 40}]
            topics = [{"name": old.name, "partitions": partitions}]
            client.call(ApiKey.DELETE_RECORDS, 2, topics=topics, timeout=milliseconds(9000))
            until(lambda: list(broker.data.glob("old-0/*.log.deleted")))
        stop(broker)
    # No periodic check runs during the test: only the start can free space.
    settings["log.retention.check.interval.ms"] = 3_600_000
    leave_pages(0, disk.path / "filler")
    with BrokerProcess(tmp_path, settings) as broker:
        with WireClient(broker.address) as client:
            assert values(client, kept) == [VALUE]
            more = batch(VALUE)
            if due == "nothing":
                refused = produce(client, 9, kept, more)
                assert refused.error_code is ErrorCode.kafka_storage_error
                disk.resize(32 << 20)
            until(lambda: produce(client, 9, kept, more).error_code is ErrorCode.none)
            until(lambda: is_made(client, "new"))
        broker.kill()
    # Records and topic that were acknowledged on the full disk survive a kill.
    with BrokerProcess(tmp_path, settings) as broker, WireClient(broker.address) as client:
        new = Topic("new", topic_id(client, "new"))
        assert produce(client, 9, new, more).error_code is ErrorCode.none
        assert values(client, kept) == [VALUE] * 2


@pytest.mark.parametrize("restarts", [False, True], ids=["running", "restarted"])
def test_topics_can_be_deleted_on_a_full_disk(tmp_path, disk, restarts):
    """The embedded metadata store is on the full disk and has space reserved for deletions."""
    settings = {"log.dirs": disk.path / "data", "log.segment.delete.delay.ms": 0}
    broker = BrokerProcess(tmp_path, settings)
    with broker:
        with WireClient(broker.address) as client:
            kept, *old = (
                Topic(name, topic_id(client, name))
                for name in (
                    create_topic(broker.address, "kept", retention_ms=-1),
                    *(create_topic(broker.address, f"old{n}") for n in range(3)),
                )
            )
            for topic in (kept, *old * 10):
                assert produce(client, 9, topic, batch(VALUE)).error_code is ErrorCode.none
        if restarts:
            assert broker.stop() == 0
        leave_pages(0, disk.path / "filler")
        if restarts:
            broker.start()
            leave_pages(0, disk.path / "another filler")
        with WireClient(broker.address) as client:
            names = [topic.name for topic in old]
            answer = client.call(
                ApiKey.DELETE_TOPICS, 4, topic_names=names, timeout=milliseconds(9000)
            )
            assert {one.error_code for one in answer.responses} == {ErrorCode.none}
            more = batch(VALUE)
            until(lambda: produce(client, 9, kept, more).error_code is ErrorCode.none)
        broker.kill()
        broker.start()
        with WireClient(broker.address) as client:
            assert values(client, kept) == [VALUE] * 2
            topics = client.call(ApiKey.METADATA, 9, topics=None).topics
            assert [topic.name for topic in topics] == ["kept"]


def leave_pages(pages, filler):
    """Fill the disk except for `pages` pages; the broker may write at the same time."""
    with filler.open("wb", buffering=0) as file:
        with contextlib.suppress(OSError):
            while True:
                file.write(bytes(PAGE_BYTES))
        file.truncate(file.tell() - pages * PAGE_BYTES)


def is_made(client, name):
    topics = [{"name": name, "num_partitions": 1, "replication_factor": 1}]
    answer = client.call(ApiKey.CREATE_TOPICS, 5, topics=topics, timeout=milliseconds(5000))
    return answer.topics[0].error_code is ErrorCode.none


FILL_EACH = """
import sys
from kserver.config.topic import TopicConfig
from kserver.errors import StorageError
from tests.support.clock import DAY_ONE_MS
from tests.support.logs import batch, open_log, read_all
from kserver.world.disk import OsDisk

disk, root = OsDisk(), sys.argv[1]
config = TopicConfig(segment_bytes=40_000, index_interval_bytes=1, segment_index_bytes=20_000)
for pages in range(30):
    directory = f"{root}/{pages}/topic-0"
    log = open_log(disk, config, directory=directory)
    filler = disk.open(f"{root}/filler", create=True)
    filler.write_at(0, bytes(max(0, disk.free_bytes(root) - pages * 4096)))
    acked = 0
    try:
        while True:
            log.append_as_leader(batch(1, size=1 + acked % 50), 0, DAY_ONE_MS + acked)
            acked += 1
    except StorageError as error:
        assert "No space left on device" in str(error), error
    filler.truncate(0)
    log = open_log(disk, config, directory=directory)
    records = read_all(log)
    assert acked <= len(records) <= acked + 1, (pages, acked, len(records))
    log.append_as_leader(batch(1), 0, DAY_ONE_MS)
    log.check()
    disk.remove_tree(f"{root}/{pages}")
print("filled")
"""


def test_whichever_page_has_no_room_the_log_says_so(disk):
    """Indexes are memory-mapped: without a check, a full page would end the process with SIGBUS."""
    done = subprocess.run(
        [sys.executable, "-c", FILL_EACH, str(disk.path)], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "filled\n"), done.stderr
