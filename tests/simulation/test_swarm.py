"""A cluster under mixes of faults and workloads that the seed draws: all that must hold does."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pytest

from tests.support.faults import LATER
from tests.support.loop import SimLoop, simulate
from tests.support.seeds import seeds
from tests.support.swarm import swarm

SAME = 20
SEEDS = seeds(SAME, 0)
FOUND: Mapping[tuple[str, tuple[str, ...], int], str] = {
    (
        "classic group",
        ("power",),
        14,
    ): "a lookup of the coordinator failed when nobody waited for it",
    (
        "static members",
        ("power_and_kill_all",),
        2,
    ): "offsets that were asked for were left behind by a broker that stopped",
    (
        "trimmed",
        ("pause",),
        27,
    ): "records were said to be deleted before the followers had deleted them,"
    " and were back with the next leader",
    (
        "compacted",
        ("kill_all", "clients_cut", "kill"),
        16,
    ): "a follower's segments behind a gap that"
    " its leader's compaction had left were removed as it started again",
}
"""What seeds of one workload under some faults have shown."""
FOUND_IN_ANY: Mapping[int, str] = {
    2000296: "a follower that caught up while the leader proposed another one was never proposed"
    " itself, as nothing was appended to the partition afterwards",
    3000427: "the check of fetched offsets did not know that a broker whose port was refused may be"
    " asked before it learns that it is no longer coordinator",
    3000795: "a consumer that had sought a position while it connected to a new leader began at the"
    " earliest one",
    5000556: "a member that lost its partitions while it joined claimed them again, so that nobody"
    " else got one of them",
    5101273: "a reassignment never ended, as the broker whose replica was removed restarted so fast"
    " that the controller saw it with another registration, but never without",
    5201662: "a broker whose disk was full took both its log directories offline when it had to"
    " truncate a log",
    5203109: "a broker that was cut off changed a config a minute after its client had sent the"
    " change to another broker",
    5208921: "a power loss restored the empty directory of a log that a full disk had refused: the"
    " broker did not start, as another directory had the log",
    5210617: "a disk was replaced and another broker killed while no third one was in sync: the"
    " simulation had not noticed that the controller had just shrunk the ISR",
    6100754: "a consumer believed a former leader, cut off from the cluster, that an offset of its"
    " successor is out of range, and began at the earliest one",
    6101164: "a controller that was deposed since nobody reached it was elected again",
    277686830774: "a producer asked nobody but an isolated leader for metadata, since it had not"
    " reached the others once, long before",
    262383849291: "a follower that truncated its log kept its old high watermark until the next"
    " record",
    506397624707: "a flush during a truncation counted records as flushed that were cut off: after"
    " a kill their log was taken for damaged",
    506397624721: "a replica whose leader's log starts within a batch never came into sync",
}
"""The same, where the seed draws workloads and faults, except those of LATER."""


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_breaks_everything_promised_holds(seed: int) -> None:
    simulate(swarm, seed)


@pytest.mark.parametrize(("workload", "faults", "seed"), FOUND)
def test_what_was_found_once_stays_mended(
    workload: str, faults: tuple[str, ...], seed: int
) -> None:
    simulate(partial(swarm, workloads=[workload], faults=faults), seed)


@pytest.mark.parametrize("fault", ["new_role_in_truncation", "truncation_in_move"])
@pytest.mark.parametrize("seed", seeds(3, 0))
def test_a_fault_in_a_truncation_does_no_harm(fault: str, seed: int) -> None:
    simulate(partial(swarm, faults=[fault]), seed)


@pytest.mark.parametrize("seed", FOUND_IN_ANY)
def test_what_was_found_once_in_any_run_stays_mended(seed: int) -> None:
    simulate(partial(swarm, without=LATER), seed)


async def traced(loop: SimLoop) -> str:
    await swarm(loop)
    return loop.trace.digest


def test_one_seed_is_one_run() -> None:
    assert simulate(traced, 3) == simulate(traced, 3) != simulate(traced, 4)
