"""Two workloads that show whether each transaction took effect exactly once and atomically.

    copy        each record of a topic is in another one once, whichever member copied it
    transfer    the sum of all amounts is zero

`harm` is called after each kill of a transactor.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.clients.transacting import Transactors, read_by_all, read_by_confluent

PARTITIONS = 5
TIMEOUT_S = 60
LIBRARIES = ("confluent", "aiokafka", "franz", "java", "k")
# aiokafka 0.14 reads a group's offsets without asking for stable ones (OffsetFetch v3; KIP-447 has
# v7), so it copies records again after a rebalance that meets its open transaction.
COPYING_LIBRARIES = tuple(library for library in LIBRARIES if library != "aiokafka")
COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"


def copy(
    address: str, name: str, transactors: Transactors, kills: int, harm: Callable[[], None]
) -> None:
    """Members of one group, of every library: what one leaves undone another does."""
    source = _create_topic(address, f"{name}-source")
    target = _create_topic(address, f"{name}-target")
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    written: Counter[str] = Counter()
    numbers = itertools.count()

    def acknowledged(error: object, message: Message) -> None:
        assert error is None, error
        written[message.value().decode()] += 1

    def write() -> None:
        for partition in range(PARTITIONS):
            for value in [f"{partition}-{next(numbers)}" for _ in range(100)]:
                producer.produce(source, value, partition=partition, on_delivery=acknowledged)
        assert producer.flush(TIMEOUT_S) == 0

    for library in COPYING_LIBRARIES:
        options = {"source": source, "target": target, "group_id": name}
        options["transactional_id"] = f"{name}-{library}"
        transactors.start(library, "copy", bootstrap_server=address, **options)
    for _ in range(kills):
        write()
        transactors.kill_some(1)
        harm()
    read = Counter[str]()

    def copied() -> bool:
        read.clear()
        read.update(read_by_confluent(address, target, COMMITTED))
        return read.keys() >= written.keys()

    transactors.wait_until(copied)
    transactors.kill()
    assert read == written, f"read again: {[*(read - written)][:9]}"
    for reader, values in read_by_all(address, target, COMMITTED):
        assert Counter(values) == written, reader


def transfer(
    address: str, name: str, transactors: Transactors, kills: int, harm: Callable[[], None]
) -> None:
    """What one library takes in one partition it gives in another, whoever reads it."""
    topic = _create_topic(address, name)
    for library in LIBRARIES:
        transactors.start(
            library,
            "transfer",
            bootstrap_server=address,
            target=topic,
            partitions=str(PARTITIONS),
            transactional_id=f"{name}-{library}",
        )
    transactors.wait_until(lambda: all(t.committed >= 3 for t in transactors.each))
    for _ in range(kills):
        transactors.kill_some(1)
        harm()
    transactors.kill()
    # Take over their transactional ids, which ends their open transactions.
    for library in LIBRARIES:
        end_what_is_open(address, f"{name}-{library}")
    told = sum(t.committed for t in transactors.each)
    all_kills = sum(t.kills for t in transactors.each)
    for reader, values in read_by_all(address, topic, COMMITTED):
        amounts = [int(value) for value in values]
        assert sum(amounts) == 0, reader
        assert told <= len(amounts) // 2 <= told + all_kills, reader
    # Shows that the check can fail: a read_uncommitted reader gets withdrawals without deposits.
    assert sum(int(value) for value in read_by_confluent(address, topic, UNCOMMITTED)) < 0


def _create_topic(address: str, name: str) -> str:
    """Create a topic with the cluster's default number of replicas, and return its name."""
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(name, PARTITIONS, -1)])[name].result(TIMEOUT_S)
    return name


def end_what_is_open(address: str, transactional_id: str) -> None:
    settings = {"bootstrap.servers": address, "transactional.id": transactional_id}
    Producer(settings | {"log_level": 0}).init_transactions(30)
