"""Count how many seeds of the swarm it takes to find each planted bug, and each former bug that a
review once found by hand.

    pytest -s tests/soak/soak_planted.py

Planted bugs are searched for in runs with the workload and the faults that they need; former bugs
in runs whose workloads and faults the seed draws. Each prints one line, a row of the table in
README.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Coroutine, Mapping
from typing import Any

import pytest

from kserver.cluster_config.unreadable import UnreadableZnodes
from kserver.controller.context import Returned
from kserver.controller.controller import Controller
from kserver.log.log import Log
from kserver.log.missing import MissingLogs
from kserver.replica.fetcher import ReplicaFetcher
from kserver.replica.isr import UNKNOWN_EPOCH, Leader
from kserver.replica.partition import Partition
from tests.simulation.test_planted_bugs import (
    PLANTED,
    RARE,
    REASSIGNED,
    Planted,
    all_whole,
    fetched,
    never,
    reads_nothing_again,
    runs,
)
from tests.support.loop import simulate
from tests.support.shrinking import failure
from tests.support.swarm import swarm

SEEDS = int(os.environ.get("SEEDS", "500"))
FIRST = int(os.environ.get("FIRST_SEED", "0"))


def of_no_epoch(
    self: Leader,
    broker: int,
    offset: int,
    end: int,
    high_watermark: int,
    now_ms: int,
    broker_epoch: int = UNKNOWN_EPOCH,
    session: Any = None,
) -> Any:
    return fetched(self, broker, offset, end, high_watermark, now_ms, UNKNOWN_EPOCH, session)


async def given_up(
    self: ReplicaFetcher, partition: Partition, truncation: Coroutine[Any, Any, None]
) -> None:
    epoch, task = partition.epoch, self._loop.create_task(truncation)
    while not task.done():
        await asyncio.wait((task,), timeout=0.001)
        if partition.epoch != epoch:
            task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def ends_the_broker(self: UnreadableZnodes, error: Exception, consequence: str) -> None:
    raise RuntimeError(str(error))


NO_CUTS = property(lambda self: 0, lambda self, count: None)

FORMER: Mapping[str, Planted] = {
    "F1": Planted(
        "a replica that lost its disk is taken for the one that it was",
        [
            (Leader, "fetched", of_no_epoch),
            (Returned, "of", classmethod(all_whole)),
            (MissingLogs, "check", never),
        ],
    ),
    "F2": Planted(
        "a truncation is given up when the replica's role changes",
        [(ReplicaFetcher, "_truncate_uninterrupted", given_up)],
    ),
    "F4": Planted(
        "the controller does not read again what somebody else has written",
        [(Controller, "_read_all_again", reads_nothing_again)],
    ),
    "F8": Planted(
        "a znode that cannot be read ends the controller's broker",
        [(UnreadableZnodes, "leave_out", ends_the_broker)],
    ),
    "F10": Planted(
        "a copy in another log directory is not truncated with its log",
        [(Log, "truncations", NO_CUTS)],
    ),
}


@pytest.fixture(autouse=True)
def _quiet():
    # pytest keeps a test's log records until the test ends, and with them all objects they refer
    # to.
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    ("name", "planted"),
    [*PLANTED.items(), *RARE.items()],
    ids=lambda value: getattr(value, "what", ""),
)
def test_a_planted_bug_is_found(name: str, planted: Planted) -> None:
    found = (name in names for names in runs(planted, SEEDS))
    seeds = next(at for at, is_found in enumerate(found, 1) if is_found)
    print(f"\n| `{name}` | {planted.what} | {seeds} |")


@pytest.mark.parametrize("what", REASSIGNED)
def test_a_planted_bug_of_reassignments_is_found(what: str) -> None:
    found = enumerate(runs(REASSIGNED[what], SEEDS), 1)
    seeds, names = next((at, names) for at, names in found if names)
    print(f"\n| {what} | {', '.join(sorted(names))} | {seeds} |")


@pytest.mark.parametrize("name", FORMER)
def test_a_former_fault_is_found_by_any_mix(name: str) -> None:
    began_s = time.monotonic()
    with pytest.MonkeyPatch.context() as patch:
        for owner, decision, wrong in FORMER[name].plants:
            patch.setattr(owner, decision, wrong, raising=False)
        for seed in range(FIRST, FIRST + SEEDS):
            try:
                simulate(swarm, seed)
            except Exception as error:
                by = ", ".join(sorted(failure(error)))
                took_s = time.monotonic() - began_s
                print(
                    f"\n| {name} | {FORMER[name].what} | {by} |"
                    f" {seed - FIRST + 1} | {took_s:.0f} s |"
                )
                return
    raise AssertionError(f"{name} was not found in {SEEDS} seeds")
