"""GroupCoordinator: finds the coordinator of a consumer's group and sends requests to it.

It is looked up when first needed, and again after `lost`: after an error code, or when its
connection failed. Requests use connections of their own, apart from fetches, which a broker may
hold back; requests that wait for all members to rejoin are apart from the others.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable
from typing import Any

from kcli.client.admin.descriptions import CoordinatorType
from kcli.client.cluster import Cluster, Node
from kcli.client.coordinators import find
from kserver.errors import ErrorCode, KafkaError
from kserver.peer import ANY_VERSION, Peer
from kserver.wire import versions

_logger = logging.getLogger(__name__)


class CoordinatorConnection(enum.Enum):
    """A connection to the coordinator."""

    GROUP = "group"
    REBALANCE = "rebalance"


class GroupCoordinator:
    """`rebalance_ms` is the request timeout of requests that wait for other members."""

    def __init__(self, cluster: Cluster, group_id: str, rebalance_ms: int) -> None:
        self.cluster = cluster
        self.group_id = group_id
        self.node: Node | None = None
        self._response_ms = {
            CoordinatorConnection.GROUP: None,
            CoordinatorConnection.REBALANCE: rebalance_ms,
        }
        self._lookup: asyncio.Task[Node] | None = None

    async def call(
        self,
        api_key: int,
        build: Callable[[Any, int], Any],
        *,
        at_most: int = ANY_VERSION,
        line: CoordinatorConnection = CoordinatorConnection.GROUP,
    ) -> Any:
        """Send the request that `build(new, version)` returns, and return its response.

        Raises OSError if the connection failed; the coordinator is then looked up again. Raises
        KafkaError if it cannot be found, now or for good, or is too old for the request.
        """
        try:
            peer = await self._peer(line)
            version = peer.version(api_key, at_most)
            return await peer.call(build(versions.request(api_key, version), version))
        except OSError as error:
            self.mark_unknown(str(error))
            raise

    async def knows(self, api_key: int, version: int = 0) -> bool:
        """Whether the coordinator has an API in that version."""
        peer = await self._peer(CoordinatorConnection.GROUP)
        return peer.versions.get(api_key, (0, -1))[1] >= version

    async def _peer(self, line: CoordinatorConnection) -> Peer:
        node = await self.node_or_lookup()
        try:
            return await self.cluster.peer(
                node.id, line=line.value, response_ms=self._response_ms[line]
            )
        except (OSError, KafkaError) as error:
            # It cannot be reached, or the metadata does not list this broker any more.
            self.mark_unknown(str(error))
            raise

    async def node_or_lookup(self) -> Node:
        """Return the coordinator; concurrent callers share one lookup."""
        if self.node is None:
            if self._lookup is None or self._lookup.done():
                self._lookup = asyncio.create_task(self._find())
                self._lookup.add_done_callback(_take_note)
            self.node = await asyncio.shield(self._lookup)
        return self.node

    async def _find(self) -> Node:
        coordinator = (await find(self.cluster, [self.group_id], CoordinatorType.GROUP))[
            self.group_id
        ]
        if isinstance(coordinator, KafkaError):
            raise coordinator
        self.cluster.nodes.setdefault(coordinator.id, coordinator)
        _logger.info("group %s is coordinated by %s", self.group_id, coordinator)
        return coordinator

    def mark_unknown(self, reason: str) -> None:
        """Forget the coordinator: it has moved or cannot be reached. Others are asked for it: it
        may still name itself.
        """
        if self.node is not None:
            _logger.info("the coordinator of group %s is lost: %s", self.group_id, reason)
            self.cluster.doubt(self.node.id)
            self.node = None

    async def close(self) -> None:
        if self._lookup is not None and not self._lookup.done():
            self._lookup.cancel()
            await asyncio.wait([self._lookup])


def _take_note(lookup: asyncio.Task[Node]) -> None:
    """Retrieve the exception: its caller may be gone, and asyncio would log it as never
    retrieved.
    """
    if not lookup.cancelled():
        lookup.exception()


def is_transient(error: Exception) -> bool:
    """Whether a retry may succeed."""
    return isinstance(error, OSError) or (
        isinstance(error, KafkaError)
        and (error.code.retriable or error.code is ErrorCode.broker_not_available)
    )
