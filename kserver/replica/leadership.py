"""Whether this broker still leads a partition, as ZooKeeper knows it.

A broker that was paused or cut off may not have learned yet that the controller elected another
leader.  What it appends then is never committed.  What it answers from memory would be believed.
"""

from __future__ import annotations

from kserver import znodes
from kserver.errors import UnreadableZnode
from kserver.model import BrokerId
from kserver.replica.partition import Partition
from kserver.world.zookeeper import Check, ZooKeeper, ZooKeeperError


class Leadership:
    """`is_alone` says that no other broker can be elected."""

    def __init__(self, zookeeper: ZooKeeper, broker_id: BrokerId, *, is_alone: bool) -> None:
        self._zookeeper = zookeeper
        self._broker_id = broker_id
        self._is_alone = is_alone

    async def is_current(self, partition: Partition) -> bool:
        """Return whether this broker still led the partition, in its present leader epoch, after
        this call began; False if ZooKeeper does not respond."""
        if self._is_alone:
            return True
        topic, index = partition.topic_partition
        path, epoch = znodes.state_path(topic, index), partition.epoch
        try:
            # As a write, it passes through the leader of the ensemble: a read after it is not
            # outdated, even if the server that this broker is connected to was.
            await self._zookeeper.multi([Check(path)])
            data, stat = await self._zookeeper.get(path)
            state = znodes.decode_state(topic, index, data, stat.version)
        except (ZooKeeperError, UnreadableZnode):
            return False
        return (state.leader, state.leader_epoch) == (self._broker_id, epoch)
