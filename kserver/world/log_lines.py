"""Formats of log lines: text for people, JSON for programs.

    text   [2026-01-31 12:00:00,123] INFO listening on PLAINTEXT://:9092 (kserver)
    json   {"time": "2026-01-31T11:00:00.123Z", "level": "INFO", "logger": "kserver", "message": ..}

An event is one line, whatever it quotes: unprintable characters, such as a line feed or a terminal
escape in a client's name, are written as Python escapes. In text, a traceback follows its line,
indented; in JSON it is `exception`. `extra={"facts": {...}}` adds fields to the object.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

TEXT = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"
_INDENT = "    "


def printable(text: str) -> str:
    """Return the text with all unprintable characters escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class TextLines(logging.Formatter):
    def __init__(self) -> None:
        super().__init__(TEXT)

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = printable(record.message)
        return super().formatMessage(record)

    def formatException(self, exc_info) -> str:  # type: ignore[no-untyped-def]
        lines = super().formatException(exc_info).split("\n")
        return "\n".join(_INDENT + printable(line) for line in lines)

    def formatStack(self, stack_info: str) -> str:
        return "\n".join(_INDENT + printable(line) for line in stack_info.split("\n"))


class JsonLogLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def set_up(kind: str, levels: dict[str, int]) -> None:
    """Log to standard output; `levels` by the logger's name, "" for the root."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonLogLines() if kind == "json" else TextLines())
    logging.root.handlers = [handler]
    logging.root.setLevel(logging.INFO)
    for name, level in levels.items():
        logging.getLogger(name or None).setLevel(level)
