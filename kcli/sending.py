"""Sends the lines of a stream as records, and knows in the end how many were not delivered."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from operator import length_hint
from typing import TYPE_CHECKING

from kcli import input
from kcli.client.errors import ClientError
from kcli.client.producer import wall_clock_ms
from kcli.line_reader import LineReader, LineSplitter, Unreadable
from kcli.output import complain, prompt
from kcli.running import reason
from kserver.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kcli.client.config import ProducerConfig
    from kcli.client.producer import Delivered, Producer


class Sending:
    """One run: what was read, and what became of it."""

    def __init__(self, topic: str, reader: LineReader, sync: bool) -> None:
        self.failed = False
        self._read = 0
        self._lost: Counter[str] = Counter()
        self._topic = topic
        self._reader = reader
        self._sync = sync

    async def all_of_stdin(self, config: ProducerConfig) -> None:
        """Until the end of the input, or until nothing more can be sent."""
        from kcli.client.producer import Producer

        splitter = LineSplitter(2 * config.max_request_size)
        prompts = sys.stdin.isatty() and sys.stdout.isatty()
        async with Producer(config, on_batch=self._told) as producer:
            prompt(1 if prompts else 0)
            async for chunk in input.chunks(sys.stdin.fileno()):
                lines = splitter.feed(chunk)
                if not await self._go_on(producer, lines):
                    return
                prompt(len(lines) if prompts else 0)
            await self._go_on(producer, splitter.end())

    def report(self) -> None:
        lost = self._lost.total()
        if lost:
            reasons = "; ".join(self._lost)
            complain(
                f"k console-producer: {lost} of {self._read} records were not delivered: {reasons}"
            )

    async def _go_on(self, producer: Producer, lines: Sequence[bytes]) -> bool:
        """Send the lines; whether there is any use in reading more."""
        self._read += len(lines)
        ahead = iter(lines)
        if self._sync:
            send = self._send_one_by_one
        else:
            send = self._send_values if self._reader.is_plain else self._send_records
        while True:
            try:
                await send(producer, ahead)
                return True
            except Unreadable as error:
                self._read -= 1 + length_hint(ahead)
                self.failed = True
                complain(f"k console-producer: {error}")
                return False
            except KafkaError as error:
                if self._sync or error.code != ErrorCode.message_too_large:
                    self._lose(1 + length_hint(ahead), error)
                    return False
                self._lose(1, error)
            except ClientError as error:
                self._lose(1 + length_hint(ahead), error)
                return False

    async def _send_values(self, producer: Producer, ahead: Iterator[bytes]) -> None:
        """What takes the time when a file is sent: nothing is done here that need not be."""
        offer, topic, now_ms = producer.try_send, self._topic, wall_clock_ms()
        for line in ahead:
            while not offer(topic, line, timestamp=now_ms):
                await producer.ready(topic)

    async def _send_records(self, producer: Producer, ahead: Iterator[bytes]) -> None:
        offer, topic, now_ms = producer.try_send, self._topic, wall_clock_ms()
        read = self._reader.read
        for number, line in enumerate(ahead, self._read - length_hint(ahead) + 1):
            value, key, headers = read(line, number)
            while not offer(topic, value, key, headers=headers, timestamp=now_ms):
                await producer.ready(topic)

    async def _send_one_by_one(self, producer: Producer, ahead: Iterator[bytes]) -> None:
        for number, line in enumerate(ahead, self._read - length_hint(ahead) + 1):
            value, key, headers = self._reader.read(line, number)
            sent = await producer.send(self._topic, value, key, headers=headers)
            await producer.flush()
            await sent

    def _told(self, delivered: Delivered) -> None:
        if delivered.error is not None and not self._sync:
            self._lose(len(delivered.records), delivered.error)

    def _lose(self, count: int, error: Exception) -> None:
        self.failed = True
        why = reason(error)
        if why not in self._lost:
            complain(f"k console-producer: a record was not delivered: {why}")
        self._lost[why] += count
