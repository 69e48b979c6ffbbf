"""Metrics, health checks and logging of a broker."""

from __future__ import annotations

import re

from kserver.config.setting import (
    CLUSTER,
    LONG,
    STRING,
    SettingCheck,
    at_least,
    one_of,
    section,
    setting,
)
from kserver.metrics.names import JMX, NAMINGS

_LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
_LEVEL = re.compile(rf"(?:[\w.]+=)?(?:{'|'.join(_LEVELS)})")
_ADDRESS = re.compile(r"(?:[\w.-]*|\[[0-9a-fA-F:]+\]):([0-9]{1,5})")


def _no_address(text: str | None) -> str | None:
    match = None if text is None else _ADDRESS.fullmatch(text)
    if text is None or (match and int(match[1]) < 1 << 16):
        return None
    return "Value must be host:port; without a host it is every interface"


def _no_levels(entries: tuple[str, ...]) -> str | None:
    if all(map(_LEVEL.fullmatch, entries)):
        return None
    return f"Each must be a level, or logger=level; levels are {', '.join(_LEVELS)}"


@section
class ObservabilitySettings:
    """Metrics, health, log lines."""

    http_listener: str | None = setting(
        "http.listener",
        None,
        SettingCheck("host:port", _no_address),
        type=STRING,
        doc=(
            "address that serves /metrics, /healthz and /readyz over HTTP, for example "
            "127.0.0.1:9404; disabled when unset.  Every client that can connect to it can read "
            "all metrics, including topic names"
        ),
    )
    metrics_naming: str = setting(
        "metrics.naming",
        JMX,
        one_of(*NAMINGS),
        doc=(
            "metric names: jmx, as Prometheus' JMX exporter names Kafka's metrics, or reporter, "
            "as Strimzi's metrics reporter names them"
        ),
    )
    request_log_slow_ms: int = setting(
        "request.log.slow.ms",
        -1,
        at_least(-1),
        type=LONG,
        dynamic=CLUSTER,
        doc="log each request that takes at least this long; -1 to log none",
    )
    log_format: str = setting(
        "log.format",
        "text",
        one_of("text", "json"),
        doc=(
            "format of log lines: text, or json, one object per line with time, level, logger, "
            "message and, if any, exception"
        ),
    )
    log_level: tuple[str, ...] = setting(
        "log.level",
        ("INFO",),
        SettingCheck("LEVEL or logger=LEVEL", _no_levels),
        doc=(
            "minimum level of log lines, for all loggers or for one logger and those below it, "
            "for example INFO,kserver.network=DEBUG.  To change levels at run time, alter the "
            "configs of the broker-loggers entity"
        ),
    )
