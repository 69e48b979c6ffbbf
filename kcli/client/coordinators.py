"""Coordinators of groups and transactional ids: their lookup, and requests to them with retries.

find              FindCoordinator (key 10), many at once where the broker can (KIP-699)
of_coordinators   a request about each key, sent to its coordinator
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection
from typing import Any, TypeVar

from kcli.client.admin.descriptions import CoordinatorType
from kcli.client.cluster import Cluster, Node, node_of
from kcli.client.offsets import missing_from_response
from kserver.errors import ErrorCode, KafkaError
from kserver.peer import Peer
from kserver.wire import versions
from kserver.wire.api_key import ApiKey

T = TypeVar("T")

# First version of FindCoordinator with several keys.
MANY_COORDINATORS = 4

_MOVED = frozenset({ErrorCode.not_coordinator, ErrorCode.coordinator_not_available})


async def find(
    cluster: Cluster, keys: Collection[str], kind: CoordinatorType
) -> dict[str, Node | KafkaError]:
    """Return the coordinators that any broker names now; KafkaError for one that is not
    available.
    """
    if not keys:
        return {}
    peer = await cluster.peer()
    version = peer.version(ApiKey.FIND_COORDINATOR)
    new = versions.request(ApiKey.FIND_COORDINATOR, version)
    if version >= MANY_COORDINATORS:
        response = await peer.call(new(key_type=kind, coordinator_keys=list(keys)))
        coordinator_by_key = {
            coordinator.key: _coordinator(coordinator) for coordinator in response.coordinators
        }
    else:
        coordinator_by_key = {
            k: _coordinator(await peer.call(new(key=k, key_type=kind))) for k in keys
        }
    return {key: coordinator_by_key.get(key) or missing_from_response() for key in keys}


async def of_coordinators(
    cluster: Cluster,
    call: str,
    keys: Collection[str],
    kind: CoordinatorType,
    deadline: float,
    ask: Callable[[Peer, Node, list[str]], Awaitable[dict[str, T | KafkaError]]],
) -> dict[str, T | KafkaError]:
    """Return the result of `ask` for each key, at the key's coordinator.

    A coordinator that moved, is loading or does not exist yet is retried until the deadline; its
    last error is then the result of its keys.
    """
    nodes: dict[str, Node] = {}
    results: dict[str, T | KafkaError] = {}
    refusals: dict[str, KafkaError] = {}

    async def attempt() -> None:
        refusals.clear()
        pending = [key for key in keys if key not in results]
        located = await find(cluster, [key for key in pending if key not in nodes], kind)
        for key, where in located.items():
            if isinstance(where, KafkaError):
                settle(key, where)
            else:
                nodes[key] = where
        by_node: dict[Node, list[str]] = defaultdict(list)
        for key in pending:
            if key in nodes:
                by_node[nodes[key]].append(key)
        requests = (ask_one(node, of) for node, of in by_node.items())
        failures = await asyncio.gather(*requests, return_exceptions=True)
        if errors := [error for error in (*failures, *refusals.values()) if error is not None]:
            raise errors[0]

    async def ask_one(node: Node, of: list[str]) -> None:
        try:
            response = await ask(await cluster.peer(node.id), node, of)
        except KafkaError as error:
            if error.code == ErrorCode.broker_not_available:
                # The broker left or joined, and not every broker knows that yet.
                error = KafkaError(ErrorCode.coordinator_not_available, error.message)
            response = dict.fromkeys(of, error)
        except OSError:
            # Another broker may have become the coordinator.
            for key in of:
                del nodes[key]
            raise
        for key in of:
            settle(key, response.get(key, missing_from_response()))

    def settle(key: str, result: T | KafkaError) -> None:
        if not isinstance(result, KafkaError) or not result.code.retriable:
            results[key] = result
            return
        refusals[key] = result
        if result.code in _MOVED:
            nodes.pop(key, None)

    if keys:
        try:
            await cluster.retry(call, deadline, attempt)
        except KafkaError as error:
            return {key: results.get(key, refusals.get(key, error)) for key in keys}
    return {key: results[key] for key in keys}


def _coordinator(response: Any) -> Node | KafkaError:
    if response.error_code != ErrorCode.none:
        return KafkaError(response.error_code, getattr(response, "error_message", None) or "")
    return node_of(response.node_id, response.host, response.port, None)
