"""Requests to the controller about several items, retried for those that met a former
controller.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from kcli.client.cluster import Cluster, To
from kcli.client.offsets import missing_from_response
from kserver.errors import ErrorCode, KafkaError
from kserver.peer import Peer

T = TypeVar("T")
K = TypeVar("K")

_ASK_AGAIN = frozenset({ErrorCode.not_controller, ErrorCode.throttling_quota_exceeded})


async def of_controller(
    cluster: Cluster,
    call: str,
    names: Collection[K],
    deadline: float,
    ask: Callable[[Peer, list[K]], Awaitable[dict[K, T | KafkaError]]],
    *,
    retries: int,
) -> dict[K, T | KafkaError]:
    """Return the result of `ask` at the controller for each name or id. Items that met a former
    controller or a controller mutation quota (KIP-599) are retried.
    """
    results: dict[K, T | KafkaError] = {}

    async def attempt() -> None:
        peer = await cluster.peer(To.CONTROLLER)
        response = await ask(peer, [name for name in names if name not in results])
        again: KafkaError | None = None
        for name, result in response.items():
            if isinstance(result, KafkaError) and result.code in _ASK_AGAIN:
                again = result
            else:
                results[name] = result
        if again is not None:
            raise forget_if_not_controller(cluster, again)

    if names:
        await cluster.retry(call, deadline, attempt, retries=retries)
    return {name: results.get(name, missing_from_response()) for name in names}


def forget_if_not_controller(cluster: Cluster, refusal: KafkaError) -> KafkaError:
    """Return the error as it is; if the broker is not the controller, forget the controller."""
    if refusal.code == ErrorCode.not_controller:
        cluster.forget_controller()
    return refusal
