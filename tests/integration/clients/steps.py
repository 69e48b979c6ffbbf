"""Clients in other languages: one program per language, which reads calls from standard input.

A call is a line of JSON: {"call": "produce", "at": ADDRESS, ...}; a response is {"result": ...} or
{"refused": CODE, "text": ...}. Bytes are encoded as base64. A program serves every address and
keeps its clients open, so that it is started only once.
"""

from __future__ import annotations

import base64
import json
import queue
import subprocess
import threading
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

ANSWER_TIMEOUT_S = 2 * CONSUME_TIMEOUT_S


class Program:
    def __init__(self, command: Sequence[str], **options: Any) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )
        self._answers: queue.Queue[str] = queue.Queue()
        self._said: list[str] = []
        for read in (self._read_answers, self._read_errors):
            threading.Thread(target=read, daemon=True).start()

    def _read_answers(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self._said.extend(self._process.stderr)

    def call(self, name: str, address: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"call": name, "at": address} | arguments) + "\n")
        self._process.stdin.flush()
        line = self._answers.get(timeout=ANSWER_TIMEOUT_S)
        if not line:
            raise RuntimeError("the program ended:\n" + "".join(self._said[-50:]))
        answer = json.loads(line)
        if "refused" in answer:
            raise Refused(answer["refused"], answer["text"])
        return answer["result"]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(ANSWER_TIMEOUT_S)


class SteppedClient:
    """A client that runs in a Program."""

    def __init__(self, program: Program, address: str) -> None:
        self._program = program
        self._address = address

    def _call(self, name: str, **arguments: Any) -> Any:
        return self._program.call(name, self._address, **arguments)

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        idempotent: bool = False,
        patience_s: int = PATIENCE_S,
    ) -> list[int]:
        sent = [
            {
                "value": _to_text(record.value),
                "key": _to_text(record.key),
                "headers": [[name, _to_text(value)] for name, value in record.headers],
                "timestamp": record.timestamp,
                "partition": record.partition,
            }
            for record in records
        ]
        offsets: list[int] = self._call(
            "produce",
            topic=topic,
            records=sent,
            codec=codec,
            idempotent=idempotent,
            patience_ms=1000 * patience_s,
            linger_ms=LINGER_MS,
            batch_bytes=BATCH_BYTES,
            max_request_bytes=MAX_REQUEST_BYTES,
        )
        return offsets

    def consume(self, topic: str, starts: Mapping[int, int], count: int) -> list[Record]:
        read = self._call(
            "consume",
            topic=topic,
            starts={str(p): offset for p, offset in starts.items()},
            count=count,
            timeout_s=CONSUME_TIMEOUT_S,
        )
        if len(read) < count:
            raise TimeoutError(f"{len(read)} of {count} records")
        return [
            Record(
                _to_bytes(one["value"]),
                _to_bytes(one["key"]),
                tuple((name, _to_bytes(value)) for name, value in one["headers"]),
                one["timestamp"],
                one["partition"],
                one["offset"],
                one["timestamp_type"],
            )
            for one in read
        ]

    def offsets(self, topic: str, partition: int, times: Sequence[int]) -> list[int]:
        found: list[int] = self._call("offsets", topic=topic, partition=partition, times=times)
        return found

    def create(self, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        self._call("create", topic=topic, partitions=partitions, config=config)

    def topics(self) -> set[str]:
        return set(self._call("topics"))

    def partitions(self, topic: str) -> int:
        return int(self._call("partitions", topic=topic))

    def grow(self, topic: str, partitions: int) -> None:
        self._call("grow", topic=topic, partitions=partitions)

    def config(self, topic: str) -> dict[str, str | None]:
        told: dict[str, str | None] = self._call("config", topic=topic)
        return told

    def delete(self, topic: str) -> None:
        self._call("delete", topic=topic)

    def close(self) -> None:
        self._call("close")


def _to_text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _to_bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
