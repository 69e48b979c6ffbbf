"""Test a metadata store that is older than the logs, missing, truncated or from another cluster: no
log is lost."""

from __future__ import annotations

import re

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kserver.wire.batch import batches
from tests.support.brokers import append, create_topic, stored, until
from tests.support.process import BrokerProcess
from tests.support.side_by_side import k
from tests.support.wire_client import WireClient

STORE = "coordination.msgpack"


def test_a_log_whose_topic_the_store_has_forgotten_is_set_aside_when_its_name_is_taken(tmp_path):
    with BrokerProcess(tmp_path, {"log.segment.delete.delay.ms": 0}) as broker:
        broker.stop()
        store = broker.data / STORE
        before = store.read_bytes()
        broker.start()
        create_topic(broker.address, "t")
        append(broker.address, "t", [(1, None, b"precious", ())])
        broker.stop()
        store.write_bytes(before)

        broker.start()
        await_line(broker, "t-0: no replica is assigned to this broker")
        await_line(broker, "rebuild it with k storage rebuild")
        create_topic(broker.address, "t")
        assert stored(broker, "t") == []
        (aside,) = (path for path in broker.data.iterdir() if path.name.endswith("-stray"))
        assert re.fullmatch(r"t-0\.[0-9a-f]{32}-stray", aside.name)
        await_line(broker, f"the log was renamed to {aside}")

        # It still exists after another restart, which logs its path.
        append(broker.address, "t", [(1, None, b"new", ())])
        broker.restart()
        (kept,) = batches((aside / f"{0:020d}.log").read_bytes())
        assert [record.value for record in kept.records()] == [b"precious"]
        await_line(broker, f"ignoring {aside}, a log that was set aside")
        (fresh,) = stored(broker, "t")
        assert [record.value for record in fresh.records()] == [b"new"]


def await_line(broker, text):
    until(lambda: any(text in line for line in broker.output))


def rebuild(broker):
    return k("storage", "rebuild", "--override", f"log.dirs={broker.data}")


def refusal_of(broker):
    """Start the broker, which must fail; return the last line of its output."""
    with pytest.raises(RuntimeError):
        broker.start()
    assert broker.process.returncode == 1
    assert not any("Traceback" in line for line in broker.output)
    return broker.output[-1]


def test_a_store_that_is_gone_is_made_anew_from_the_logs(tmp_path):
    settings = {"offsets.topic.num.partitions": 2, "transaction.state.log.num.partitions": 2}
    with BrokerProcess(tmp_path, settings) as broker:
        create_topic(broker.address, "t", 3, retention_ms=3_600_000)
        append(broker.address, "t", [(1, None, b"old", ())])
        create_topic(broker.address, "empty")
        client = Producer({"bootstrap.servers": broker.address, "transactional.id": "x"})
        client.init_transactions()
        client.begin_transaction()
        client.produce("t", b"committed", partition=0)
        client.commit_transaction()
        commit(broker, "g", "t", 1)
        before = ids(broker)
        broker.stop()
        store = broker.data / STORE
        store.rename(tmp_path / "kept")

        reason = refusal_of(broker)
        assert reason.startswith(f"k server-start: {store}")
        assert " is missing" in reason
        assert "k storage rebuild" in reason
        assert not store.exists()

        done = rebuild(broker)
        assert (done.status, done.err) == (0, b"")
        assert b"t: 3 partition(s)\n" in done.out
        broker.start()
        assert ids(broker) == before
        values = [record.value for one in stored(broker, "t") for record in one.records()]
        assert [value for value in values if value in (b"old", b"committed")] == [
            b"old",
            b"committed",
        ]
        assert committed(broker, "g", "t") == 1
        # A new producer gets an id that is not in the logs yet.
        client = Producer({"bootstrap.servers": broker.address, "transactional.id": "y"})
        client.init_transactions()
        client.begin_transaction()
        client.produce("t", b"new", partition=0)
        client.commit_transaction()
        producers = {one.producer_id for one in stored(broker, "t") if one.producer_id >= 0}
        assert len(producers) == 2
        append(broker.address, "t", [(1, None, b"on", ())])

        running = rebuild(broker)
        assert running.status == 1
        assert b"already exists: move it away first" in running.err
        assert broker.stop() == 0


def ids(broker):
    with WireClient(broker.address) as client:
        answer = client.call(3, 12, topics=None)
        topics = {t.name: (t.topic_id, len(t.partitions)) for t in answer.topics}
        return answer.cluster_id, topics


def commit(broker, group, topic, offset):
    settings = {"bootstrap.servers": broker.address, "group.id": group}
    consumer = Consumer(settings)
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def committed(broker, group, topic):
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": group})
    (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=60)
    consumer.close()
    return found.offset


def test_a_rebuild_is_refused_beside_a_broker_and_without_logs(tmp_path):
    with BrokerProcess(tmp_path) as broker:
        store = broker.data / STORE
        kept = store.rename(tmp_path / "kept")
        refused = rebuild(broker)
        assert refused.status == 1
        assert b"is used by another broker" in refused.err
        assert not store.exists()
        kept.rename(store)
    broker.settings["log.dirs"] = tmp_path / "nowhere"
    refused = rebuild(broker)
    assert refused.status == 1
    assert b"does not exist: name the log.dirs" in refused.err
    assert not broker.data.exists()


@pytest.mark.parametrize("share", [0, 0.3, 0.999])
def test_a_store_that_is_cut_after_a_clean_stop_is_refused(tmp_path, share):
    with BrokerProcess(tmp_path) as broker:
        for number in range(3):
            create_topic(broker.address, f"t{number}")
        broker.stop()
        store = broker.data / STORE
        whole = store.read_bytes().rstrip(b"\0")  # without its reserved space
        store.write_bytes(whole[: int(len(whole) * share)])
        reason = refusal_of(broker)
        assert str(store) in reason
        assert "k storage rebuild" in reason
        store.unlink()
        assert rebuild(broker).status == 0
        broker.start()
        assert set(ids(broker)[1]) == {"t0", "t1", "t2"}
        assert broker.stop() == 0


def test_a_store_of_another_cluster_is_named_as_that(tmp_path):
    with BrokerProcess(tmp_path / "a") as broker, BrokerProcess(tmp_path / "b") as other:
        other.stop()
        broker.stop()
        (broker.data / STORE).write_bytes((other.data / STORE).read_bytes())
        reason = refusal_of(broker)
        assert "doesn't match stored clusterId" in reason
        assert "The metadata store belongs to another cluster" in reason
        assert "k storage rebuild" in reason
        assert "zookeeper.connect" not in reason
