"""Test a broker whose disk fails, and kills while replicas move between log directories.

An ext4 file system in a file, mounted through a loop device, is made to report an error as a broken
disk would. It then becomes read-only (errors=remount-ro).
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
import time
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from tests.contract.api.calls import Topic, batch, fetch, produce, topic_id
from tests.fault.test_disk_full import values
from tests.support import tools
from tests.support.brokers import create_topic, until
from tests.support.load import Load
from tests.support.process import BrokerProcess
from tests.support.process_cluster import PATIENCE_S, Cluster
from tests.support.side_by_side import k
from tests.support.wire_client import WireClient

FAILED = ErrorCode.kafka_storage_error
FAILED_NAME = "org.apache.kafka.common.errors.KafkaStorageException"
SIZE_BYTES = 32 << 20


class LoopDisk:
    """An ext4 file system in an image file, mounted through a loop device."""

    def __init__(self, root: Path) -> None:
        self.path = root / "mounted"
        self._image = root / "image"
        self.path.mkdir()
        with self._image.open("wb") as file:
            file.truncate(SIZE_BYTES)
        self._run("mkfs.ext4", "-q", "-F", str(self._image))
        self.mount()

    def mount(self, *options: str) -> None:
        wanted = ",".join(("loop", "errors=remount-ro", *options))
        self._run("mount", "-t", "ext4", "-o", wanted, str(self._image), str(self.path))

    def unmount(self) -> None:
        self._run("umount", str(self.path))

    def repair(self) -> None:
        subprocess.run(["e2fsck", "-fy", str(self._image)], capture_output=True)

    def stumble(self) -> None:
        shown = self._run("losetup", "--noheadings", "-O", "NAME", "-j", str(self._image))
        Path(f"/sys/fs/ext4/{Path(shown.strip()).name}/trigger_fs_error").write_text("1")

    def _run(self, *words: str) -> str:
        try:
            done = subprocess.run(words, capture_output=True, text=True)
        except FileNotFoundError as error:
            self._absent(str(error))
        if done.returncode:
            self._absent(f"{words[0]}: {done.stderr.strip()}")
        return done.stdout

    def _absent(self, reason: str) -> None:
        tools.absent["ext4 on a loop device"] = "run as root, with loop devices"
        pytest.skip(f"no ext4 can be mounted through a loop device here: {reason}")


@pytest.fixture
def disk(tmp_path):
    disk = LoopDisk(tmp_path)
    yield disk
    subprocess.run(["umount", "--lazy", str(disk.path)], check=False)


def topics_on(broker, *directories, **config):
    """Create four topics with one partition; return one topic located in each of `directories`."""
    found = {}
    with WireClient(broker.address) as client:
        for number in range(4):
            name = create_topic(broker.address, f"t{number}", **config)
            (place,) = [d for d in directories if (d / f"{name}-0").exists()]
            found.setdefault(place, Topic(name, topic_id(client, name)))
    return [found[directory] for directory in directories]


def described(client):
    answer = client.call(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=None)
    return {found.log_dir: found.error_code for found in answer.results}


def leader_of(client, topic):
    (told,) = client.call(ApiKey.METADATA, 9, topics=[{"name": topic.name}]).topics
    return told.partitions[0].leader_id, told.partitions[0].offline_replicas


def test_a_disk_that_becomes_read_only_takes_its_partitions_along_and_no_others(tmp_path, disk):
    sound, bad = tmp_path / "data", disk.path / "data"
    with BrokerProcess(tmp_path, {"log.dirs": f"{sound},{bad}"}) as broker:
        kept, lost = topics_on(broker, sound, bad, flush_before_ack="true")
        with WireClient(broker.address) as client:
            for n in range(10):
                for topic in (kept, lost):
                    assert produce(client, 9, topic, batch(b"%d" % n)).error_code is ErrorCode.none
            disk.stumble()
            assert produce(client, 9, lost, batch(b"no")).error_code is FAILED
            assert fetch(client, 12, lost, 0).error_code is FAILED
            assert leader_of(client, lost) == (-1, (leader_of(client, kept)[0],))
            assert described(client) == {str(sound): ErrorCode.none, str(bad): FAILED}
            assert produce(client, 9, kept, batch(b"on")).base_offset == 10
            until(lambda: any("went offline: " in line for line in broker.output))
            told = [line for line in broker.output if "went offline: " in line]
            assert len(told) == 1
            assert str(bad) in told[0]
            assert "Read-only file system" in told[0]
        broker.kill()

        # Restart with the disk still read-only: its partitions are not recreated on the other disk.
        broker.start()
        with WireClient(broker.address) as client:
            assert described(client)[str(bad)] is FAILED
            assert produce(client, 9, lost, batch(b"no")).error_code is FAILED
            assert len(values(client, kept)) == 11
        assert not (sound / f"{lost.name}-0").exists()
        assert broker.stop() == 0

        disk.unmount()
        disk.repair()
        disk.mount()
        broker.start()
        with WireClient(broker.address) as client:
            assert values(client, lost) == [b"%d" % n for n in range(10)]
            assert produce(client, 9, lost, batch(b"on")).base_offset == 10
        assert broker.stop() == 0
        disk.unmount()


def topics_described(cluster, topic):
    """Return the leader and ISR of each partition, as `k topics --describe` prints them."""
    words = ("--bootstrap-server", cluster.addresses, "--describe", "--topic", topic)
    rows = [
        dict(field.split(": ", 1) for field in line.strip().split("\t") if ": " in field)
        for line in k("topics", *words).out.decode().splitlines()
    ]
    return {int(row["Partition"]): (row["Leader"], row["Isr"]) for row in rows if "Leader" in row}


def log_dir_errors(cluster, broker):
    """Return the error of each log directory, as `k log-dirs --describe` prints it."""
    shown = k("log-dirs", "--bootstrap-server", cluster.addresses, "--describe").out.decode()
    (line,) = [line for line in shown.splitlines() if line.startswith("{")]
    (directories,) = [b["logDirs"] for b in json.loads(line)["brokers"] if b["broker"] == broker]
    return {directory["logDir"]: directory["error"] for directory in directories}


def test_in_a_cluster_the_leaders_on_a_failed_disk_move_and_what_is_acknowledged_stays(
    tmp_path, disk
):
    """The affected broker continues with its other disk; after the repair its replicas rejoin the
    ISR."""
    leader, partitions = 1, 6
    cluster = Cluster(tmp_path)
    sound, bad = tmp_path / "sound", disk.path / "data"
    cluster.brokers[leader].settings |= {"log.dirs": f"{sound},{bad}"}
    with cluster:
        cluster.create("t", partitions, leader)
        # Both disks must have partitions: one to lose leaders, one to keep them.
        on_bad = {n for n in range(partitions) if (bad / f"t-{n}").exists()}
        assert 0 < len(on_bad) < partitions
        cluster.until_in_sync("t")
        acknowledged: list[tuple[int, bytes]] = []

        def told(error, message):
            assert error is None, error
            acknowledged.append((message.partition(), message.value()))

        # The disk fails half-way through the records.
        producer = Producer(cluster.client | {"enable.idempotence": True, "linger.ms": 0})
        for number in range(600):
            if number == 300:
                disk.stumble()
            producer.produce("t", b"%d" % number, partition=number % partitions, on_delivery=told)
            producer.poll(0.001)
        assert producer.flush(PATIENCE_S) == 0
        assert sorted(acknowledged) == sorted((n % partitions, b"%d" % n) for n in range(600))

        def moved():
            """Any broker may respond, and each gets the new metadata at its own time."""
            shown = topics_described(cluster, "t")
            led_by_others = {n for n, (led_by, _) in shown.items() if led_by != str(leader)}
            lacking = {n for n, (_, isr) in shown.items() if str(leader) not in isr.split(",")}
            return led_by_others == lacking == on_bad

        until(moved)
        assert log_dir_errors(cluster, leader) == {str(sound): None, str(bad): FAILED_NAME}
        # After the repair every replica must rejoin the ISR with all acknowledged records.
        cluster.brokers[leader].stop()
        disk.unmount()
        disk.repair()
        disk.mount()
        cluster.brokers[leader].start()
        cluster.until_in_sync("t")
        consumer = Consumer(cluster.client | {"group.id": "none", "auto.offset.reset": "earliest"})
        consumer.assign([TopicPartition("t", n, 0) for n in range(partitions)])
        read = []
        deadline = time.monotonic() + PATIENCE_S
        while len(read) < 600:
            assert time.monotonic() < deadline
            read += [(m.partition(), m.value()) for m in consumer.consume(600, 0.2)]
        consumer.close()
        assert sorted(read) == sorted(acknowledged)
        for broker in cluster.brokers.values():
            broker.kill()
    disk.unmount()


def test_kills_while_replicas_move_lose_nothing(tmp_path):
    """Under load, with partitions moved at random and checkpoints written every 50 ms."""
    directories = [tmp_path / name for name in "abc"]
    settings = {
        "log.dirs": ",".join(map(str, directories)),
        "log.flush.offset.checkpoint.interval.ms": 50,
        "log.flush.start.offset.checkpoint.interval.ms": 50,
        "replica.high.watermark.checkpoint.interval.ms": 50,
        "log.retention.check.interval.ms": 50,
    }
    random = Random(1)
    partitions = 4

    def meddle(client):
        partition = random.randrange(partitions)
        path = str(random.choice(directories))
        topics = [{"name": "t", "partitions": [partition]}]
        answer = client.call(
            ApiKey.ALTER_REPLICA_LOG_DIRS, 2, dirs=[{"path": path, "topics": topics}]
        )
        assert answer.results[0].partitions[0].error_code is ErrorCode.none

    def moving(address, stop):
        try:
            with WireClient(address) as client:
                while not stop.is_set():
                    meddle(client)
        except OSError:
            pass  # the broker was killed

    def killed_while_they_move(broker):
        stop = threading.Event()
        mover = threading.Thread(target=moving, args=(broker.address, stop))
        mover.start()
        stop.wait(0.2 + random.random() / 2)
        broker.kill()
        stop.set()
        mover.join()
        broker.start()
        for partition in range(partitions):
            held = [d for d in directories if (d / f"t-{partition}").exists()]
            assert len(held) == 1, (partition, held)

    async def scenario(broker):
        create_topic(broker.address, "t", partitions, segment_bytes=200_000)
        load = Load(broker.address, "t", partitions, seed=1, librdkafka=False)
        async with load:
            for _ in range(3):
                await load.progress()
                await asyncio.to_thread(killed_while_they_move, broker)
            await load.progress()
        await load.check()

    with BrokerProcess(tmp_path, settings) as broker:
        asyncio.run(scenario(broker))
        until(lambda: not any(list(d.glob("*-future")) for d in directories))
        assert broker.stop() == 0
        assert not any("Traceback" in line for line in broker.output), "".join(broker.output)
