"""Consumer groups (KIP-848) under the same troubles as classic ones: test_groups.py has them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kserver.group.consumer import ConsumerGroups
from kserver.group.consumer_group import ConsumerGroup
from tests.simulation.test_groups import Run, found_alone, names_found, planted
from tests.support.checks import verify
from tests.support.consumer_members import ConsumerMember
from tests.support.seeds import chunks

RUNS, CHUNK = 200, 50
CHUNKS = chunks(RUNS, CHUNK, CHUNK)


def run(seed):
    """A failure names its seed."""
    one = Run(seed, ConsumerMember)
    limits, random = one.setting.limits, one.time.random
    one.config = replace(
        one.config,
        group_consumer_session_timeout_ms=limits.session_ms,
        group_consumer_heartbeat_interval_ms=limits.heartbeat_ms,
        group_consumer_assignment_interval_ms=random.choice([0, 1000]),
        group_consumer_max_size=random.choice([3, 100]),
    )
    try:
        verify(one.main())
    except BaseException as error:
        error.add_note(f"seed {seed}; the last events:")
        for event in one.history[-20:]:
            error.add_note(f"    {event}")
        raise
    return one


@pytest.mark.parametrize("seeds", CHUNKS, ids=str)
def test_consumer_groups_hold_whatever_befalls_them(seeds):
    for seed in seeds:
        run(seed)


PLANTED = {
    "anybody may commit": (
        {"zombie-fenced"},
        ConsumerGroup,
        "check_commit",
        lambda *_, **__: None,
    ),
    "a member that is silent is waited for": (
        {"group-liveness"},
        ConsumerGroups,
        "expired",
        lambda *_: None,
    ),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found_by_its_check(bug):
    names, owner, decision, wrong = PLANTED[bug]
    with planted(owner, decision, wrong):
        assert found_alone(names, (names_found(run, seed) for seed in range(200)))


@pytest.mark.parametrize("seed", range(5))
def test_a_seed_gives_the_same_run_event_by_event(seed):
    first, second = run(seed), run(seed)
    assert first.history == second.history
    assert first.time.trace == second.time.trace
    assert len(first.history) > 10
