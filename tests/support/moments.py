"""Moments at which a fault does the most harm, and the brokers that act in them.

with watching(swarm, Moment.ELECTION) as acts:
    broker = await acts()       the next that writes a partition's leader
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from kserver import znodes
from kserver.wire.api_key import ApiKey
from kserver.world.zookeeper import Op
from tests.support.zookeeper import SimZooKeeper

if TYPE_CHECKING:
    from tests.support.swarm import Swarm


class Moment(enum.Enum):
    LEADER_AND_ISR = "The controller sends a broker its roles."
    ALTER_PARTITION = "A leader sends the controller another ISR."
    TRUNCATION = "A follower cuts its log."
    ELECTION = "The controller writes who leads a partition."
    TAKEOVER = "A broker becomes controller."


@contextmanager
def watching(swarm: Swarm, moment: Moment) -> Iterator[Callable[[], Awaitable[int]]]:
    """Yield a function that waits for the next broker that acts, or is acted on, in such
    a moment.
    """
    cluster, network = swarm.cluster, swarm.loop.network
    actors: asyncio.Queue[int] = asyncio.Queue()
    ids = {broker.name: id_ for id_, broker in cluster.brokers.items()}
    requests = {
        Moment.LEADER_AND_ISR: ApiKey.LEADER_AND_ISR,
        Moment.ALTER_PARTITION: ApiKey.ALTER_PARTITION,
    }
    key = requests.get(moment, 0).to_bytes(2, "big")

    def sent(sender: str, receiver: str, data: bytes) -> None:
        if sender in ids and receiver in ids and data[4:6] == key:
            actors.put_nowait(ids[swarm.random.choice([sender, receiver])])

    def written(client: SimZooKeeper, ops: Sequence[Op]) -> None:
        if any(is_meant(op) for op in ops):
            actor = next((i for i in cluster.up if cluster.zookeeper(i) is client), None)
            if actor is not None:
                actors.put_nowait(actor)

    def is_meant(op: Op) -> bool:
        if moment is Moment.TAKEOVER:
            return op.path in (znodes.CONTROLLER, znodes.CONTROLLER_EPOCH)
        return op.path.startswith(znodes.TOPICS) and op.path.endswith("/state")

    def cut(id_: int, path: str) -> None:
        if path.endswith(".log"):
            actors.put_nowait(id_)

    before = network.on_send, cluster.ensemble.on_write
    disks = {id_: broker.disk.on_truncate for id_, broker in cluster.brokers.items()}
    if moment in requests:
        network.on_send = sent
    elif moment is Moment.TRUNCATION:
        for id_, broker in cluster.brokers.items():
            broker.disk.on_truncate = partial(cut, id_)
    else:
        cluster.ensemble.on_write = written
    try:
        yield actors.get
    finally:
        network.on_send, cluster.ensemble.on_write = before
        for id_, on_truncate in disks.items():
            cluster.brokers[id_].disk.on_truncate = on_truncate
