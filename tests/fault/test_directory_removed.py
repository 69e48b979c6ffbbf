"""Test log directories that are removed while the broker runs, or are missing or empty when it
starts.

A directory removed at run time goes offline at once and is not recreated. One that is missing or
empty at the start, for example because its disk is not mounted, is not treated as new.
"""

from __future__ import annotations

import shutil

from kserver.errors import ErrorCode
from tests.contract.api.calls import Topic, batch, fetch, produce, topic_id
from tests.fault.test_disk_fails import described, topics_on
from tests.fault.test_disk_full import values
from tests.support.brokers import create_topic, until
from tests.support.process import BrokerProcess
from tests.support.side_by_side import k
from tests.support.wire_client import WireClient

FAILED = ErrorCode.kafka_storage_error


def remove(directory):
    """Rename the directory away at once, then delete it, because the broker may be writing to it.

    A write in progress continues under the new name, so files may appear and vanish during the
    removal.
    """
    gone = directory.rename(directory.with_name("gone"))
    while gone.exists():
        shutil.rmtree(gone, ignore_errors=True)


def test_without_its_only_directory_the_broker_ends(tmp_path):
    with BrokerProcess(tmp_path) as broker:
        create_topic(broker.address, "t")
        remove(broker.data)
        assert broker.wait(30) == 1
        assert not broker.data.exists()
        # Either the directory check or a checkpoint write fails first, depending on timing.
        assert f"all log directories have failed: {broker.data}" in broker.output[-1]
        assert "No such file" in broker.output[-1] or "was removed while" in broker.output[-1]
        assert not any("Traceback" in line for line in broker.output), "".join(broker.output)


def test_of_two_directories_the_other_goes_on(tmp_path):
    kept, removed = tmp_path / "kept", tmp_path / "removed"
    with BrokerProcess(tmp_path, {"log.dirs": f"{kept},{removed}"}) as broker:
        sound, lost = topics_on(broker, kept, removed)
        with WireClient(broker.address) as client:
            for topic in (sound, lost):
                assert produce(client, 9, topic, batch(b"first")).error_code is ErrorCode.none
            remove(removed)
            # New partitions would be placed in the removed directory, which has the fewest.
            for number in range(4):
                create_topic(broker.address, f"new{number}")
            until(lambda: described(client)[str(removed)] is FAILED)
            assert produce(client, 9, lost, batch(b"no")).error_code is FAILED
            assert produce(client, 9, sound, batch(b"on")).base_offset == 1
            assert values(client, sound) == [b"first", b"on"]
            name = create_topic(broker.address, "after")
            after = Topic(name, topic_id(client, name))
            assert produce(client, 9, after, batch(b"on")).base_offset == 0
        assert not removed.exists()
        assert broker.stop() == 0


def test_with_no_directory_that_can_be_used_there_is_no_start(tmp_path):
    with BrokerProcess(tmp_path) as broker:
        broker.stop()
        (broker.data / "recovery-point-offset-checkpoint").mkdir()
        try:
            broker.start()
        except RuntimeError:
            assert "all log directories have failed" in broker.output[-1]
        else:
            raise AssertionError("it started")


def test_a_stop_that_is_not_clean_says_so(tmp_path):
    with BrokerProcess(tmp_path) as broker:
        create_topic(broker.address, "t")
        (broker.data / "log-start-offset-checkpoint.tmp").mkdir()
        assert broker.stop() == 1
        assert f"k server-start: {broker.data} was not closed cleanly" in broker.output[-1]
        (broker.data / "log-start-offset-checkpoint.tmp").rmdir()
        broker.start()
        assert broker.stop() == 0


def test_a_disk_that_is_not_mounted_is_not_taken_for_an_empty_one(tmp_path):
    kept, disk = tmp_path / "kept", tmp_path / "disk"
    with BrokerProcess(tmp_path, {"log.dirs": f"{kept},{disk}"}) as broker:
        sound, lost = topics_on(broker, kept, disk)
        with WireClient(broker.address) as client:
            for topic in (sound, lost):
                assert produce(client, 9, topic, batch(b"first")).error_code is ErrorCode.none
        assert broker.stop() == 0
        disk.rename(tmp_path / "unmounted")
        disk.mkdir()
        for _ in range(2):
            told = len(broker.output)
            broker.start()
            with WireClient(broker.address) as client:
                assert produce(client, 9, lost, batch(b"no")).error_code is FAILED
                assert fetch(client, 12, lost, 0).error_code is FAILED
                assert values(client, sound)[:1] == [b"first"]
                assert produce(client, 9, sound, batch(b"on")).error_code is ErrorCode.none
            output = "".join(broker.output[told:])
            assert f"{lost.name}-0: log is missing, the partition stays offline: " in output
            assert "its log is in none of the log.dirs" in output
            assert f": {disk}. Mount the disk" in output
            # New partitions are created in the directory that is online.
            name = create_topic(broker.address, f"new{told}")
            with WireClient(broker.address) as client:
                new = Topic(name, topic_id(client, name))
                assert produce(client, 9, new, batch(b"on")).base_offset == 0
            assert broker.stop() == 0
        for path in list(disk.glob("new*-0")):
            shutil.move(path, kept / path.name)
        shutil.rmtree(disk)
        (tmp_path / "unmounted").rename(disk)
        broker.start()
        with WireClient(broker.address) as client:
            assert values(client, lost) == [b"first"]
            assert produce(client, 9, lost, batch(b"on")).base_offset == 1
        assert broker.stop() == 0


def test_a_partition_that_was_removed_begins_empty_only_where_the_loss_is_accepted(tmp_path):
    with BrokerProcess(tmp_path) as broker:
        name = create_topic(broker.address, "t")
        with WireClient(broker.address) as client:
            topic = Topic(name, topic_id(client, name))
            for _ in range(3):
                assert produce(client, 9, topic, batch(b"lost")).error_code is ErrorCode.none
        assert broker.stop() == 0
        shutil.rmtree(broker.data / "t-0")
        words = ("storage", "accept-loss", "--override", f"log.dirs={broker.data}")
        words += ("--topic", "t", "--partition", "0")
        broker.start()
        with WireClient(broker.address) as client:
            assert produce(client, 9, topic, batch(b"no")).error_code is FAILED
        (line,) = [line for line in broker.output if "t-0: log is missing" in line]
        assert f"{broker.data}/t-0 is missing" in line
        assert "its records before offset 3 would be lost" in line
        assert "k storage accept-loss --topic t --partition 0" in line
        refused = k(*words)
        assert (refused.status, refused.out) == (1, b"")
        assert b"is used by another broker" in refused.err
        assert broker.stop() == 0
        accepted = k(*words)
        assert (accepted.status, accepted.err) == (0, b"")
        told = f"t-0 starts empty at offset 3, in {broker.data}/t-0.\n"
        assert accepted.out.decode() == told
        broker.start()
        with WireClient(broker.address) as client:
            assert produce(client, 9, topic, batch(b"on")).base_offset == 3
        assert broker.stop() == 0
