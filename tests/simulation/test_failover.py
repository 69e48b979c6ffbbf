"""A process that is proven gone is failed over at once; one that is not, when its session ends."""

from __future__ import annotations

import asyncio

import pytest

from kcli.client.admin.admin import Admin, NewTopic
from kcli.client.config import AdminConfig
from kserver import znodes
from kserver.broker.controlled_shutdown import LOST_S
from kserver.errors import ErrorCode
from kserver.model import NO_BROKER
from kserver.peer import Peer
from kserver.wire import versions
from kserver.wire.api_key import ApiKey
from tests.support.loop import SimLoop, simulate
from tests.support.seeds import seeds
from tests.support.simulated_cluster import SETTINGS, SimulatedCluster

SEEDS = seeds(4)
SESSION_S = int(SETTINGS["zookeeper.session.timeout.ms"]) / 1000
SOON_S = 1.0


async def started(loop: SimLoop) -> SimulatedCluster:
    cluster = SimulatedCluster(loop, 3)
    await cluster.start()
    async with Admin(AdminConfig.of(cluster.bootstrap), random=loop.random) as admin:
        (made,) = (await admin.create_topics([NewTopic("t", 3, 3)])).values()
        assert not isinstance(made, Exception)
    await cluster.until_in_sync("t", 3)
    return cluster


def controllers(cluster: SimulatedCluster) -> list[int]:
    return [
        id_
        for id_ in sorted(cluster.up)
        if (broker := cluster.brokers[id_].broker) and broker._parts.controller.is_active
    ]


async def until_all_led(loop: SimLoop, cluster: SimulatedCluster, by: set[int]) -> float:
    """How long it took until brokers that are not in `by` led nothing."""
    began_s = loop.time()
    while not all(
        (leader := cluster.leader("t", number)) and leader.leader_id in by for number in range(3)
    ):
        await asyncio.sleep(0.01)
        assert loop.time() - began_s < 10 * SESSION_S
    return loop.time() - began_s


async def killed(loop: SimLoop, *, controller: bool) -> str:
    cluster = await started(loop)
    (active,) = controllers(cluster)
    gone = active if controller else next(id_ for id_ in sorted(cluster.up) if id_ != active)
    await cluster.kill(gone)
    took_s = await until_all_led(loop, cluster, cluster.up)
    assert took_s < SOON_S, f"{took_s} s"
    assert len(controllers(cluster)) == 1
    for id_ in cluster.up:
        broker = cluster.brokers[id_].broker
        assert broker is not None
        assert broker._parts.controller._controller_failures._deposing is None
    await cluster.start(gone)
    await cluster.until_in_sync("t", 3)
    assert loop.time() < SESSION_S + 10, "it waited for its own old session"
    cluster.check()
    return loop.trace.digest


async def both_killed(loop: SimLoop) -> str:
    cluster = await started(loop)
    (active,) = controllers(cluster)
    other = next(id_ for id_ in sorted(cluster.up) if id_ != active)
    await asyncio.gather(cluster.kill(active), cluster.kill(other))
    took_s = await until_all_led(loop, cluster, cluster.up)
    assert took_s < SOON_S, f"{took_s} s"
    return loop.trace.digest


async def listener_lost(loop: SimLoop) -> str:
    """The process lives, and nobody can connect to it any more."""
    cluster = await started(loop)
    (active,) = controllers(cluster)
    deaf = next(id_ for id_ in sorted(cluster.up) if id_ != active)
    others = cluster.up - {deaf}
    loop.network.refuse(f"b{deaf}")
    for other in others:
        loop.network.reset(f"b{deaf}", f"b{other}")
    led = [leader for n in range(3) if (leader := cluster.leader("t", n))]
    await asyncio.sleep(SOON_S)
    assert all(
        cluster.replicas("t", number)[other].leader_id in others
        for number in range(3)
        for other in others
    )
    # It believes that it leads, and commits nothing alone.
    stale = [leader for leader in led if leader.leader_id == deaf]
    assert stale
    for leader in stale:
        assert leader.leader is not None
        assert leader.leader.maximal_isr > {deaf}
    loop.network.accept(f"b{deaf}")
    await cluster.until_in_sync("t", 3)
    cluster.check()
    return loop.trace.digest


async def told(broker: Peer) -> int:
    """Who leads partition 0, as clients are told."""
    new = versions.request(ApiKey.METADATA, broker.version(ApiKey.METADATA))
    answer = await broker.call(new(topics=[new.topics(name="t")]))
    partition = answer.topics[0].partitions[0]
    assert (partition.leader_id == NO_BROKER) == (
        partition.error_code is ErrorCode.leader_not_available
    )
    return int(partition.leader_id)


async def nobody_told(loop: SimLoop) -> str:
    """librdkafka, told of a leader that is gone, asks again a second later only."""
    cluster = await started(loop)
    leader = cluster.leader("t", 0)
    assert leader is not None
    gone = leader.leader_id
    other = next(id_ for id_ in sorted(cluster.up) if id_ != gone)
    peer = await cluster.brokers[other].connect()
    assert await told(peer) == gone
    await cluster.kill(gone)
    await asyncio.sleep(0.02)
    answers = [await told(peer)]
    while answers[-1] == NO_BROKER:
        await asyncio.sleep(0.01)
        answers.append(await told(peer))
    assert gone not in answers
    peer.close()
    return loop.trace.digest


async def told_again(loop: SimLoop) -> str:
    """Whoever is cut off from a leader alone does not hide it for long: it lives, and serves."""
    cluster = await started(loop)
    leader = cluster.leader("t", 0)
    assert leader is not None
    led_by = leader.leader_id
    cut = next(
        id_ for id_ in sorted(cluster.up) if id_ != led_by and id_ not in controllers(cluster)
    )
    peer = await cluster.brokers[cut].connect()
    loop.network.reset(f"b{led_by}", f"b{cut}")
    loop.network.cut(f"b{led_by}", f"b{cut}")
    await asyncio.sleep(0.02)
    answers = []
    for _ in range(30):
        answers.append(await told(peer))
        await asyncio.sleep(0.05)
    assert set(answers[25:]) == {led_by}
    loop.network.heal(f"b{led_by}", f"b{cut}")
    peer.close()
    return loop.trace.digest


async def cut_off(loop: SimLoop) -> str:
    """What does not answer proves nothing: its session decides."""
    cluster = await started(loop)
    (active,) = controllers(cluster)
    cut = next(id_ for id_ in sorted(cluster.up) if id_ != active)
    for other in cluster.up - {cut}:
        loop.network.cut(f"b{cut}", f"b{other}")
        loop.network.reset(f"b{cut}", f"b{other}")
    await asyncio.sleep(SESSION_S * 0.8)
    assert cluster.brokers[active].broker is not None
    assert set(cluster.brokers[active].broker._parts.metadata.current.brokers) == {1, 2, 3}
    for other in cluster.up - {cut}:
        loop.network.heal(f"b{cut}", f"b{other}")
    await cluster.until_in_sync("t", 3)
    assert controllers(cluster) == [active]
    return loop.trace.digest


async def refused_alone(loop: SimLoop) -> str:
    """A broker that alone is refused by all others does not have the controller changed for ever,
    and does not take the cluster: to it all others look gone."""
    cluster = await started(loop)
    (active,) = controllers(cluster)
    alone = next(id_ for id_ in sorted(cluster.up) if id_ != active)
    third = next(id_ for id_ in sorted(cluster.up) if id_ not in (active, alone))
    loop.network.refuse(f"b{active}", f"b{alone}")
    loop.network.refuse(f"b{third}", f"b{alone}")
    loop.network.reset(f"b{active}", f"b{alone}")
    loop.network.reset(f"b{third}", f"b{alone}")
    until_s = loop.time() + 10 * SESSION_S
    while loop.time() < until_s:
        await asyncio.sleep(0.1)
        assert alone not in controllers(cluster)
    data = cluster.ensemble.tree.node(znodes.CONTROLLER_EPOCH).data
    assert znodes.decode_controller_epoch(data) <= 8, "it flaps"
    for number in range(3):
        leader = cluster.leader("t", number)
        assert leader is not None
        assert leader.leader is not None
        assert {active, third} <= leader.leader.isr
    for other in (active, third):
        loop.network.accept(f"b{other}", f"b{alone}")
    await cluster.until_in_sync("t", 3)
    cluster.check()
    return loop.trace.digest


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("controller", [True, False], ids=["controller", "other"])
def test_a_killed_broker_costs_less_than_a_second(seed: int, controller: bool) -> None:
    simulate(lambda loop: killed(loop, controller=controller), seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_controller_and_another_die_together(seed: int) -> None:
    simulate(both_killed, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_broker_that_nobody_can_connect_to_leads_no_more_and_comes_back(seed: int) -> None:
    simulate(listener_lost, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_clients_are_told_of_no_leader_while_a_dead_one_is_replaced(seed: int) -> None:
    simulate(nobody_told, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_leader_that_one_broker_cannot_reach_is_told_of_again(seed: int) -> None:
    simulate(told_again, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_broker_that_does_not_answer_is_left_to_its_session(seed: int) -> None:
    simulate(cut_off, seed)


async def told_without_zookeeper(loop: SimLoop) -> str:
    cluster = await started(loop)
    (controller,) = controllers(cluster)
    survivors = sorted(cluster.up - {controller})
    # Which of them is the next controller is not known: cut each for a moment in turn.
    await cluster.kill(controller)
    for _ in range(4):
        for id_ in survivors:
            cluster.zookeeper(id_).silence()
            await asyncio.sleep(loop.random.uniform(0.1, 3))
            cluster.zookeeper(id_).heal()
            await asyncio.sleep(0.5)
    for id_ in survivors:
        running = cluster.brokers[id_]._running
        assert running is not None
        assert not running.done(), f"broker {id_} ended"
    await cluster.start(controller)
    await cluster.until_all_in_isr()
    assert not [bug for broker in cluster.brokers.values() for bug in broker.bugs]
    return loop.trace.digest


@pytest.mark.parametrize("seed", SEEDS)
def test_a_message_that_zookeeper_cannot_confirm_now_is_sent_again(seed: int) -> None:
    simulate(told_without_zookeeper, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_that_is_refused_alone_does_not_make_the_cluster_flap(seed: int) -> None:
    simulate(refused_alone, seed)


async def stopped(loop: SimLoop, *, controller: bool) -> str:
    """A stop is missed by nobody: what the broker leads is led by others before it goes."""
    cluster = await started(loop)
    (active,) = controllers(cluster)
    leaving = active if controller else next(id_ for id_ in sorted(cluster.up) if id_ != active)
    stopping = loop.create_task(cluster.stop(leaving))
    took_s = await until_all_led(loop, cluster, cluster.up - {leaving})
    assert took_s < SOON_S, f"{took_s} s"
    await stopping
    assert not [n for n in range(3) if cluster.leader("t", n) is None]
    for number in range(3):
        leader = cluster.leader("t", number)
        assert leader is not None
        assert leader.leader is not None
        assert leader.leader.isr == cluster.up
    await cluster.start(leaving)
    await cluster.until_in_sync("t", 3)
    cluster.check()
    return loop.trace.digest


async def all_stopped(loop: SimLoop) -> str:
    """Nobody waits for a taker who is about to stop as well."""
    cluster = await started(loop)
    began_s = loop.time()
    await asyncio.gather(*(cluster.stop(id_) for id_ in sorted(cluster.up)))
    assert loop.time() - began_s < 5
    await cluster.start()
    await cluster.until_in_sync("t", 3)
    return loop.trace.digest


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("controller", [True, False], ids=["controller", "other"])
def test_a_broker_that_stops_hands_over_first(seed: int, controller: bool) -> None:
    simulate(lambda loop: stopped(loop, controller=controller), seed)


async def stopped_without_zookeeper(loop: SimLoop, *, silent: bool) -> str:
    cluster = await started(loop)
    for id_ in cluster.up:
        zookeeper = cluster.zookeeper(id_)
        if silent:
            zookeeper.silence()
        else:
            zookeeper.cut()
    await asyncio.sleep(loop.random.uniform(0, 2 * SESSION_S))
    for id_ in sorted(cluster.up):
        began_s = loop.time()
        await cluster.stop(id_)
        assert loop.time() < began_s + LOST_S + 3, f"broker {id_} takes {loop.time() - began_s} s"
    return loop.trace.digest


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_broker_stops_soon_though_zookeeper_is_gone(seed: int, silent: bool) -> None:
    simulate(lambda loop: stopped_without_zookeeper(loop, silent=silent), seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_whole_cluster_stops_without_waiting(seed: int) -> None:
    simulate(all_stopped, seed)
