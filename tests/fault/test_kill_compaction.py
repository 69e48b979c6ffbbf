"""Test a broker that is killed during log compaction: each key keeps the newest value produced."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from random import Random

from kcli.client import Consumer, Producer
from kserver.log.segment import CLEANED, SWAP
from kserver.model import TopicPartition
from tests.support.brokers import create_topic
from tests.support.process import BrokerProcess

KEYS, KILLS, ROUNDS = 50, 4, 30
SETTINGS = {"log.cleaner.backoff.ms": 20, "log.flush.offset.checkpoint.interval.ms": 100}
PATIENCE_S = 60


def is_cleaning(pid: int) -> bool:
    return bool(Path(f"/proc/{pid}/task/{pid}/children").read_text())


async def until_it_cleans(broker: BrokerProcess) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_cleaning(broker.pid):
            await asyncio.sleep(0.002)


async def written(address: str, first: int) -> None:
    """Produce `ROUNDS` rounds of one value for each key, all acknowledged."""
    async with Producer({"bootstrap.servers": address, "linger.ms": 0}) as producer:
        for number in range(first, first + ROUNDS):
            sent = [await producer.send("c", b"%09d" % number, b"%d" % key) for key in range(KEYS)]
            await asyncio.gather(*sent)


async def newest(address: str, most_bytes: int | None = None) -> dict[bytes, bytes]:
    """Return the last value of each key, truncated to `most_bytes` bytes if given."""
    one = TopicPartition("c", 0)
    found: dict[bytes, bytes] = {}
    config = {"bootstrap.servers": address, "auto.offset.reset": "earliest"}
    async with Consumer(config) as consumer:
        consumer.assign([one])
        end = (await consumer.end_offsets([one]))[one]
        while await consumer.position(one) < end:
            for record in await consumer.poll(10_000):
                found[record.key] = record.value[:most_bytes]
    return found


def test_a_kill_while_it_compacts_costs_no_key_its_newest_value(tmp_path):
    seed = time.time_ns()
    print(f"seed {seed}")
    random = Random(seed)
    with BrokerProcess(tmp_path, SETTINGS) as broker:
        create_topic(
            broker.address,
            "c",
            cleanup_policy="compact",
            segment_bytes=20_000,
            min_cleanable_dirty_ratio=0.01,
        )

        async def killed(first: int) -> None:
            await written(broker.address, first)
            await until_it_cleans(broker)
            await asyncio.sleep(random.random() * 0.3)
            broker.kill()

        for number in range(KILLS):
            asyncio.run(killed(number * ROUNDS))
            broker.start()
            last = b"%09d" % ((number + 1) * ROUNDS - 1)
            assert asyncio.run(newest(broker.address)) == {b"%d" % k: last for k in range(KEYS)}
        assert broker.stop() == 0
        left = [path.name for path in (broker.data / "c-0").iterdir()]
        assert not [name for name in left if name.endswith(SWAP)]
        assert sum(name.endswith(CLEANED) for name in left) <= 4
