"""Producing: sends records as fast as possible, or at a fixed rate, and measures each.

No Python code runs for a single record: values are passed to the client by the thousand, and
outcomes arrive by the batch, with the timestamps from which the due times follow (see `schedule`).
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

from kcli.command.command_runner import reason
from kcli.perf.payloads import Payloads
from kcli.perf.schedule import Fixed, Schedule, Unlimited
from kcli.perf.tally import Sum, Tally

if TYPE_CHECKING:
    from kcli.client.config import ProducerConfig
    from kcli.client.producer.producer import BatchResult, Producer

AT_ONCE = 2000

_timestamp = itemgetter(0)
_value = itemgetter(2)


@dataclass(frozen=True, slots=True)
class ProducerLoad:
    """`rate` is in records per second, None without a limit."""

    topic: str
    records: int
    payloads: Payloads
    rate: float | None = None
    warmup: int = 0
    report_every_s: float = 5.0
    transaction_s: float | None = None
    """Seconds before a transaction is committed; None: no transactions."""


class Producing:
    """One run; `on_window` is called for each reporting interval, with the number of records lost
    so far, and whether it is the first after the warm-up.
    """

    def __init__(
        self,
        load: ProducerLoad,
        config: ProducerConfig,
        on_window: Callable[[Sum, int, bool], object],
    ) -> None:
        self.lost: Counter[str] = Counter()
        """Numbers of records that were not delivered, by reason."""
        self._load = load
        self._config = config
        self._on_window = on_window
        self._schedule: Schedule = Unlimited(0)
        self._start_s = 0.0
        self._end_s = 0.0
        self._all = self._window = Tally(0.0)
        self._steady: Tally | None = None
        self._has_reported_steady = False

    @property
    def has_begun(self) -> bool:
        return self._start_s > 0

    @property
    def total(self) -> Sum:
        return self._all.sum(self._end_s)

    @property
    def steady(self) -> Sum | None:
        """The sum without the warm-up."""
        return None if self._steady is None else self._steady.sum(self._end_s)

    async def all(self) -> None:
        """Send until each record is delivered or lost; the clock starts once the topic is known.

        Raises TimedOut if there is no topic or no memory in time, KafkaError if a record is too
        large, TransactionFailed if a commit fails; measurements until then are kept.
        """
        from kcli.client.producer.producer import Producer, wall_clock_ms
        from kcli.client.serialization import BYTES_OUT

        loop = asyncio.get_running_loop()
        load = self._load
        async with Producer(self._config, **BYTES_OUT, on_batch=self._on_batch) as producer:
            if load.transaction_s is not None:
                await producer.init_transactions()
            await producer.partitions_for(load.topic)
            start_ms, self._start_s = wall_clock_ms(), loop.time()
            self._all, self._window = Tally(self._start_s), Tally(self._start_s)
            self._schedule = (
                Unlimited(start_ms, load.warmup)
                if load.rate is None
                else Fixed(load.rate, start_ms, load.warmup)
            )
            try:
                await self._send(producer)
                await producer.flush()
            finally:
                self._end_s = loop.time()

    async def _send(self, producer: Producer) -> None:
        time, load, schedule = asyncio.get_running_loop().time, self._load, self._schedule
        sent = 0
        until_s: float | None = None
        while sent < load.records:
            if load.transaction_s is not None and (until_s is None or time() >= until_s):
                if until_s is not None:
                    await producer.commit_transaction()
                await producer.begin_transaction()
                until_s = time() + load.transaction_s
            elapsed_s = time() - self._start_s
            end = int(min(load.records, sent + AT_ONCE, schedule.due(elapsed_s)))
            if end <= sent:
                await asyncio.sleep(schedule.time_of(sent) - elapsed_s)
                continue
            if load.warmup and sent == load.warmup:
                self._steady = Tally(time())
                self._window = Tally(time())
            timestamp_ms, count = schedule.run(sent, end, elapsed_s)
            values = load.payloads.take(sent, count)
            sent_now = producer.try_send_all(load.topic, values, timestamp_ms)
            sent += sent_now
            if sent_now < len(values):
                await producer.ready(load.topic)
            else:
                # Yield, so that records are sent and responses are handled.
                await asyncio.sleep(0)
        if until_s is not None:
            await producer.commit_transaction()

    def _on_batch(self, result: BatchResult) -> None:
        """Count the outcome of a batch; its timestamps never decrease."""
        records = result.records
        if result.error is not None:
            self.lost[reason(result.error)] += len(records)
            return
        now_s = asyncio.get_running_loop().time()
        elapsed_s, at = now_s - self._start_s, 0
        size = self._load.payloads.size
        while at < len(records):
            timestamp_ms, end = records[at][0], len(records)
            if records[-1][0] != timestamp_ms:
                end = bisect_right(records, timestamp_ms, at, key=_timestamp)
            count = end - at
            latency_us = int((elapsed_s - self._schedule.due_at(timestamp_ms)) * 1_000_000)
            size_bytes = count * size if size else sum(map(len, map(_value, records[at:end])))
            self._add(timestamp_ms, latency_us, count, size_bytes)
            at = end
        if now_s - self._window.since_s >= self._load.report_every_s:
            first = self._steady is not None and not self._has_reported_steady
            self._has_reported_steady = self._steady is not None
            self._on_window(self._window.sum(now_s), self.lost.total(), first)
            self._window = Tally(now_s)

    def _add(self, timestamp_ms: int, latency_us: int, records: int, size_bytes: int) -> None:
        self._all.add(latency_us, records, size_bytes)
        if self._steady is None:
            self._window.add(latency_us, records, size_bytes)
        elif timestamp_ms >= self._schedule.steady_ms:
            self._window.add(latency_us, records, size_bytes)
            self._steady.add(latency_us, records, size_bytes)
