"""The broker's loggers as a config resource: a logger's name is the key, its level the value.

Levels are Kafka's (KIP-412): FATAL is Python's CRITICAL, and TRACE is below DEBUG.  A level lasts
until the broker stops.  Texts are those of Kafka's RuntimeLoggerManager.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from kserver.cluster_config.configs import Op, OpType
from kserver.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

ROOT = "root"
LEVELS: Mapping[str, int] = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": logging.DEBUG // 2,
    "WARN": logging.WARNING,
}


def levels() -> dict[str, str]:
    """Return the effective level of each logger, including their parents, by name."""
    names = sorted(logging.root.manager.loggerDict)
    return {ROOT: _level(logging.root)} | {name: _level(logging.getLogger(name)) for name in names}


def alter(ops: Sequence[Op], *, validate_only: bool) -> None:
    """Apply all operations, or none; raises KafkaError."""
    logger_levels = levels()
    for op in ops:
        _check(op, logger_levels)
    if validate_only:
        return
    for name, type, level in ops:
        logger = logging.getLogger(None if name == ROOT else name)
        logger.setLevel(logging.NOTSET if type == OpType.DELETE else LEVELS[level or ""])
        log.warning("logger %s: level set to %s", name, _level(logger))


def _check(op: Op, logger_levels: Mapping[str, str]) -> None:
    if op.type not in (OpType.SET, OpType.DELETE):
        kind = OpType(op.type).name
        text = f"{kind} operation is not allowed for the BROKER_LOGGER resource"
        raise KafkaError(ErrorCode.invalid_request, text)
    if op.key not in logger_levels:
        raise KafkaError(ErrorCode.invalid_config, f"Logger {op.key} does not exist!")
    if op.type == OpType.DELETE and op.key == ROOT:
        text = f"Removing the log level of the {ROOT} logger is not allowed"
        raise KafkaError(ErrorCode.invalid_request, text)
    if op.type == OpType.SET and op.value not in LEVELS:
        raise KafkaError(
            ErrorCode.invalid_config,
            f"Cannot set the log level of {op.key} to {op.value} as it is not a supported log "
            f"level. Valid log levels are {', '.join(LEVELS)}",
        )


def _level(logger: logging.Logger) -> str:
    effective = logger.getEffectiveLevel()
    return max(LEVELS, key=lambda name: (LEVELS[name] <= effective, LEVELS[name]))
