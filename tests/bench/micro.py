"""Single calls of the broker's hot path, timed in this process, without rivals or sockets."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from kserver.config.topic import TopicConfig
from kserver.log.validator import Origin, validate
from kserver.wire.batch import RecordBatch, encode_records
from kserver.world.disk import OsDisk
from tests.bench.load import RECORDS, batch
from tests.support.logs import open_log

AT_ONCE = 1000
"""Calls between two readings of the clock, for calls that take microseconds."""


def measure(directory: Path, seconds: float) -> dict[str, float]:
    """Return microseconds per call for one record of 200 bytes, and millions of records per second
    for 1 MB."""
    each_s = seconds / 5
    now_ms = int(time.time() * 1000)
    config = TopicConfig()
    one = memoryview(bytearray(batch(1)))
    megabyte = batch(RECORDS["1m"])
    records = [(r.timestamp, r.key, r.value, r.headers) for r in RecordBatch(megabyte).records()]

    def validate_one() -> None:
        one[:8] = bytes(8)  # as a client sends it
        validate(
            one,
            config,
            now_ms,
            origin=Origin.client,
            first_offset=0,
            leader_epoch=0,
            compacted=False,
        )

    with tempfile.TemporaryDirectory(dir=directory) as home:
        log = open_log(OsDisk(), directory=f"{home}/micro-0", now_ms=now_ms)

        def append_one() -> None:
            one[:8] = bytes(8)
            log.append_as_leader(one, 0, now_ms)

        def read_last() -> None:
            log.read(log.log_end_offset - 1, 1 << 20, up_to=log.log_end_offset, at_least_one=True)

        found = {
            "validate us": call_s(validate_one, each_s) * 1e6,
            "append us": call_s(append_one, each_s) * 1e6,
            "read us": call_s(read_last, each_s) * 1e6,
        }
        asyncio.run(log.close())
    decode_s = call_s(lambda: RecordBatch(megabyte).records(), each_s, at_once=1)
    encode_s = call_s(lambda: encode_records(records), each_s, at_once=1)
    return found | {
        "decode M records/s": len(records) / decode_s / 1e6,
        "encode M records/s": len(records) / encode_s / 1e6,
    }


def call_s(function: Callable[[], object], seconds: float, at_once: int = AT_ONCE) -> float:
    """Return seconds per call, measured over about `seconds`."""
    calls = 0
    began = now = time.perf_counter()
    while now < began + seconds:
        for _ in range(at_once):
            function()
        calls += at_once
        now = time.perf_counter()
    return (now - began) / calls
