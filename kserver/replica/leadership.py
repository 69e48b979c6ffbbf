"""Whether this broker still leads a partition, as ZooKeeper knows it.

A broker that was paused or cut off may not have learned yet that the controller elected another
leader.  What it appends then is never committed.  What it answers from memory would be believed.

Each question is about one partition in one leader epoch.  All callers of a question share its
answer.  Questions are sent in rounds; a question that comes up during a round waits for the next,
since ZooKeeper may have answered the same one before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from kserver import znodes
from kserver.errors import UnreadableZnode
from kserver.model import BrokerId, LeaderEpoch, TopicPartition
from kserver.replica.partition import Partition
from kserver.world.zookeeper import Check, ZooKeeper, ZooKeeperError

ASK_AGAIN_S = 0.02
"""Minimum time between two rounds of questions, in seconds: requests that are refused must not
become load on ZooKeeper."""


class Question(NamedTuple):
    topic_partition: TopicPartition
    leader_epoch: LeaderEpoch


class Leadership:
    """`is_alone` says that no other broker can be elected."""

    def __init__(self, zookeeper: ZooKeeper, broker_id: BrokerId, *, is_alone: bool) -> None:
        self._zookeeper = zookeeper
        self._broker_id = broker_id
        self._is_alone = is_alone
        self._asked: dict[Question, asyncio.Future[bool]] = {}
        self._has_asked = asyncio.Event()

    def is_current(self, partition: Partition) -> asyncio.Future[bool]:
        """Return whether this broker still led the partition, in its present leader epoch, after
        this call; False if ZooKeeper does not respond.  The future is shared: do not cancel it."""
        question = Question(partition.topic_partition, partition.epoch)
        future = self._asked.get(question)
        if future is None:
            future = asyncio.get_running_loop().create_future()
            if self._is_alone:
                future.set_result(True)
            else:
                self._asked[question] = future
                self._has_asked.set()
        return future

    async def run(self) -> None:
        """Ask ZooKeeper, until cancelled."""
        while True:
            await self._has_asked.wait()
            self._has_asked.clear()
            asked, self._asked = self._asked, {}
            await self._ask_all(asked)
            await asyncio.sleep(ASK_AGAIN_S)

    async def _ask_all(self, asked: Mapping[Question, asyncio.Future[bool]]) -> None:
        try:
            # As a write, it passes through the leader of the ensemble: reads after it are not
            # outdated, even if the server that this broker is connected to was.
            await self._zookeeper.multi([Check(znodes.TOPICS)])
        except ZooKeeperError:
            for future in asked.values():
                future.set_result(False)
            return
        # One after the other: that bounds the load of a client that asks for many partitions.
        for question, future in asked.items():
            future.set_result(await self._ask(question))

    async def _ask(self, question: Question) -> bool:
        topic, index = question.topic_partition
        try:
            data, stat = await self._zookeeper.get(znodes.state_path(topic, index))
            state = znodes.decode_state(topic, index, data, stat.version)
        except (ZooKeeperError, UnreadableZnode):
            return False
        return (state.leader, state.leader_epoch) == (self._broker_id, question.leader_epoch)
