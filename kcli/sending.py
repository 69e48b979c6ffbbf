"""Sends the lines of a stream as records, and knows in the end how many were not delivered."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from kcli import input
from kcli.client.errors import ClientError
from kcli.line_reader import LineReader, LineSplitter, Unreadable
from kcli.output import complain, prompt
from kcli.running import reason
from kserver.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kcli.client.config import ProducerConfig
    from kcli.client.producer import Delivered, Producer

LINES_AT_ONCE = 2000
RECORD_OVERHEAD = 128
"""No record adds so many bytes to its value in a request."""


class Sending:
    """One run: what was read, and what became of it."""

    def __init__(
        self, topic: str, reader: LineReader, config: ProducerConfig, *, sync: bool = False
    ) -> None:
        self.failed = False
        self._topic = topic
        self._reader = reader
        self._config = config
        self._sync = sync
        self._read = 0
        """How many lines were read, with those in hand."""
        self._at = 0
        """How many of those in hand were sent or given up."""
        self._lost: Counter[str] = Counter()

    async def all_of_stdin(self) -> None:
        """Until the end of the input, or until nothing more can be sent."""
        from kcli.client.producer import Producer

        splitter = LineSplitter(2 * self._config.max_request_size)
        prompts = sys.stdin.isatty() and sys.stdout.isatty()
        async with Producer(self._config, on_batch=self._told) as producer:
            prompt(1 if prompts else 0)
            async for chunk in input.chunks(sys.stdin.fileno()):
                lines = splitter.feed(chunk)
                if not await self._sent(producer, lines):
                    return
                prompt(len(lines) if prompts else 0)
            await self._sent(producer, splitter.end())

    def report(self) -> None:
        """Say what was not delivered, if anything."""
        lost = self._lost.total()
        if lost:
            reasons = "; ".join(self._lost)
            complain(
                f"k console-producer: {lost} of {self._read} records were not delivered: {reasons}"
            )

    async def _sent(self, producer: Producer, lines: Sequence[bytes]) -> bool:
        """Send the lines; whether there is any use in reading more."""
        self._read += len(lines)
        self._at = 0
        if self._sync:
            send = self._send_one_by_one
        else:
            send = self._send_values if self._is_easy(lines) else self._send_records
        while self._at < len(lines):
            try:
                await send(producer, lines)
            except Unreadable as error:
                self._read -= len(lines) - self._at
                self.failed = True
                complain(f"k console-producer: {error}")
                return False
            except (KafkaError, ClientError) as error:
                too_large = (
                    isinstance(error, KafkaError) and error.code == ErrorCode.message_too_large
                )
                if self._sync or not too_large:
                    self._lose(len(lines) - self._at, error)
                    return False
                self._lose(1, error)
                self._at += 1
        return True

    def _is_easy(self, lines: Sequence[bytes]) -> bool:
        """Whether each line is a value, and none too large to be sent."""
        longest = max(map(len, lines), default=0)
        fits = longest + RECORD_OVERHEAD <= self._config.max_request_size
        return self._reader.is_plain and fits

    async def _send_values(self, producer: Producer, lines: Sequence[bytes]) -> None:
        while self._at < len(lines):
            some = lines[self._at : self._at + LINES_AT_ONCE]
            taken = producer.try_send_all(self._topic, some)
            self._at += taken
            if taken < len(some):
                await producer.ready(self._topic)

    async def _send_records(self, producer: Producer, lines: Sequence[bytes]) -> None:
        offer, read, topic = producer.try_send, self._reader.read, self._topic
        before = self._read - len(lines)
        for line in islice(lines, self._at, None):
            value, key, headers = read(line, before + self._at + 1)
            while not offer(topic, value, key, headers=headers):
                await producer.ready(topic)
            self._at += 1

    async def _send_one_by_one(self, producer: Producer, lines: Sequence[bytes]) -> None:
        before = self._read - len(lines)
        for line in islice(lines, self._at, None):
            value, key, headers = self._reader.read(line, before + self._at + 1)
            sent = await producer.send(self._topic, value, key, headers=headers)
            await producer.flush()
            await sent
            self._at += 1

    def _told(self, delivered: Delivered) -> None:
        if delivered.error is not None and not self._sync:
            self._lose(len(delivered.records), delivered.error)

    def _lose(self, count: int, error: Exception) -> None:
        self.failed = True
        why = reason(error)
        if why not in self._lost:
            complain(f"k console-producer: a record was not delivered: {why}")
        self._lost[why] += count
