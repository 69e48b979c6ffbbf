"""Requests to the controller about several items, retried for those that met a former
controller.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from kcli.client.cluster import Cluster, To
from kcli.client.offsets import left_out
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
    done: dict[K, T | KafkaError] = {}

    async def attempt() -> None:
        peer = await cluster.peer(To.CONTROLLER)
        answer = await ask(peer, [name for name in names if name not in done])
        again: KafkaError | None = None
        for name, result in answer.items():
            if isinstance(result, KafkaError) and result.code in _ASK_AGAIN:
                again = result
            else:
                done[name] = result
        if again is not None:
            raise was_refused(cluster, again)

    if names:
        await cluster.retry(call, deadline, attempt, retries=retries)
    return {name: done.get(name, left_out()) for name in names}


def was_refused(cluster: Cluster, refusal: KafkaError) -> KafkaError:
    """Return the error as it is; if the broker is not the controller, forget the controller."""
    if refusal.code == ErrorCode.not_controller:
        cluster.forget_controller()
    return refusal
