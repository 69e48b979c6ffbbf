"""What can happen to the brokers of a simulated cluster, each for some seconds, and then mended.

    await strike(swarm, "pause", 5.0)

A fault is a function of two brokers that nothing else befalls meanwhile, and of how long it lasts.
None of them may lose what was acknowledged with acks=all, nor keep the cluster from going on for
long once it is mended.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING

from kserver import znodes
from kserver.errors import StorageError
from kserver.world.zookeeper import NO_SESSION, Delete, NoNode, SetData
from tests.support.disk import SimDisk
from tests.support.history import LostPower, Mended, Struck
from tests.support.moments import Moment, watching

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
    swarm.loses_bytes(one)
    await swarm.cluster.cut_power(one, swarm.random.choice([0.0, None]))
    await asyncio.sleep(lasts_s)
    await swarm.cluster.start(one)
    await swarm.cluster.until_all_in_isr()


async def power_and_kill_all(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """One machine's, and the processes of all others die.  It is back first, but what it lost the
    others have."""
    await swarm.cluster.until_all_in_isr()
    swarm.note(LostPower(swarm.now_s, one))
    swarm.loses_bytes(one)
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


async def failing_log_dir(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """One of its log directories fails, and the broker goes on with the others."""
    broker = swarm.cluster.brokers[one]
    directory = swarm.random.choice(swarm.log_dirs)
    broken = broker.disk.fail("*", errno.EIO, path=f"{directory}/*")
    await asyncio.sleep(lasts_s)
    if swarm.random.random() < 0.5:
        with contextlib.suppress(StorageError):  # what it says of a directory that it cannot close
            await swarm.cluster.stop(one)
        broken.clear()
    else:
        await swarm.cluster.kill(one)
    await swarm.cluster.start(one)


async def new_disk(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """Its disk is changed for an empty one, maybe before anybody notices.  The others go on, and
    one may die while it comes back."""
    await swarm.cluster.until_all_in_isr()
    random = swarm.random
    await swarm.cluster.kill(one)
    swarm.loses_bytes(one)
    broker = swarm.cluster.brokers[one]
    on_truncate = broker.disk.on_truncate
    broker.disk = SimDisk(swarm.loop.random, broker.clock)
    broker.disk.on_truncate = on_truncate
    await asyncio.sleep(random.choice([0.0, lasts_s]))
    starting = swarm.loop.create_task(swarm.cluster.start(one))
    if random.random() < 0.5:
        await asyncio.sleep(10 ** random.uniform(-3, 0.5))
        await swarm.cluster.kill(other)
        await asyncio.sleep(random.expovariate(0.3))
        await swarm.cluster.start(other)
    await starting
    await swarm.cluster.until_all_in_isr()


async def foreign_write(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """Another client writes the states of partitions as they are, so that their versions move on
    unseen by the controller; then a broker dies.  In the end the controller is deposed: the next
    one reads all there is."""
    ensemble = swarm.cluster.ensemble
    client = ensemble.client()
    await client.start()
    for path in [path for path in sorted(ensemble.tree.nodes) if path.endswith("/state")]:
        if swarm.random.random() < 0.7:
            with contextlib.suppress(NoNode):
                await client.set(path, ensemble.tree.node(path).data)
    await swarm.cluster.kill(one)
    await asyncio.sleep(lasts_s)
    await swarm.cluster.start(one)
    with contextlib.suppress(NoNode):
        await client.delete(znodes.CONTROLLER)
    await client.close()


async def unreadable_znode(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """A script overwrites the state of a partition, and there is another controller.  Then it is
    put right, as by hand."""
    ensemble = swarm.cluster.ensemble
    paths = sorted(path for path in ensemble.tree.nodes if path.endswith("/state"))
    path = swarm.random.choice(paths)
    data = ensemble.tree.node(path).data
    ensemble.apply([SetData(path, b"{")], NO_SESSION)
    with contextlib.suppress(NoNode):
        ensemble.apply([Delete(znodes.CONTROLLER)], NO_SESSION)
    await asyncio.sleep(lasts_s)
    if path in ensemble.tree.nodes and ensemble.tree.node(path).data == b"{":
        ensemble.apply([SetData(path, data)], NO_SESSION)


BEGINNINGS = ("kill", "stop", "expire", "pause", "isolate", "zookeeper_cut")
"""Faults of one broker that have the others act."""
AIMED = ("kill", "pause", "isolate", "zookeeper_cut", "expire")
"""Faults that strike who acts."""
AIM_S = 15.0
"""How long a moment is waited for."""


def at(moment: Moment) -> Fault:
    """After a fault, who does this next is struck in the middle of it."""

    async def strike_who_acts(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
        beginning, aimed = swarm.random.choice(BEGINNINGS), swarm.random.choice(AIMED)
        loop = swarm.loop
        if swarm.is_aiming:
            await befall(swarm, beginning, one, other, lasts_s)
            return
        swarm.is_aiming = True
        with watching(swarm, moment) as acts:
            began = loop.create_task(befall(swarm, beginning, one, other, lasts_s))
            try:
                async with asyncio.timeout(AIM_S):
                    while (actor := await acts()) in swarm.broken:
                        pass
            except TimeoutError:
                actor = None
        swarm.is_aiming = False
        if actor is not None:
            swarm.broken.add(actor)
            mean_s = swarm.random.choice([0.0, 0.001, 0.003, 0.05])
            await asyncio.sleep(loop.random.expovariate(1 / mean_s) if mean_s else 0.0)
            await befall(swarm, aimed, actor, one, swarm.random.expovariate(0.3))
            swarm.broken.discard(actor)
        await began

    strike_who_acts.__name__ = f"at_{moment.name.lower()}"
    strike_who_acts.__doc__ = moment.value
    return strike_who_acts


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
        new_disk,
        foreign_write,
        unreadable_znode,
        failing_log_dir,
        *map(at, Moment),
    )
}
OF_TWO = frozenset({"cut", "cut_one_way", "slow_link", "reset"})
OF_ALL = frozenset({"kill_all", "rolling_restart", "power", "power_and_kill_all", "new_disk"})


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
    await befall(swarm, name, one, other, lasts_s, victims)
    swarm.broken -= victims


async def befall(
    swarm: Swarm, name: str, one: int, other: int, lasts_s: float, victims: Collection[int] = ()
) -> None:
    """One fault, from its beginning to its end, of `one` or of all `victims`."""
    swarm.note(Struck(swarm.now_s, name, frozenset(victims or {one})))
    await FAULTS[name](swarm, one, other, lasts_s)
    swarm.note(Mended(swarm.now_s, name))
