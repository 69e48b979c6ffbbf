"""Test a broker that is killed, stopped and frozen while clients produce and fetch.

The long form of the first test is `pytest tests/soak/soak_kill.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import threading
import time
from random import Random

import pytest

from kserver.errors import ErrorCode
from kserver.log.checkpoint import RECOVERY_POINTS
from kserver.log.recovery import CLEAN_SHUTDOWN
from kserver.wire.api_key import ApiKey
from tests.contract.api.calls import Topic, batch, fetch, produce, produce_fields, topic_id
from tests.support import brokers, tools
from tests.support.brokers import create_topic
from tests.support.load import Load
from tests.support.process import BrokerProcess
from tests.support.wire_client import WireClient, milliseconds

PARTITIONS = 4
START_LIMIT_S = 3.0
SETTINGS = {
    "log.flush.offset.checkpoint.interval.ms": 100,
    "log.flush.start.offset.checkpoint.interval.ms": 100,
    "replica.high.watermark.checkpoint.interval.ms": 100,
}
"""Short intervals, so that a kill finds checkpoints in the middle of the written records."""
TOPICS = {
    "rolls often": {"segment_bytes": 200_000, "index_interval_bytes": 500},
    "flushes often": {"segment_bytes": 1 << 20, "flush_messages": 50},
    "recompresses": {"compression_type": "zstd"},
    "flushes before it answers": {"flush_before_ack": "true"},
}


@pytest.fixture
def broker(tmp_path):
    with BrokerProcess(tmp_path, SETTINGS) as broker:
        yield broker


def loaded(broker, config="rolls often", seed=0):
    topic = create_topic(broker.address, config.replace(" ", "-"), PARTITIONS, **TOPICS[config])
    found = tools.find("confluent_kafka") is not None
    return Load(broker.address, topic, PARTITIONS, seed=seed, librdkafka=found)


async def off_the_loop(work, *values):
    return await asyncio.to_thread(work, *values)


async def again_and_again(broker, load, times, seed, ways):
    """Under load, end the broker `times` times by a random one of `ways`, and restart it."""
    random = Random(seed)
    async with load:
        for _ in range(times):
            await load.progress()
            await asyncio.sleep(random.random() / 2)
            await off_the_loop(random.choice(ways), broker)
            await off_the_loop(broker.start)
            assert cpu_s(broker.pid) < START_LIMIT_S
        await load.progress()
    await load.check()


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process, which does not depend on other load on the machine."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("config", ["rolls often", "flushes before it answers"])
def test_what_was_acknowledged_outlives_kills(broker, config):
    asyncio.run(again_and_again(broker, loaded(broker, config), 3, 0, [BrokerProcess.kill]))


def test_a_kill_during_recovery_is_as_good_as_none(broker):
    """A start that is killed during recovery must keep everything that the next start needs."""

    async def scenario():
        load = loaded(broker, "flushes often", seed=1)
        async with load:
            await load.progress()
            await off_the_loop(broker.kill)
            await off_the_loop(broker.start)
            whole_start_s = cpu_s(broker.pid)
            await load.progress()
            await off_the_loop(broker.kill)
            for part in (0.7, 0.75, 0.8, 0.85, 0.9, 0.95):
                await off_the_loop(start_in_vain, broker, part * whole_start_s)
            await off_the_loop(broker.start)
            await load.progress()
        await load.check()

    asyncio.run(scenario())


def start_in_vain(broker, cpu_limit_s):
    """Start the broker, and kill it once it has used `cpu_limit_s` of CPU time."""
    before = broker.process

    def start():
        with contextlib.suppress(RuntimeError):
            broker.start()

    starting = threading.Thread(target=start)
    starting.start()
    while broker.process is before:
        time.sleep(0.001)
    while broker.process.poll() is None and cpu_s(broker.pid) < cpu_limit_s:
        time.sleep(0.001)
    broker.kill()
    starting.join()


def test_the_end_of_its_terminal_is_a_clean_stop(tmp_path):
    with BrokerProcess(tmp_path) as broker:
        broker.process.send_signal(signal.SIGHUP)
        assert broker.process.wait(60) == 0
        assert (broker.data / CLEAN_SHUTDOWN).exists()


def test_sigterm_under_load_is_a_clean_stop(broker):
    async def scenario():
        load = loaded(broker, "recompresses", seed=2)
        async with load:
            for _ in range(2):
                await load.progress()
                assert await off_the_loop(broker.stop) == 0
                assert (broker.data / CLEAN_SHUTDOWN).exists()
                await off_the_loop(broker.start)
                assert not (broker.data / CLEAN_SHUTDOWN).exists()
            await load.progress()
        await load.check()
        assert await off_the_loop(broker.stop) == 0
        assert not any("truncated from" in line for line in broker.output)

    asyncio.run(scenario())


def test_only_what_was_not_stopped_cleanly_is_checked(broker, tmp_path):
    """Detected by a corrupted record in the middle of the file, which only a full scan finds."""
    topic = create_topic(broker.address, "t")
    with WireClient(broker.address) as client:
        wanted = Topic(topic, topic_id(client, topic))
        for n in range(100):
            produce(client, 9, wanted, batch(b"%d" % n * 20))
    assert broker.stop() == 0
    (segment,) = broker.data.glob("t-0/*.log")
    flip(segment, segment.stat().st_size // 2)
    with copied(broker, tmp_path / "clean") as trusting:
        assert end_of(trusting, wanted) == 100
    (broker.data / CLEAN_SHUTDOWN).unlink()
    (broker.data / RECOVERY_POINTS).unlink()
    with copied(broker, tmp_path / "unclean") as checking:
        assert 0 < end_of(checking, wanted) < 100
        assert any(
            "truncated from" in line and str(checking.data) in line for line in checking.output
        )


def flip(path, position):
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes((byte ^ 0x10,)))


def copied(broker, directory):
    shutil.copytree(broker.data, directory / "data")
    return BrokerProcess(directory, SETTINGS)


def end_of(broker, topic):
    with WireClient(broker.address) as client:
        return fetch(client, 12, topic, 0).high_watermark


@pytest.mark.parametrize("config", ["flushes before it answers", "rolls often"])
def test_what_a_stopping_broker_has_taken_it_answers(broker, config):
    """After a restart only one batch of each producer is remembered, as in Kafka's snapshots. If
    several were appended without a response, a retry of the first could not be distinguished from a
    batch out of order."""
    name = create_topic(broker.address, "t", **TOPICS[config])
    with WireClient(broker.address) as client:
        topic = Topic(name, topic_id(client, name))
        producer = client.call(ApiKey.INIT_PRODUCER_ID, 2, transaction_timeout=milliseconds(0))
        sent = [
            batch(b"%d" % n, producer_id=producer.producer_id, producer_epoch=0, base_sequence=n)
            for n in range(5)
        ]
        produce(client, 9, topic, sent[0])
        broker.process.send_signal(signal.SIGSTOP)
        ids = [
            client.send(ApiKey.PRODUCE, 9, **produce_fields(9, topic, {0: data}))
            for data in sent[1:]
        ]
        broker.process.send_signal(signal.SIGTERM)
        broker.process.send_signal(signal.SIGCONT)
        answered = []
        with contextlib.suppress(ConnectionError):
            for correlation_id in ids:
                answer = client.receive(ApiKey.PRODUCE, 9, correlation_id)
                answered.append(answer.responses[0].partition_responses[0].base_offset)
    assert broker.process.wait(10) == 0
    broker.start()
    with WireClient(broker.address) as client:
        end = fetch(client, 12, topic, 0).high_watermark
        assert answered == list(range(1, end))
        for offset in range(end, 5):
            assert produce(client, 9, topic, sent[offset]).base_offset == offset


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGHUP])
def test_a_hangup_after_the_first_signal_is_no_second_one(broker, first):
    """Both signals are sent while the process is stopped, so it gets them together, as with
    systemd's SendSIGHUP=."""
    broker.process.send_signal(signal.SIGSTOP)
    broker.process.send_signal(first)
    broker.process.send_signal(signal.SIGHUP)
    broker.process.send_signal(signal.SIGCONT)
    assert broker.process.wait(60) == 0
    assert (broker.data / CLEAN_SHUTDOWN).exists()
    broker.start()


def test_a_second_signal_ends_it_at_once(broker):
    """Both signals are sent while the process is stopped, so it gets them together."""
    broker.process.send_signal(signal.SIGSTOP)
    broker.process.send_signal(signal.SIGTERM)
    broker.process.send_signal(signal.SIGINT)
    broker.process.send_signal(signal.SIGCONT)
    assert broker.process.wait(10) in (128 + signal.SIGTERM, 128 + signal.SIGINT)
    assert not (broker.data / CLEAN_SHUTDOWN).exists()
    broker.start()


def test_a_frozen_broker_goes_on_where_it_was(broker):
    """Frozen for longer than its clients' timeouts: they reconnect, and their retries are
    deduplicated."""

    async def scenario():
        load = loaded(broker, seed=3)
        async with load:
            for frozen_s in (0.2, 6.0):
                await load.progress()
                broker.process.send_signal(signal.SIGSTOP)
                await asyncio.sleep(frozen_s)
                broker.process.send_signal(signal.SIGCONT)
            await load.progress()
        await load.check()

    asyncio.run(scenario())


def test_topics_that_were_made_stay_and_those_that_were_deleted_do_not_return(broker):
    """Acknowledged creations and deletions persist, however soon after the response the broker is
    killed."""
    random = Random(4)
    made, deleted, unsure = set(), set(), set()
    names = brokers.names("topic")
    for _ in range(4):
        # A name stays in `unsure` while its request has no response: the kill may come before or
        # after.
        killing = threading.Timer(0.2 + random.random() / 2, broker.kill)
        killing.start()
        with contextlib.suppress(OSError), WireClient(broker.address) as client:
            while True:
                name = next(names)
                unsure.add(name)
                create(client, name)
                unsure.remove(name)
                made.add(name)
                if random.random() < 0.5:
                    name = random.choice(sorted(made))
                    made.remove(name)
                    unsure.add(name)
                    delete(client, name)
                    unsure.remove(name)
                    deleted.add(name)
        killing.join()
        broker.start()
        with WireClient(broker.address) as client:
            # Only topics with a pending request may be in either state.
            there = {topic.name for topic in client.call(ApiKey.METADATA, 9, topics=None).topics}
            assert made <= there
            assert not there & deleted
            assert there <= made | unsure
            for name in sorted(there)[-5:]:
                topic = Topic(name, topic_id(client, name))
                assert produce(client, 9, topic, batch(b"a")).error_code is ErrorCode.none
            # A deleted name must be usable again, with an empty log.
            for name in sorted(deleted)[-5:]:
                create(client, name)
                deleted.remove(name)
                made.add(name)
                topic = Topic(name, topic_id(client, name))
                assert fetch(client, 12, topic, 0).high_watermark == 0
    assert made
    directories = {path.name.rpartition("-")[0] for path in broker.data.glob("topic-*-0")}
    assert made <= directories


def create(client, name):
    topics = [{"name": name, "num_partitions": 1, "replication_factor": 1}]
    (answer,) = client.call(
        ApiKey.CREATE_TOPICS, 5, topics=topics, timeout=milliseconds(9000)
    ).topics
    assert answer.error_code is ErrorCode.none, answer


def delete(client, name):
    (answer,) = client.call(
        ApiKey.DELETE_TOPICS, 5, topic_names=[name], timeout=milliseconds(9000)
    ).responses
    assert answer.error_code is ErrorCode.none, answer


def start_refused(broker):
    """Start the broker, which must fail; return the one line that it prints to standard error."""
    with pytest.raises(RuntimeError):
        broker.start()
    assert broker.process.returncode == 1
    reasons = [line for line in broker.output if line.startswith("k server-start: ")]
    assert len(reasons) == 1
    assert not any("Traceback" in line for line in broker.output)
    return reasons[0]


def test_a_second_broker_in_the_same_directory_is_refused(broker, tmp_path):
    second = BrokerProcess(tmp_path)
    reason = start_refused(second)
    assert str(broker.data) in reason
    assert "used by another broker" in reason
    assert broker.process.poll() is None
    create_topic(broker.address, "still-served")


def test_a_port_that_is_taken_is_named(broker, tmp_path):
    second = BrokerProcess(tmp_path / "second", {"listeners": f"PLAINTEXT://{broker.address}"})
    reason = start_refused(second)
    assert broker.address in reason
    assert "Address already in use" in reason
    create_topic(broker.address, "still-served")
