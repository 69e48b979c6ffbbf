"""Test segments and indexes that are missing or overwritten after a clean stop: the damaged
partition is offline until its file is restored, other partitions are served."""

from __future__ import annotations

import shutil

import pytest

from kserver.errors import ErrorCode
from tests.contract.api.calls import Topic, batch, fetch, produce, topic_id
from tests.fault.test_disk_full import values
from tests.support.brokers import create_topic
from tests.support.process import BrokerProcess
from tests.support.wire_client import WireClient

RECORDS = 30
VALUES = [b"%03d" % n * 100 for n in range(RECORDS)]


@pytest.fixture
def written(tmp_path):
    """A stopped broker, and two topics of several segments."""
    with BrokerProcess(tmp_path) as broker:
        topics = []
        for name in ("spoilt", "sound"):
            create_topic(broker.address, name, segment_bytes=2000, index_interval_bytes=500)
            with WireClient(broker.address) as client:
                topic = Topic(name, topic_id(client, name))
                for value in VALUES:
                    assert produce(client, 9, topic, batch(value)).error_code is ErrorCode.none
            topics.append(topic)
        assert broker.stop() == 0
        yield broker, *topics


def logs_of(broker, topic):
    return sorted((broker.data / f"{topic.name}-0").glob("*.log"))


@pytest.mark.parametrize("which", [1, -1], ids=["middle", "last"])
def test_a_partition_that_misses_a_segment_is_refused_and_the_others_serve(written, which):
    broker, spoilt, sound = written
    segment = logs_of(broker, spoilt)[which]
    kept = broker.directory / "kept"
    shutil.move(segment, kept)
    for _ in range(2):
        told = len(broker.output)
        broker.start()
        with WireClient(broker.address) as client:
            assert produce(client, 9, spoilt, batch(b"no")).error_code is REFUSED
            assert fetch(client, 12, spoilt, 0).error_code is REFUSED
            assert values(client, sound)[:RECORDS] == VALUES
            assert produce(client, 9, sound, batch(b"on")).error_code is ErrorCode.none
        (line,) = [line for line in broker.output[told:] if "spoilt-0: log is damaged" in line]
        assert f"offsets {int(segment.stem)} to " in line
        assert "Restore the files from a backup" in line
        assert broker.stop() == 0
    shutil.move(kept, segment)
    broker.start()
    with WireClient(broker.address) as client:
        assert values(client, spoilt) == VALUES
        assert produce(client, 9, spoilt, batch(b"on")).base_offset == RECORDS
    assert broker.stop() == 0


REFUSED = ErrorCode.kafka_storage_error


@pytest.mark.parametrize("which", [1, -1], ids=["middle", "last"])
def test_an_index_of_other_bytes_leads_no_consumer_astray(written, which):
    broker, spoilt, _ = written
    path = logs_of(broker, spoilt)[which].with_suffix(".index")
    data = path.read_bytes()
    assert len(data) >= 16
    path.write_bytes(data[7:] + data[:7])
    broker.start()
    with WireClient(broker.address) as client:
        assert values(client, spoilt) == VALUES
    assert broker.stop() == 0
    assert not any("Traceback" in line for line in broker.output)
