"""Charges requests to their client's quotas, and throttles the client (KIP-124, KIP-219).

A response is sent at once with the throttle time, and the connection's next requests are dispatched
after it.  Request time is what this broker's one thread spends on a request, so 100 percent is all
of it, up to its response or until it is parked.  The time that a parked Fetch takes later is not
counted.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Coroutine, Generator
from typing import Any

from kserver.api.context import Context, Parts, Session
from kserver.errors import ErrorCode, KafkaError
from kserver.wire.codec import RequestHeader


def charge_produce(
    size: int, acks: int, began_s: float, header: RequestHeader, session: Session, parts: Parts
) -> int:
    """Charge a handled Produce request of `size` bytes; return the throttle time in ms.

    With acks=0 only its bytes count: there is no response to hold the throttle time.
    """
    quotas = parts.quotas
    now_s = parts.loop.time()
    now_ms, client_id = int(now_s * 1000), header.client_id or ""
    wait_ms = 0
    if quotas.produce is not None:
        wait_ms = quotas.produce.charge(session.user, client_id, size, now_ms)
    if acks != 0:
        wait_ms = max(wait_ms, _spent(now_s - began_s, now_s, client_id, session, parts))
    if wait_ms:
        session.throttle(wait_ms)
    return wait_ms


def charge_request(began_s: float, header: RequestHeader, session: Session, parts: Parts) -> int:
    """Charge a handled request that counts by its time alone; return the throttle time in ms."""
    now_s = parts.loop.time()
    wait_ms = _spent(now_s - began_s, now_s, header.client_id or "", session, parts)
    if wait_ms:
        session.throttle(wait_ms)
    return wait_ms


def charge_fetch(size: int, spent_s: float, client_id: str, session: Session, parts: Parts) -> int:
    """Charge `size` bytes of records to be sent; return the throttle time in ms.  Unless it is 0,
    the records must not be sent."""
    quotas = parts.quotas
    now_s = parts.loop.time()
    wait_ms = _spent(spent_s, now_s, client_id, session, parts)
    if quotas.fetch is not None and size and not wait_ms:
        wait_ms = quotas.fetch.admit(session.user, client_id, size, int(now_s * 1000))
    if wait_ms:
        session.throttle(wait_ms)
    return wait_ms


def max_fetch_bytes(limit: int, client_id: str, session: Session, parts: Parts) -> int:
    """Return `limit`, or the amount that may be fetched at once if that is less."""
    if parts.quotas.fetch is None:
        return limit
    most = parts.quotas.fetch.most(session.user, client_id)
    return limit if most is None else min(limit, int(most))


async def timed(
    work: Coroutine[Any, Any, Any], header: RequestHeader, session: Session, parts: Parts
) -> Any:
    """Return the response of `work`, with the throttle time for the time that it took."""
    timer = _Timer(work, parts)
    response = await timer
    now_s = parts.loop.time()
    wait_ms = _spent(timer.spent_s, now_s, header.client_id or "", session, parts)
    return throttled(response, wait_ms, session) if wait_ms else response


def throttled(response: Any, wait_ms: int, session: Session) -> Any:
    """Throttle the session, and return the response with `wait_ms` unless it has a longer one."""
    session.throttle(wait_ms)
    wait = datetime.timedelta(milliseconds=wait_ms)
    if getattr(response, "throttle_time", wait) >= wait:
        return response
    return dataclasses.replace(response, throttle_time=wait)


def _spent(spent_s: float, now_s: float, client_id: str, session: Session, parts: Parts) -> int:
    if parts.quotas.request is None:
        return 0
    return parts.quotas.request.charge(session.user, client_id, spent_s * 100, int(now_s * 1000))


class Mutations:
    """Partitions that a request changes, charged to controller_mutation_rate.

    `strict` refuses a request above the rate; else the client is only throttled, since its version
    does not know that error.
    """

    def __init__(self, context: Context, *, strict: bool) -> None:
        self._context = context
        self._strict = strict
        self._wait_ms = 0

    def charge(self, partitions: int) -> None:
        """Charge the partitions.  Raises THROTTLING_QUOTA_EXCEEDED."""
        parts, session = self._context.parts, self._context.session
        if parts.quotas.mutation is None:
            return
        may, wait_ms = parts.quotas.mutation.charge(
            session.user,
            self._context.client_id or "",
            partitions,
            int(parts.loop.time() * 1000),
            strict=self._strict,
        )
        self._wait_ms = max(self._wait_ms, wait_ms)
        if not may:
            raise KafkaError(
                ErrorCode.throttling_quota_exceeded, "The throttling quota has been exceeded."
            )

    def throttled(self, response: Any) -> Any:
        """Return the response with the throttle time."""
        return (
            throttled(response, self._wait_ms, self._context.session) if self._wait_ms else response
        )


class _Timer:
    """Awaits `work`, and adds up the time that its own steps take."""

    def __init__(self, work: Coroutine[Any, Any, Any], parts: Parts) -> None:
        self._work = work
        self._now = parts.loop.time
        self.spent_s = 0.0

    def __await__(self) -> Generator[Any, Any, Any]:
        waits = self._step(None)
        while not isinstance(waits, _Done):
            try:
                yield waits[0]
            except BaseException as error:
                waits = self._step(error)
            else:
                waits = self._step(None)
        return waits.result

    def _step(self, error: BaseException | None) -> Any:
        began_s = self._now()
        try:
            return (self._work.send(None) if error is None else self._work.throw(error),)
        except StopIteration as end:
            return _Done(end.value)
        finally:
            self.spent_s += self._now() - began_s


@dataclasses.dataclass(frozen=True, slots=True)
class _Done:
    result: Any
