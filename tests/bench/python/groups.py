"""One measurement of groups, commits or transactions with librdkafka, at any broker.

    python -m tests.bench.python.groups MODE ADDRESS '{"topic": ...}'

Prints the figures as JSON. All members of a group run in this process, each as a client with its
own threads and connections.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer, Producer, TopicPartition

PATIENCE_S = 120
BATCH = 10_000
VALUE = b"v" * 200


def consumer(address: str, group: str, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            # Fetch as soon as there is data: the default of one second would dominate the
            # measurement.
            "fetch.queue.backoff.ms": 1,
        }
        | {key.replace("_", "."): value for key, value in settings.items()}
    )


def read(address: str, topic: str, group: str, members: int, messages: int) -> dict[str, float]:
    """Read `messages` messages, timed from when every member has its share of the partitions."""
    consumers = [consumer(address, group) for _ in range(members)]
    for one in consumers:
        one.subscribe([topic], on_assign=paused)
    partitions = len(consumers[0].list_topics(topic, PATIENCE_S).topics[topic].partitions)
    share = partitions // members
    until(
        lambda: {len(polled(one).assignment()) for one in consumers} == {share},
        lambda: f"the shares are {[len(one.assignment()) for one in consumers]}",
    )
    began = time.perf_counter()
    for one in consumers:
        one.resume(one.assignment())
    left = messages
    while left > 0:
        found = [one.consume(BATCH, 0.01) for one in consumers]
        left -= sum(message.error() is None for some in found for message in some)
    seconds = time.perf_counter() - began
    for one in consumers:
        one.close()
    return {"messages": messages - left, "seconds": seconds}


def paused(one: Consumer, partitions: list[TopicPartition]) -> None:
    one.assign(partitions)
    one.pause(partitions)


def polled(one: Consumer) -> Consumer:
    """Poll once: a rebalance makes progress only in calls of its consumer."""
    message = one.poll(0)
    assert message is None or message.error() is not None, "it is paused"
    return one


def join(address: str, topic: str, group: str, members: int) -> dict[str, float]:
    """Measure from the first member's subscription until each has received a record."""
    consumers = [consumer(address, group) for _ in range(members)]
    began = time.perf_counter()
    for one in consumers:
        one.subscribe([topic])
    waiting = set(range(members))

    def each_has_one() -> bool:
        # Poll all of them: a member that does not poll delays the others' rebalance.
        for number, one in enumerate(consumers):
            message = one.poll(0)
            if message is not None and message.error() is None:
                waiting.discard(number)
        return not waiting

    until(each_has_one, lambda: f"{len(waiting)} of {members} members have no record")
    seconds = time.perf_counter() - began
    for one in consumers:
        one.close()
    return {"seconds": seconds}


def commit(address: str, topic: str, group: str, groups: int, for_s: float) -> dict[str, float]:
    """Commit with `groups` groups at once; each waits for the response before its next commit."""

    def one_after_the_other(number: int, ends: float) -> int:
        one = consumer(address, f"{group}-{number}")
        commits = 0
        while time.perf_counter() < ends:
            one.commit(offsets=[TopicPartition(topic, 0, commits)], asynchronous=False)
            commits += 1
        one.close()
        return commits

    return together(groups, for_s, one_after_the_other)


def transact(
    address: str, topic: str, group: str, producers: int, records: int, for_s: float
) -> dict[str, float]:
    """Run `producers` producers at once, each with consecutive transactions of `records`
    records."""

    def one_after_the_other(number: int, ends: float) -> int:
        one = Producer(
            {
                "bootstrap.servers": address,
                "transactional.id": f"{group}-{number}",
                "linger.ms": 0,
            }
        )
        one.init_transactions(PATIENCE_S)
        transactions = 0
        while time.perf_counter() < ends:
            one.begin_transaction()
            for _ in range(records):
                one.produce(topic, VALUE)
            one.commit_transaction(PATIENCE_S)
            transactions += 1
        return transactions

    return together(producers, for_s, one_after_the_other)


def isolated(address: str, topic: str, group: str, messages: int, level: str) -> dict[str, float]:
    """Read `messages` messages of one partition, without a group."""
    one = consumer(address, group, isolation_level=level)
    one.assign([TopicPartition(topic, 0, 0)])
    found: list[object] = []
    while not found:
        found = one.consume(BATCH, 0.1)
    began = time.perf_counter()
    left = messages - len(found)
    while left > 0:
        left -= len(one.consume(BATCH, 0.1))
    seconds = time.perf_counter() - began
    one.close()
    return {"messages": messages - len(found) - left, "seconds": seconds}


def together(count: int, for_s: float, work: Callable[[int, float], int]) -> dict[str, float]:
    """Run `work` in threads; the clients release Python's GIL while they wait."""
    began = time.perf_counter()
    done = [0] * count

    def one(number: int) -> None:
        done[number] = work(number, began + for_s)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"count": sum(done), "seconds": for_s}


def until(condition: Callable[[], bool], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"after {PATIENCE_S} s {what()}")
        time.sleep(0.001)


MODES = {function.__name__: function for function in (read, join, commit, transact, isolated)}

if __name__ == "__main__":
    mode, where, arguments = sys.argv[1:]
    print(json.dumps(MODES[mode](where, **json.loads(arguments))))
