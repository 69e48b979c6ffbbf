"""A log directory that is removed under a running broker is offline at once, and stays gone."""

from __future__ import annotations

import shutil

from kserver.errors import ErrorCode
from tests.contract.api.calls import Topic, batch, produce, topic_id
from tests.fault.test_disk_fails import described, topics_on
from tests.fault.test_disk_full import values
from tests.support.brokers import create_topic, until
from tests.support.process import BrokerProcess
from tests.support.wire_client import WireClient

FAILED = ErrorCode.kafka_storage_error


def remove(directory):
    """At once: the broker may be writing there.

    A write that has begun ends under the new name, so a file may come and go during the removal.
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
        # Whether it is looked for, or a checkpoint is written there, comes first by chance.
        assert f"all log directories have failed: {broker.data}" in broker.output[-1]
        assert "No such file" in broker.output[-1] or "It was removed" in broker.output[-1]
        assert not any("Traceback" in line for line in broker.output), "".join(broker.output)


def test_of_two_directories_the_other_goes_on(tmp_path):
    kept, removed = tmp_path / "kept", tmp_path / "removed"
    with BrokerProcess(tmp_path, {"log.dirs": f"{kept},{removed}"}) as broker:
        sound, lost = topics_on(broker, kept, removed)
        with WireClient(broker.address) as client:
            for topic in (sound, lost):
                assert produce(client, 9, topic, batch(b"first")).error_code is ErrorCode.none
            remove(removed)
            # Each new partition would be made there, which has the fewest.
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
