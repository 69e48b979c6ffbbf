"""The controller, asked about several items, and again about those that met a former one."""

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
    """What `ask` is told of each name or id by the controller; asked again about those that met a
    former controller, or a quota (KIP-599).
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
    """The same, after a controller that says it is none was forgotten."""
    if refusal.code == ErrorCode.not_controller:
        cluster.forget_controller()
    return refusal
