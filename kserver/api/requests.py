"""Metrics of answered requests: counts and times, and a log line for each slow one.

    kserver.request: Fetch v13 from 127.0.0.1 on PLAINTEXT, client id 'app': 501.2 ms
        (0.1 handled, 501.1 waited), request 98 bytes, response 62 bytes

The line is logged at INFO for each request of `request.log.slow.ms` or longer; any other request
costs one comparison.  Text that the client sent is escaped.  Requests are not counted if their
connection closed first, or if they were never received completely.

(Kafka: RequestChannel's metrics, and kafka.request.logger, which logs all requests or none.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from math import inf

from kserver.config.broker import BrokerConfig
from kserver.metrics.meters import RequestMeter
from kserver.network.conversation import ResponseData
from kserver.wire.codec import RequestHeader, api_name

log = logging.getLogger("kserver.request")


class Requests:
    def __init__(self, clock: Callable[[], float], served: Mapping[int, range]) -> None:
        """`clock` returns seconds from any start; `served` are the versions of each API key."""
        self.clock = clock
        self.meters = {key: RequestMeter(versions.stop) for key, versions in served.items()}
        """Meters by API key."""
        self.slow_s = inf
        """Duration in seconds from which a request is logged."""

    def configure(self, config: BrokerConfig) -> None:
        slow_ms = config.request_log_slow_ms
        self.slow_s = inf if slow_ms < 0 else slow_ms / 1000

    def log_slow(
        self,
        header: RequestHeader,
        address: str,
        listener: str,
        request_bytes: int,
        response: ResponseData | None,
        took_s: float,
        handled_s: float,
    ) -> None:
        """Log a request that took `took_s`, of which `handled_s` until it was answered or began to
        wait."""
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
            "answer_bytes": _size(response),
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
            _size(response),
            extra={"facts": facts},
        )


def _size(response: ResponseData | None) -> int:
    if response is None:
        return 0
    if isinstance(response, bytes):
        return len(response)
    return sum(len(part) if isinstance(part, bytes) else part.size for part in response)
