"""Sends the records of a stream, and counts those that were not delivered."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from kcli.client.errors import ClientError
from kcli.command.command_runner import reason
from kcli.command.output import complain, prompt
from kcli.command.progress import Progress
from kcli.console import input
from kcli.console.incoming import InputFormat, TooLarge, Unreadable
from kcli.console.pace import RecordPace
from kserver.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kcli.client.config import ProducerConfig
    from kcli.client.producer.producer import BatchResult, Producer

VALUES_AT_ONCE = 2000
RECORD_OVERHEAD = 128
"""Upper bound of the bytes that a record adds to its value in a request."""

_OF_ONE_RECORD = frozenset(
    {
        ErrorCode.message_too_large,
        ErrorCode.invalid_timestamp,
        ErrorCode.unknown_topic_or_partition,
    }
)
"""Errors of one record, after which the producer may accept the next."""


class Sending:
    """One run: the records read, and their outcomes.

    `topic` overrides the one in a record; `per_second` limits the rate of records.
    """

    def __init__(
        self,
        topic: str | None,
        format: InputFormat,
        config: ProducerConfig,
        *,
        sync: bool = False,
        per_second: float | None = None,
    ) -> None:
        self.failed = False
        self._topic = topic
        self._format = format
        self._config = config
        self._sync = sync
        self._per_second = per_second
        self._pace: RecordPace | None = None
        self._progress: Progress | None = None
        self._read = 0
        """Number of records read, including those in hand."""
        self._read_bytes = 0
        """Bytes of the records before those in hand."""
        self._at = 0
        """Number of those in hand that were sent or given up."""
        self._delivered = 0
        self._lost: Counter[str] = Counter()
        self._ended = False

    async def all_of_stdin(self) -> None:
        """Send until the end of the input, or until no more can be sent."""
        from kcli.client.producer.producer import Producer
        from kcli.client.serialization import BYTES_OUT

        format = self._format
        if self._per_second is not None:
            self._pace = RecordPace(self._per_second, asyncio.get_running_loop().time())
        prompts = sys.stdin.isatty() and sys.stdout.isatty()
        async with Producer(self._config, **BYTES_OUT, on_batch=self._on_batch) as producer:
            stdin = sys.stdin.fileno()
            if size := input.bytes_left(stdin):
                self._progress = Progress("bytes", size, silent=True)
            prompt(1 if prompts else 0)
            async for chunk in input.chunks(stdin):
                pieces = format.feed(chunk)
                if not await self._sent(producer, pieces, len(chunk)):
                    break
                prompt(len(pieces) if prompts else 0)
            else:
                await self._sent(producer, format.end(), 0)
        self._ended = True

    def report(self) -> None:
        """Report records that were not delivered, if any, and after a signal those that were."""
        if self._progress is not None:
            self._progress.end()
        if self._lost:
            reasons = "; ".join(self._lost)
            complain(
                f"k console-producer: {self._lost.total()} of {self._read} records were not "
                f"delivered: {reasons}"
            )
        if not self._ended and self._read:
            complain(f"k console-producer: {self._delivered} records were delivered")

    async def _sent(self, producer: Producer, pieces: Sequence[Any], size: int) -> bool:
        """Send the pieces, read from `size` bytes; return whether to continue."""
        self._read += len(pieces)
        self._at = 0
        send: Callable[[Producer, Sequence[Any], int], Coroutine[Any, Any, None]]
        if self._sync:
            send = self._send_one_by_one
        else:
            send = self._send_values if self._is_easy(pieces) else self._send_records
        try:
            while self._at < len(pieces):
                await send(producer, pieces, await self._wait_for_values(len(pieces)))
                if self._progress is not None:
                    self._progress.at(self._read_bytes + size * self._at // len(pieces))
        except Unreadable as error:
            self._read -= len(pieces) - self._at
            self.failed = True
            complain(f"k console-producer: {error}")
            return False
        except (KafkaError, ClientError) as error:
            self._lose(len(pieces) - self._at, error)
            return False
        self._read_bytes += size
        return True

    async def _wait_for_values(self, end: int) -> int:
        """Return the end of those in hand that may be sent now; wait until there are any."""
        if self._pace is None:
            return end
        loop = asyncio.get_running_loop()
        while not (count := self._pace.take(end - self._at, loop.time())):
            await asyncio.sleep(self._pace.pause_s)
        return self._at + count

    def _is_easy(self, pieces: Sequence[Any]) -> bool:
        """Whether each piece is a value, and none is too large to be sent."""
        if not self._format.is_plain or self._topic is None:
            return False
        longest = max(map(len, pieces), default=0)
        return longest + RECORD_OVERHEAD <= self._config.max_request_size

    async def _send_values(self, producer: Producer, values: Sequence[Any], end: int) -> None:
        assert self._topic is not None
        while self._at < end:
            some = values[self._at : min(self._at + VALUES_AT_ONCE, end)]
            count = producer.try_send_all(self._topic, some)
            self._at += count
            if count < len(some):
                await producer.ready(self._topic)

    async def _send_records(self, producer: Producer, pieces: Sequence[Any], end: int) -> None:
        offer, read, default = producer.try_send, self._format.read, self._topic
        before = self._read - len(pieces)
        for piece in islice(pieces, self._at, end):
            number = before + self._at + 1
            try:
                value, key, headers, partition, timestamp, own = read(piece, number)
                topic = default or own or self._no_topic(number)
                while not offer(topic, value, key, partition, timestamp, headers):
                    await producer.ready(topic)
            except (TooLarge, KafkaError) as error:
                self._lose(1, self._of_one_record(error), f"{self._format.unit} {number}")
            self._at += 1

    async def _send_one_by_one(self, producer: Producer, pieces: Sequence[Any], end: int) -> None:
        before = self._read - len(pieces)
        for piece in islice(pieces, self._at, end):
            number = before + self._at + 1
            try:
                record = self._format.read(piece, number)
            except TooLarge as error:
                raise self._of_one_record(error) from None
            topic = self._topic or record.topic or self._no_topic(number)
            value, key, headers, partition, timestamp, _ = record
            sent = await producer.send(topic, value, key, partition, timestamp, headers)
            await producer.flush()
            await sent
            self._at += 1

    def _no_topic(self, number: int) -> str:
        raise Unreadable(f"record {number} names no topic, and --topic is not given")

    def _on_batch(self, result: BatchResult) -> None:
        if result.error is None:
            self._delivered += len(result.records)
        elif not self._sync:
            self._lose(len(result.records), result.error)

    def _of_one_record(self, error: TooLarge | KafkaError) -> KafkaError:
        """Return the error of one record; raise an error that concerns those after it too."""
        if isinstance(error, KafkaError) and error.code not in _OF_ONE_RECORD:
            raise error
        if isinstance(error, KafkaError) and error.code != ErrorCode.message_too_large:
            return error
        return KafkaError(
            ErrorCode.message_too_large,
            f"larger than max.request.size, which is {self._config.max_request_size} bytes",
        )

    def _lose(self, count: int, error: Exception, what: str = "a record") -> None:
        self.failed = True
        why = reason(error)
        if why not in self._lost:
            complain(f"k console-producer: {what} was not delivered: {why}")
        self._lost[why] += count
