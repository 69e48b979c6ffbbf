"""Every request that was answered: counted, timed, and named in the log when it was slow.

    kserver.request: Fetch v13 from 127.0.0.1 on PLAINTEXT, client id 'app': 501.2 ms
        (0.1 handled, 501.1 waited), request 98 bytes, answer 62

A line for each request of `request.log.slow.ms` or longer, at level INFO; a comparison of numbers
for each other.  What a client says of itself is escaped.  Not counted: requests whose connection
ended first, or that were never read to their end.

(Kafka: RequestChannel's metrics, and kafka.request.logger, which has all requests or none.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from math import inf

from kserver.config.broker import BrokerConfig
from kserver.metrics.meters import RequestMeter
from kserver.network.conversation import Parts as Answer
from kserver.wire.codec import RequestHeader, api_name

log = logging.getLogger("kserver.request")


class Requests:
    def __init__(self, clock: Callable[[], float], served: Mapping[int, range]) -> None:
        """`clock` tells seconds, from whenever; `served` are the versions of each API key."""
        self.clock = clock
        self.meters = {key: RequestMeter(versions.stop) for key, versions in served.items()}
        """By API key."""
        self.slow_s = inf
        """From which time on a request is named."""

    def configure(self, config: BrokerConfig) -> None:
        slow_ms = config.request_log_slow_ms
        self.slow_s = inf if slow_ms < 0 else slow_ms / 1000

    def tell(
        self,
        header: RequestHeader,
        address: str,
        listener: str,
        request_bytes: int,
        answer: Answer | None,
        took_s: float,
        handled_s: float,
    ) -> None:
        """Name a request that took `took_s`, of which `handled_s` until it was answered or began
        to wait."""
        took_ms, handled_ms = took_s * 1000, handled_s * 1000
        facts = {
            "api": api_name(header.api_key),
            "version": header.api_version,
            "address": address,
            "listener": listener,
            "client_id": header.client_id,
            "took_ms": round(took_ms, 3),
            "handled_ms": round(handled_ms, 3),
            "request_bytes": request_bytes,
            "answer_bytes": _size(answer),
        }
        log.info(
            "%s v%d from %s on %s, client id %r: %.1f ms (%.1f handled, %.1f waited),"
            " request %d bytes, response %d bytes",
            facts["api"],
            header.api_version,
            address,
            listener,
            header.client_id,
            took_ms,
            handled_ms,
            took_ms - handled_ms,
            request_bytes,
            _size(answer),
            extra={"facts": facts},
        )


def _size(answer: Answer | None) -> int:
    if answer is None:
        return 0
    if isinstance(answer, bytes):
        return len(answer)
    return sum(len(part) if isinstance(part, bytes) else part.size for part in answer)
