"""GroupCoordinator: the broker that leads a consumer's group, found and asked.

It is looked up when it is first needed, and again after `lost`: that was said by an answer, or its
connection failed.  What is asked goes on lines of its own, apart from the fetches that a broker may
hold back, and those rebalances that wait for all members apart from the rest.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable
from typing import Any

from kcli.client.cluster import Cluster, Node
from kcli.client.coordinators import find
from kcli.client.descriptions import CoordinatorType
from kserver.errors import ErrorCode, KafkaError
from kserver.peer import ANY_VERSION
from kserver.wire import versions

_logger = logging.getLogger(__name__)


class Line(enum.Enum):
    """A connection."""

    GROUP = "group"
    REBALANCE = "rebalance"


class GroupCoordinator:
    """`rebalance_ms` is how long what waits for other members may take."""

    def __init__(self, cluster: Cluster, group_id: str, rebalance_ms: int) -> None:
        self.cluster = cluster
        self.group_id = group_id
        self.node: Node | None = None
        self._answer_ms = {Line.GROUP: None, Line.REBALANCE: rebalance_ms}
        self._finding: asyncio.Task[Node] | None = None

    async def call(
        self,
        api_key: int,
        build: Callable[[Any, int], Any],
        *,
        at_most: int = ANY_VERSION,
        line: Line = Line.GROUP,
    ) -> Any:
        """The answer to what `build(new, version)` makes.

        OSError where the connection failed: then the coordinator is looked up anew.  KafkaError
        where it cannot be found, now or for good, and for what it is too old for.
        """
        try:
            node = await self.found()
            peer = await self.cluster.peer(
                node.id, line=line.value, answer_ms=self._answer_ms[line]
            )
            version = peer.version(api_key, at_most)
            return await peer.call(build(versions.request(api_key, version), version))
        except OSError as error:
            self.lost(str(error))
            raise

    async def knows(self, api_key: int, version: int = 0) -> bool:
        """Whether the coordinator has an API in that version."""
        peer = await self.cluster.peer((await self.found()).id, line=Line.GROUP.value)
        return peer.versions.get(api_key, (0, -1))[1] >= version

    async def found(self) -> Node:
        """One looks it up, however many ask."""
        if self.node is None:
            if self._finding is None or self._finding.done():
                self._finding = asyncio.create_task(self._find())
                self._finding.add_done_callback(_take_note)
            self.node = await asyncio.shield(self._finding)
        return self.node

    async def _find(self) -> Node:
        found = (await find(self.cluster, [self.group_id], CoordinatorType.GROUP))[self.group_id]
        if isinstance(found, KafkaError):
            raise found
        self.cluster.nodes.setdefault(found.id, found)
        _logger.info("group %s is coordinated by %s", self.group_id, found)
        return found

    def lost(self, reason: str) -> None:
        """It is another now, or not to be reached."""
        if self.node is not None:
            _logger.info("the coordinator of group %s is lost: %s", self.group_id, reason)
            self.node = None

    async def close(self) -> None:
        if self._finding is not None and not self._finding.done():
            self._finding.cancel()
            await asyncio.wait([self._finding])


def _take_note(finding: asyncio.Task[Node]) -> None:
    """Whoever asked may have gone, and then asyncio would tell the user that nobody looked."""
    if not finding.cancelled():
        finding.exception()


def is_passing(error: Exception) -> bool:
    """Whether the same may succeed a little later."""
    return isinstance(error, OSError) or (
        isinstance(error, KafkaError)
        and (error.code.retriable or error.code is ErrorCode.broker_not_available)
    )
