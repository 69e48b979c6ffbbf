"""Znodes that others write for the controller to act on: watches and reads them.

    /brokers/topics                     children: all topics, including those that others create
    /admin/delete_topics                children: topics to delete
    /log_dir_event_notification         children: brokers with a failed disk
    /isr_change_notification            children: partitions whose state was written by their
                                        leader, one that is older than AlterPartition
    /admin/preferred_replica_election   data: partitions whose preferred leader is to be elected
    /admin/reassign_partitions          data: partitions with their new replicas

A watch fires once and is lost with the connection.  Each znode is therefore read and watched again
whenever its watch fired, and after each reconnect. (Kafka: ZNodeChangeHandler and
ZNodeChildChangeHandler, as KafkaController has them.)
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias, TypeVar

from kserver import znodes
from kserver.cluster_config.znode_store import gather
from kserver.controller.claimed_store import ClaimedStore
from kserver.controller.event_queue import ControllerState, Put
from kserver.errors import StorageError
from kserver.world.session import until_connected
from kserver.world.zookeeper import Delete, NoNode, WatchEvent, ZooKeeper

log = logging.getLogger(__name__)

T = TypeVar("T")

OnChildren: TypeAlias = Callable[[list[str]], Awaitable[None]]
"""Called with the names of a znode's children."""
OnData: TypeAlias = Callable[[bytes], Awaitable[None]]
"""Called with a znode's data."""

STATES = {
    znodes.TOPICS: ControllerState.TOPIC_CHANGE,
    znodes.DELETE_TOPICS: ControllerState.TOPIC_DELETION,
    znodes.LOG_DIR_EVENTS: ControllerState.LOG_DIR_CHANGE,
    znodes.ISR_CHANGES: ControllerState.ISR_CHANGE,
    znodes.PREFERRED_ELECTION: ControllerState.MANUAL_LEADER_BALANCE,
    znodes.REASSIGN_PARTITIONS: ControllerState.ALTER_PARTITION_REASSIGNMENT,
}
"""State of the controller while it handles each znode."""


class Notices:
    def __init__(
        self,
        zookeeper: ZooKeeper,
        store: ClaimedStore,
        put: Put,
        *,
        of_children: Mapping[str, OnChildren],
        of_data: Mapping[str, OnData],
    ) -> None:
        self._zookeeper = zookeeper
        self._store = store
        self._put = put
        self._of_children = of_children
        self._of_data = of_data

    def read_all(self) -> None:
        for path in (*self._of_children, *self._of_data):
            self.read(path)

    def read(self, path: str) -> None:
        """Queue an event that reads one of the znodes and handles it."""
        self._put(STATES[path], partial(self._read, path))

    async def take(
        self, parent: str, names: Sequence[str], decode: Callable[[bytes], T]
    ) -> list[T]:
        """Read and delete these children of `parent`; return their decoded data.  Malformed ones
        are logged."""
        paths = [f"{parent}/{name}" for name in names]
        read = [partial(self._store.find, path) for path in paths]
        data = await until_connected(partial(gather, read))
        notices: list[T] = []
        for znode in data:
            if znode is not None:
                try:
                    notices.append(decode(znode[0]))
                except StorageError as error:
                    log.error("%s; removing the znode", error)
        there = zip(paths, data, strict=True)
        await self._store.write([Delete(path) for path, znode in there if znode is not None])
        return notices

    def _changed(self, event: WatchEvent) -> None:
        self.read(event.path)

    async def _read(self, path: str) -> None:
        if path in self._of_children:
            names = await until_connected(partial(self._zookeeper.children, path, self._changed))
            await self._of_children[path](names)
            return
        if await until_connected(partial(self._zookeeper.exists, path, self._changed)) is not None:
            try:
                data, _ = await until_connected(partial(self._zookeeper.get, path))
            except NoNode:
                return  # deleted meanwhile
            await self._of_data[path](data)
