"""The coordinators' runtime on an unchanged broker, with a shard that only counts."""

from __future__ import annotations

import asyncio
import contextlib
import errno

import pytest

from kserver.coordinator.shard import Now, Outcome
from kserver.errors import ErrorCode, KafkaError
from kserver.metadata import ClusterMetadata, PartitionInfo
from kserver.model import ProducerId
from tests.simulation.test_broker import create
from tests.simulation.test_topics import delete
from tests.support.counting_coordinator import (
    FLUSHED,
    KEYS,
    TIMEOUT_MS,
    TOPIC,
    Add,
    Added,
    Again,
    Counter,
    Forget,
    Host,
    Read,
    Refused,
    Wait,
    refusal,
)
from tests.support.loop import SimLoop, simulate
from tests.support.seeds import seeds
from tests.support.simulated import DATA

SEEDS = seeds(8)


async def loading(loop: SimLoop) -> None:
    """What was kept is there again; whoever asks too early is told to ask again."""
    here = Host(loop, {"log.index.interval.bytes": 100})
    await here.start(segment_bytes=300)
    totals = dict.fromkeys(KEYS, 0)
    for _ in range(40):
        key = loop.random.choice(KEYS)
        totals[key] += 1
        assert await here.ask(Add(key)) == totals[key]
    await here.end(loop.random.choice(["stop", "kill"]))
    here.broker.disk.cold_chance = loop.random.choice([0.0, 0.5, 0.9])
    await here.start()
    assert here.code(Read("a")) is ErrorCode.coordinator_load_in_progress
    with pytest.raises(KafkaError) as refused:
        list(here.runtime.shards())
    assert refused.value.code is ErrorCode.coordinator_load_in_progress
    for key in KEYS:
        assert await here.ask(Read(key)) == totals[key]
    (shard,) = here.runtime.shards()
    assert (shard.totals, shard.times_loaded) == ({k: n for k, n in totals.items() if n}, 1)
    assert shard.images, "it was not told of the topics"
    await here.end("stop")
    assert not here.broker.bugs


@pytest.mark.parametrize("seed", SEEDS)
def test_a_shard_is_loaded_by_replay_and_refuses_until_then(seed):
    simulate(loading, seed)


async def elsewhere(loop: SimLoop) -> None:
    here = Host(loop)
    await here.start()
    assert await here.ask(Add("a")) == 1
    waiting = here.runtime.ask("a", Wait("a", 60_000))
    peer = await here.broker.connect()
    assert await delete(peer, TOPIC) is ErrorCode.none
    here.runtime.apply(here.parts.metadata.current)
    assert await refusal(waiting) is ErrorCode.not_coordinator
    assert here.code(Read("a")) is ErrorCode.coordinator_not_available
    await create(peer, TOPIC, 1)
    assert here.code(Read("a")) is ErrorCode.not_coordinator
    here.runtime.apply(here.parts.metadata.current)
    assert await here.runtime.ask("a", Read("a")) == 0, "what was deleted counts again"
    await here.end("stop")


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_led_here_no_more_is_asked_elsewhere(seed):
    simulate(elsewhere, seed)


async def led_on(loop: SimLoop) -> None:
    """A follower's death begins a leader epoch, and the shard stays.  After another broker has led
    it is loaded again, also if that broker led between two images."""
    here = Host(loop)
    await here.start()
    assert await here.ask(Add("a")) == 1
    waiting = here.runtime.ask("a", Wait("a", 60_000))
    partition = here.partition
    own, epoch = partition.leader_id, partition.epoch

    def led_by(leader: int, epoch: int) -> None:
        partition.take_role(PartitionInfo(0, leader, epoch, (own, 9), (leader,)))
        here.runtime.apply(here.parts.metadata.current)

    led_by(own, epoch + 1)
    assert await here.runtime.ask("a", Read("a")) == 1
    assert not waiting.done()
    assert len(here.made) == 1
    led_by(9, epoch + 2)
    assert await refusal(waiting) is ErrorCode.not_coordinator
    assert here.code(Read("a")) is ErrorCode.not_coordinator
    led_by(own, epoch + 3)
    assert await here.ask(Read("a")) == 1
    assert len(here.made) == 2
    waiting = here.runtime.ask("a", Wait("a", 60_000))
    partition.take_role(PartitionInfo(0, 9, epoch + 4, (own, 9), (9,)))
    led_by(own, epoch + 5)
    assert await refusal(waiting) is ErrorCode.not_coordinator
    assert await here.ask(Read("a")) == 1
    assert len(here.made) == 3
    await here.end("stop")


@pytest.mark.parametrize("seed", SEEDS)
def test_who_leads_on_in_the_next_epoch_goes_on_with_what_it_knows(seed):
    simulate(led_on, seed)


async def full(loop: SimLoop) -> None:
    """Nothing that was refused counts, and everything works again once there is room."""
    here = Host(loop, FLUSHED if loop.random.random() < 0.5 else None)
    await here.start()
    assert await here.ask(Add("a")) == 1
    waiting = here.runtime.ask("a", Wait("a", 60_000))
    fault = here.broker.disk.fail("write_at", errno.ENOSPC, path=f"*/{TOPIC}-0/*")
    failed = here.runtime.ask("a", Add("a"))
    assert await refusal(failed) is ErrorCode.not_coordinator
    assert await refusal(waiting) is ErrorCode.not_coordinator
    assert len(here.made) == 2, "the shard was not loaded again"
    assert here.code(Read("a")) is ErrorCode.coordinator_load_in_progress
    assert await here.ask(Read("a")) == 1
    assert await refusal(here.runtime.ask("a", Add("a"))) is ErrorCode.not_coordinator
    fault.clear()
    assert await here.ask(Add("a")) == 2
    await here.end("kill")
    await here.start()
    assert await here.ask(Read("a")) == 2
    await here.end("stop")
    assert not here.broker.bugs


@pytest.mark.parametrize("seed", SEEDS)
def test_a_full_disk_refuses_what_cannot_be_kept_and_takes_it_again_when_there_is_room(seed):
    simulate(full, seed)


class Noting(Counter):
    """Writes down that there is another image."""

    def image_changed(self, image: ClusterMetadata, now: Now) -> Outcome:
        return Outcome([Added("images", self.totals.get("images", 0) + 1)])


async def full_from_the_start(loop: SimLoop) -> None:
    here = Host(loop)
    here.kind = Noting
    await here.start()
    before = await here.ask(Read("images"))
    fault = here.broker.disk.fail("write_at", errno.ENOSPC, path=f"*/{TOPIC}-0/*")
    here.runtime.apply(here.parts.metadata.current)
    await asyncio.sleep(10)
    assert 5 < len(here.made) < 15
    fault.clear()
    assert await here.ask(Read("images")) == before + 1
    await here.end("stop")
    assert not here.broker.bugs


@pytest.mark.parametrize("seed", SEEDS)
def test_what_cannot_be_written_once_it_is_loaded_is_tried_again_now_and_then(seed):
    simulate(full_from_the_start, seed)


async def fails(loop: SimLoop, operation: str, settings: dict[str, object]) -> None:
    """Whoever waits on a disk that fails is sent away, and nobody is let in from then on."""
    # All that is created first goes to the first directory: the broker outlives it by the others.
    here = Host(loop, {"log.dirs": f"{DATA},/more,/much"} | settings)
    await here.start()
    assert await here.ask(Add("a")) == 1
    waiting = here.runtime.ask("a", Wait("a", 60_000))
    place = here.partition.log.directory
    here.broker.disk.fail(operation, errno.EIO, path=f"{place}/*")
    began_s = loop.time()
    failed = here.runtime.ask("a", Add("a"))
    assert await refusal(failed) is ErrorCode.not_coordinator
    assert await refusal(waiting) is ErrorCode.not_coordinator
    assert loop.time() - began_s < 1
    assert here.code(Read("a")) is ErrorCode.not_coordinator
    await asyncio.sleep(10)
    assert here.code(Add("a")) is ErrorCode.not_coordinator
    await here.end("stop")
    assert not here.broker.bugs


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("operation", "settings"), [("write_at", {}), ("write_at", FLUSHED), ("sync", FLUSHED)]
)
def test_a_disk_that_fails_sends_everybody_away(operation, settings, seed):
    simulate(lambda loop: fails(loop, operation, settings), seed)


async def too_large(loop: SimLoop) -> None:
    """It is refused for what it is: nothing is loaded again."""
    here = Host(loop)
    await here.start(max_message_bytes=500)
    assert await here.ask(Add("a")) == 1
    waiting = here.runtime.ask("a", Wait("a", 1000))
    refused = here.runtime.ask("a", Add("a", note="x" * 1000))
    assert await refusal(refused) is ErrorCode.message_too_large
    assert here.code(Add("a", 0)) is ErrorCode.invalid_request
    assert await here.runtime.ask("a", Add("a")) == 2
    assert await waiting == "waited"
    assert len(here.made) == 1
    await here.end("stop")


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_too_large_is_refused_and_changes_nothing(seed):
    simulate(too_large, seed)


class Ending(Counter):
    """The end of a transaction sets a deadline."""

    def replay_end(self, producer_id: ProducerId, committed: bool) -> None:
        self.next_deadline_ms = 50_000


async def due_after_an_end(loop: SimLoop) -> None:
    here = Host(loop)
    here.kind = Ending
    await here.start()
    assert await here.ask(Add("a")) == 1
    (shard,) = here.made
    here.runtime.transaction_ended(0, 7, True)
    await asyncio.sleep(60)
    assert shard.expired_at_ms == [50_000]
    await here.end("stop")


def test_what_is_due_after_a_transactions_end_is_done():
    simulate(due_after_an_end, 1)


async def lacking_replicas(loop: SimLoop) -> None:
    """Writes are refused until enough replicas are in sync.  A request that changes nothing but by
    its events leaves the shard as it is; after another it is loaded again."""
    here = Host(loop)
    await here.start(min_insync_replicas=2)
    assert await here.ask(Add("a")) == 1
    waiting = here.runtime.ask("a", Wait("a", 1000))
    partition = here.partition
    own, epoch = partition.leader_id, partition.epoch
    partition.take_role(PartitionInfo(0, own, epoch + 1, (own, 9), (own,)))
    here.runtime.apply(here.parts.metadata.current)
    refused = here.runtime.ask("a", Add("a"))
    assert await refusal(refused) is ErrorCode.coordinator_not_available
    assert await here.runtime.ask("a", Read("a")) == 1
    assert await waiting == "waited"
    assert len(here.made) == 1
    refused = here.runtime.ask("a", Again("a", 1))
    assert await refusal(refused) is ErrorCode.not_coordinator
    assert len(here.made) == 2
    partition.take_role(PartitionInfo(0, own, epoch + 2, (own,), (own,)))
    here.runtime.apply(here.parts.metadata.current)
    assert await here.ask(Add("a")) == 2
    await here.end("stop")


@pytest.mark.parametrize("seed", SEEDS)
def test_too_few_replicas_refuse_a_write_and_unload_nothing(seed):
    simulate(lacking_replicas, seed)


async def power_cuts(loop: SimLoop) -> None:
    """What was answered is there after any power cut, and what was shown as well."""
    here = Host(loop, FLUSHED)
    await here.start(segment_bytes=300)
    shown = dict.fromkeys(KEYS, 0)
    asked = dict.fromkeys(KEYS, 0)

    async def client(key: str) -> None:
        while True:
            adds = loop.random.random() < 0.7
            asked[key] += adds
            with contextlib.suppress(KafkaError):
                answer = here.runtime.ask(key, Add(key) if adds else Read(key))
                shown[key] = max(shown[key], await answer)
            await asyncio.sleep(loop.random.expovariate(1000))

    for _ in range(5):
        clients = [loop.create_task(client(key)) for key in KEYS * 2]
        await asyncio.sleep(loop.random.expovariate(20))
        await here.end("power cut")
        for task in clients:
            task.cancel()
        await asyncio.wait(clients)
        await here.start()
        for key in KEYS:
            found = await here.ask(Read(key))
            assert shown[key] <= found <= asked[key], (key, shown, found, asked)
    await here.end("stop")
    assert not here.broker.bugs


@pytest.mark.parametrize("seed", seeds(20))
def test_nothing_that_was_answered_is_lost_by_a_power_cut(seed):
    simulate(power_cuts, seed)


async def answers_wait(loop: SimLoop) -> None:
    """An answer to who only reads waits for what it tells of to be on disk."""
    here = Host(loop, FLUSHED)
    await here.start()
    adding = here.runtime.ask("a", Add("a"))
    reading = here.runtime.ask("a", Read("a"))
    end = here.partition.log.log_end_offset
    assert not adding.done()
    assert not reading.done()
    assert here.partition.log.high_watermark < end
    assert await reading == 1
    assert here.partition.log.recovery_point >= end
    assert await adding == 1
    await here.end("stop")


@pytest.mark.parametrize("seed", SEEDS)
def test_an_answer_waits_for_all_that_was_written_before_it(seed):
    simulate(answers_wait, seed)


async def slow(loop: SimLoop) -> None:
    """Who does not wait that long is told so; it counts all the same, and nothing is reloaded."""
    here = Host(loop, FLUSHED)
    await here.start()
    here.timeout_ms = 0
    adding = here.runtime.ask("a", Add("a"))
    assert await refusal(adding) is ErrorCode.coordinator_not_available
    here.timeout_ms = TIMEOUT_MS
    assert await here.runtime.ask("a", Add("a")) == 2
    assert len(here.made) == 1
    await here.end("stop")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_write_that_takes_too_long_is_answered_so_and_counts(seed):
    simulate(slow, seed)


async def effects(loop: SimLoop, settings: dict[str, object]) -> None:
    """They may write to the same partition, and have effects of their own."""
    here = Host(loop, settings)
    await here.start()
    asked = [here.runtime.ask("a", Again("a", 50)) for _ in range(50)]
    assert await asyncio.gather(*asked) == list(range(1, 51))
    while await here.runtime.ask("a", Read("a")) < 50 * 50:
        await asyncio.sleep(0.1)
    await here.end("stop")
    assert not here.broker.bugs


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("settings", [{}, FLUSHED], ids=["", "flushed"])
def test_an_effect_may_write_to_the_partition_that_it_comes_of(settings, seed):
    simulate(lambda loop: effects(loop, settings), seed)


async def closed(loop: SimLoop) -> None:
    here = Host(loop, FLUSHED)
    await here.start()
    tickets = [
        here.runtime.ask("a", request)
        for request in (Wait("a", 60_000), Add("a"), Read("a"), Wait("b", 60_000))
    ]
    here.runtime.close()
    for ticket in tickets:
        assert ticket.done()
        assert await refusal(ticket) is ErrorCode.not_coordinator
    assert here.code(Read("a")) is ErrorCode.not_coordinator
    here.runtime.apply(here.parts.metadata.current)
    assert here.code(Read("a")) is ErrorCode.not_coordinator
    await here.end("stop")
    assert not here.broker.bugs


@pytest.mark.parametrize("seed", SEEDS)
def test_closing_answers_everybody_and_lets_nobody_in(seed):
    simulate(closed, seed)


async def put_off(loop: SimLoop) -> None:
    """A deadline that is put off comes once, when its last time has come."""
    here = Host(loop)
    await here.start()
    tickets = []
    for _ in range(20):
        tickets.append(here.runtime.ask("a", Wait("a", 1000)))
        at_ms = int(loop.time() * 1000) + 1000
        await asyncio.sleep(loop.random.uniform(0, 0.9))
    assert not any(ticket.done() for ticket in tickets)
    assert await asyncio.gather(*tickets) == ["waited"] * 20
    (shard,) = here.made
    assert shard.expired_at_ms == [at_ms]
    nearer = here.runtime.ask("a", Wait("a", 60_000)), here.runtime.ask("a", Wait("a", 100))
    began_s = loop.time()
    await asyncio.gather(*nearer)
    assert loop.time() - began_s == pytest.approx(0.1, abs=0.002)
    forgotten = here.runtime.ask("a", Wait("a", 100))
    assert await here.runtime.ask("a", Forget("a")) == await forgotten == "forgotten"
    await asyncio.sleep(1)
    assert len(shard.expired_at_ms) == 2, "a deadline that was dropped came"
    dropped = here.runtime.ask("a", Wait("a", 100))
    here.runtime.close()
    assert await refusal(dropped) is ErrorCode.not_coordinator
    await asyncio.sleep(1)
    assert len(shard.expired_at_ms) == 2, "the timer of a shard that was dropped went off"
    await here.end("stop")
    assert not here.broker.bugs


@pytest.mark.parametrize("seed", SEEDS)
def test_a_deadline_that_is_put_off_comes_once_and_in_time(seed):
    simulate(put_off, seed)


async def gone_client(loop: SimLoop) -> None:
    here = Host(loop, FLUSHED)
    await here.start()
    here.runtime.ask("a", Add("a")).cancel()
    assert await here.runtime.ask("a", Read("a")) == 1
    await here.end("stop")
    assert not here.broker.bugs


def test_what_a_client_asked_that_has_gone_counts_all_the_same():
    simulate(gone_client, 1)


async def final_refusals(loop: SimLoop) -> None:
    here = Host(loop)
    await here.start()
    assert here.code(Add("a", 0)) is ErrorCode.invalid_request  # not a final one: at once
    assert await refusal(here.runtime.ask("a", Refused("a"))) is ErrorCode.producer_fenced
    code = await refusal(here.runtime.ask("a", Refused("a", now=False)))
    assert (code, here.checks) == (ErrorCode.invalid_txn_state, 2)

    here.leads = loop.create_future()
    waiting = [here.runtime.ask(key, Refused(key)) for key in KEYS]
    await asyncio.sleep(1)
    assert not any(refused.done() for refused in waiting)
    assert await here.ask(Add("a")) == 1, "others are served meanwhile"
    here.leads.set_result(False)
    codes = {await refusal(refused) for refused in waiting}
    assert codes == {ErrorCode.not_coordinator}

    here.leads = loop.create_future()
    gone, stays = (here.runtime.ask("a", Refused("a")) for _ in range(2))
    gone.cancel()
    await here.end("stop")
    assert await refusal(stays) is ErrorCode.not_coordinator
    assert not here.broker.bugs


def test_a_final_refusal_waits_until_it_is_certain_that_this_broker_leads():
    simulate(final_refusals, 0)
