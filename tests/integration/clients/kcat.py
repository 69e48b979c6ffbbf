"""kcat: librdkafka on the command line, one process per call."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from tests.integration.clients.client import (
    BATCH_BYTES,
    CONSUME_TIMEOUT_S,
    LINGER_MS,
    MAX_REQUEST_BYTES,
    PATIENCE_S,
    Record,
    Refused,
)

RECORD_END, KEY_END = "\\x1e\\x1e", "\\x1f\\x1f"
"""Separators that do not occur in any record here."""

ERRORS = {
    "Broker: Offset out of range": 1,
    "Broker: Unknown topic or partition": 3,
    "Local: Unknown topic": 3,
    "Local: Unknown partition": 3,
    "Broker: Message size too large": 10,
    "Broker: Invalid topic": 17,
}
DELIVERED = re.compile(rb"Message delivered to partition \d+ \(offset (\d+)\)")
TIMESTAMP_TYPES = {"create": "create", "logappend": "append"}


class KcatClient:
    def __init__(self, program: str, address: str) -> None:
        self._command = [program, "-b", address]

    def _run(self, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        command = [*self._command, *words]
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=CONSUME_TIMEOUT_S)
        said = done.stderr.decode()
        for text, code in ERRORS.items():
            if text in said:
                raise Refused(code, said)
        assert done.returncode == 0, said
        return done

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        idempotent: bool = False,
        patience_s: int = PATIENCE_S,
    ) -> list[int]:
        settings = {
            "enable.idempotence": str(idempotent).lower(),
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
            "message.max.bytes": MAX_REQUEST_BYTES,
            "topic.metadata.propagation.max.ms": 1000 * patience_s,
        }
        words = ["-P", "-vvv", "-t", topic, "-z", codec, "-D", RECORD_END, "-K", KEY_END]
        words += [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]
        offsets: list[int] = []
        for (partition, headers, has_null), group in itertools.groupby(records, _options):
            own = [word for name, value in headers for word in ("-H", f"{name}={value.decode()}")]
            own += ["-Z"] if has_null else []
            lines = [_line(record) for record in group]
            done = self._run(
                *words, *own, "-p", str(partition), stdin=_bytes(RECORD_END).join(lines)
            )
            offsets += [int(found[1]) for found in DELIVERED.finditer(done.stderr)]
        return offsets

    def consume(self, topic: str, starts: Mapping[int, int], count: int) -> list[Record]:
        words = ["-C", "-J", "-t", topic, "-c", str(count), "-X", "auto.offset.reset=error"]
        if len(starts) == 1:
            ((partition, offset),) = starts.items()
            words += ["-p", str(partition), "-o", str(offset)]
        else:
            assert set(starts.values()) == {0}
            words += ["-o", "beginning"]
        # kcat prints bytes that are not ASCII unescaped.
        lines = self._run(*words).stdout.decode("latin-1").split("\n")
        return [_record(json.loads(line)) for line in lines if line]

    def offsets(self, topic: str, partition: int, times: Sequence[int]) -> list[int]:
        asked = [word for time_ms in times for word in ("-t", f"{topic}:{partition}:{time_ms}")]
        found = []
        for pair in zip(asked[::2], asked[1::2], strict=True):
            told = self._run("-Q", *pair).stdout.decode()
            found.append(int(told.rpartition("offset ")[2]))
        return found

    def topics(self) -> set[str]:
        told = json.loads(self._run("-L", "-J").stdout)
        return {one["topic"] for one in told["topics"]}

    def partitions(self, topic: str) -> int:
        ((told),) = json.loads(self._run("-L", "-J", "-t", topic).stdout)["topics"]
        return len(told["partitions"])

    def close(self) -> None: ...


def _bytes(escaped: str) -> bytes:
    return escaped.encode().decode("unicode_escape").encode()


def _options(record: Record) -> tuple[Any, ...]:
    """Return the properties that kcat can set only for a whole process; -Z turns empty keys and
    values into nulls."""
    return record.partition, record.headers, record.value is None


def _line(record: Record) -> bytes:
    key = b"" if record.key is None else record.key + _bytes(KEY_END)
    return key + (record.value or b"")


def _record(told: dict[str, Any]) -> Record:
    headers = told.get("headers", [])
    return Record(
        _raw(told["payload"]),
        _raw(told["key"]),
        tuple(
            (_raw(name).decode(), _raw(value))
            for name, value in zip(headers[::2], headers[1::2], strict=True)
        ),
        told["ts"],
        told["partition"],
        told["offset"],
        TIMESTAMP_TYPES[told["tstype"]],
    )


def _raw(text: str | None) -> bytes | None:
    return None if text is None else text.encode("latin-1")
