"""What can happen to the brokers of a simulated cluster, each for some seconds, and then mended.

    await strike(swarm, "pause", 5.0)

A fault is a function of two brokers that nothing else befalls meanwhile, and of how long it lasts.
None of them may lose what was acknowledged with acks=all, nor keep the cluster from going on for
long once it is mended.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from tests.support.history import LostPower, Mended, Struck

if TYPE_CHECKING:
    from tests.support.swarm import Swarm

Fault = Callable[["Swarm", int, int, float], Awaitable[None]]

JUMP_MS = 60_000
SLOW_LINK_S = 0.3
SLOW_DISK_S = 0.2


async def kill(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """kill -9."""
    await swarm.cluster.kill(one)
    await asyncio.sleep(lasts_s)
    await swarm.cluster.start(one)


async def stop(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """SIGTERM."""
    await swarm.cluster.stop(one)
    await asyncio.sleep(lasts_s)
    await swarm.cluster.start(one)


async def kill_all(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """All processes at once; the machines go on."""
    for broker in swarm.cluster.brokers:
        await swarm.cluster.kill(broker)
    await asyncio.sleep(lasts_s / 5)
    await swarm.cluster.start()


async def rolling_restart(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """One after the other, each once the one before is in sync again."""
    for broker in swarm.cluster.brokers:
        await swarm.cluster.stop(broker)
        await asyncio.sleep(lasts_s / 10)
        await swarm.cluster.start(broker)
        await swarm.cluster.until_all_in_isr()


async def power(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """One machine's; what was not on its disk is gone or torn.  The others stay as they are until
    it has all again: who loses two machines loses records, as with Kafka."""
    await swarm.cluster.until_all_in_isr()
    swarm.note(LostPower(swarm.now_s, one))
    await swarm.cluster.cut_power(one, swarm.random.choice([0.0, None]))
    await asyncio.sleep(lasts_s)
    await swarm.cluster.start(one)
    await swarm.cluster.until_all_in_isr()


async def power_and_kill_all(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """One machine's, and the processes of all others die.  It is back first, but what it lost the
    others have."""
    await swarm.cluster.until_all_in_isr()
    swarm.note(LostPower(swarm.now_s, one))
    await swarm.cluster.cut_power(one, swarm.random.choice([0.0, None]))
    others = [broker for broker in swarm.cluster.brokers if broker != one]
    for broker in others:
        await swarm.cluster.kill(broker)
    await asyncio.sleep(lasts_s)
    await swarm.cluster.start(one)
    await asyncio.sleep(swarm.random.expovariate(1))
    await swarm.cluster.start(*others)
    await swarm.cluster.until_all_in_isr()


async def pause(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """SIGSTOP, SIGCONT."""
    swarm.cluster.brokers[one].pause()
    await asyncio.sleep(lasts_s)
    swarm.cluster.brokers[one].resume()


async def cut(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """Two brokers do not reach each other."""
    swarm.loop.network.cut(f"b{one}", f"b{other}")
    await asyncio.sleep(lasts_s)
    swarm.loop.network.heal(f"b{one}", f"b{other}")


async def cut_one_way(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """What one sends does not reach the other."""
    swarm.loop.network.cut_one_way(f"b{one}", f"b{other}")
    await asyncio.sleep(lasts_s)
    swarm.loop.network.heal(f"b{one}", f"b{other}")


async def isolate(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """A broker reaches neither another nor ZooKeeper; clients reach it."""
    others = [f"b{broker}" for broker in swarm.cluster.brokers if broker != one]
    for name in others:
        swarm.loop.network.cut(f"b{one}", name)
    swarm.cluster.zookeeper(one).silence()
    await asyncio.sleep(lasts_s)
    for name in others:
        swarm.loop.network.heal(f"b{one}", name)
    swarm.cluster.zookeeper(one).heal()


async def slow_link(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """Between two brokers."""
    swarm.loop.network.slow(f"b{one}", f"b{other}", SLOW_LINK_S)
    await asyncio.sleep(lasts_s)
    swarm.loop.network.slow(f"b{one}", f"b{other}", None)


async def expire(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """Its ZooKeeper session ends."""
    swarm.cluster.expire(one)


async def zookeeper_cut(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """ZooKeeper does not hear of it, nor it of ZooKeeper."""
    swarm.cluster.zookeeper(one).silence()
    await asyncio.sleep(lasts_s)
    swarm.cluster.zookeeper(one).heal()


async def refuse(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """Its port refuses, though the process lives."""
    swarm.loop.network.refuse(f"b{one}")
    swarm.loop.network.close(f"b{one}")
    await asyncio.sleep(lasts_s)
    swarm.loop.network.accept(f"b{one}")


async def reset(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """Connections break: all clients', and those between two brokers."""
    for name in [*swarm.clients, f"b{other}"]:
        swarm.loop.network.reset(name, f"b{one}")


async def clients_cut(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """No client reaches it; all brokers do."""
    names = list(swarm.clients)
    for name in names:
        swarm.loop.network.cut(name, f"b{one}")
    await asyncio.sleep(lasts_s)
    for name in names:
        swarm.loop.network.heal(name, f"b{one}")


async def clock_jump(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """Its wall clock is a minute off."""
    swarm.cluster.brokers[one].clock.ahead_ms = swarm.random.choice([-JUMP_MS, JUMP_MS])
    await asyncio.sleep(lasts_s)
    swarm.cluster.brokers[one].clock.ahead_ms = 0


async def slow_disk(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    disk = swarm.cluster.brokers[one].disk
    before, disk.mean_offload_s = disk.mean_offload_s, SLOW_DISK_S
    await asyncio.sleep(lasts_s)
    disk.mean_offload_s = before


async def full_disk(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """Some hundred bytes more, and it takes nothing until there is room again."""
    disk = swarm.cluster.brokers[one].disk
    before, disk.capacity_bytes = disk.capacity_bytes, disk.used_bytes() + 500
    await asyncio.sleep(lasts_s)
    disk.capacity_bytes = before


async def failing_disk(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """Each write to a log fails, then the disk is changed for one with the same bytes.  A broker
    whose only directory has failed ends by itself."""
    broker = swarm.cluster.brokers[one]
    operation = swarm.random.choice(["write_at", "sync"])
    broker.disk.fail(operation, errno.EIO, path="*.log")
    await asyncio.sleep(lasts_s)
    await swarm.cluster.kill(one)
    await swarm.cluster.start(one)


FAULTS: Mapping[str, Fault] = {
    fault.__name__: fault
    for fault in (
        kill,
        stop,
        kill_all,
        rolling_restart,
        power,
        power_and_kill_all,
        pause,
        cut,
        cut_one_way,
        isolate,
        slow_link,
        expire,
        zookeeper_cut,
        refuse,
        reset,
        clients_cut,
        clock_jump,
        slow_disk,
        full_disk,
        failing_disk,
    )
}
OF_TWO = frozenset({"cut", "cut_one_way", "slow_link", "reset"})
OF_ALL = frozenset({"kill_all", "rolling_restart", "power", "power_and_kill_all"})


async def strike(swarm: Swarm, name: str, lasts_s: float) -> None:
    """Have it befall brokers that are well; nothing where there are too few of them."""
    well = [broker for broker in swarm.cluster.brokers if broker not in swarm.broken]
    if len(well) < (len(swarm.cluster.brokers) if name in OF_ALL else 2):
        return
    one, other = swarm.random.sample(well, 2)
    if name in OF_ALL:
        victims = set(well)
    else:
        victims = {one, other} if name in OF_TWO else {one}
    swarm.broken |= victims
    swarm.note(Struck(swarm.now_s, name, frozenset(victims)))
    await FAULTS[name](swarm, one, other, lasts_s)
    swarm.broken -= victims
    swarm.note(Mended(swarm.now_s, name))
