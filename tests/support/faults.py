"""Faults of the brokers of a simulated cluster, each for some seconds, and then repaired.

    await strike(swarm, "pause", 5.0)

A fault is a function of two brokers that have no other fault meanwhile, and of its duration. No
fault may lose a record that was acknowledged with acks=all, nor keep the cluster from recovering
soon after the repair.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from kcli.client.admin.admin import Admin
from kcli.client.admin.descriptions import ConfigChange, ConfigOp, ResourceType
from kcli.client.config import AdminConfig
from kserver import znodes
from kserver.errors import StorageError
from kserver.model import TopicPartition
from kserver.world.zookeeper import NO_SESSION, BadVersion, Delete, NoNode, SetData
from tests.support.disk import SimDisk
from tests.support.history import LostPower, Mended, Struck
from tests.support.moments import Moment, watching
from tests.support.workloads import REFUSALS

if TYPE_CHECKING:
    from tests.support.swarm import Swarm

Fault = Callable[["Swarm", int, int, float], Awaitable[None]]

JUMP_MS = 60_000
SLOW_LINK_S = 0.3
SLOW_DISK_S = 0.2
LAGS_S = (0.05, 0.5, 5.0)


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
    """Kill all processes at once; the machines keep running."""
    for broker in swarm.cluster.brokers:
        await swarm.cluster.kill(broker)
    await asyncio.sleep(lasts_s / 5)
    await swarm.cluster.start()


async def rolling_restart(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """Restart the brokers one by one, each once the one before is in sync again."""
    for broker in swarm.cluster.brokers:
        await swarm.cluster.stop(broker)
        await asyncio.sleep(lasts_s / 10)
        await swarm.cluster.start(broker)
        await swarm.cluster.until_all_in_isr()


async def power(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """Cut the power of one machine; its unsynced writes are lost or torn. The other brokers have no
    fault until it is in sync again: a cluster that loses two machines loses records, as with Kafka.
    """
    await swarm.cluster.until_all_in_isr()
    swarm.note(LostPower(swarm.now_s, one))
    swarm.loses_bytes(one)
    await swarm.cluster.cut_power(one, swarm.random.choice([0.0, None]))
    await asyncio.sleep(lasts_s)
    await swarm.cluster.start(one)
    await swarm.cluster.until_all_in_isr()


async def power_and_kill_all(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """Cut the power of one machine, and kill the processes of all others. It is back first, but the
    others have the records that it lost.
    """
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
    """Pause and resume the process: SIGSTOP, SIGCONT."""
    swarm.cluster.brokers[one].pause()
    await asyncio.sleep(lasts_s)
    swarm.cluster.brokers[one].resume()


async def cut(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """Cut the network between two brokers."""
    swarm.loop.network.cut(f"b{one}", f"b{other}")
    await asyncio.sleep(lasts_s)
    swarm.loop.network.heal(f"b{one}", f"b{other}")


async def cut_one_way(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """Drop the packets from one broker to the other."""
    swarm.loop.network.cut_one_way(f"b{one}", f"b{other}")
    await asyncio.sleep(lasts_s)
    swarm.loop.network.heal(f"b{one}", f"b{other}")


async def isolate(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """Cut a broker from the others and from ZooKeeper; clients still reach it."""
    with isolated(swarm, one):
        await asyncio.sleep(lasts_s)


@contextlib.contextmanager
def isolated(swarm: Swarm, one: int) -> Iterator[None]:
    others = [f"b{broker}" for broker in swarm.cluster.brokers if broker != one]
    for name in others:
        swarm.loop.network.cut(f"b{one}", name)
    swarm.cluster.zookeeper(one).silence()
    yield
    for name in others:
        swarm.loop.network.heal(f"b{one}", name)
    swarm.cluster.zookeeper(one).heal()


async def slow_link(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """Slow down the network between two brokers."""
    swarm.loop.network.slow(f"b{one}", f"b{other}", SLOW_LINK_S)
    await asyncio.sleep(lasts_s)
    swarm.loop.network.slow(f"b{one}", f"b{other}", None)


async def expire(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """Expire the broker's ZooKeeper session."""
    swarm.cluster.expire(one)


async def zookeeper_cut(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """Cut the network between the broker and ZooKeeper."""
    swarm.cluster.zookeeper(one).silence()
    await asyncio.sleep(lasts_s)
    swarm.cluster.zookeeper(one).heal()


async def lagging_zookeeper(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """Let the broker's ZooKeeper server learn of writes later than the others."""
    zookeeper = swarm.cluster.zookeeper(one)
    zookeeper.lag(swarm.random.choice(LAGS_S))
    await asyncio.sleep(lasts_s)
    zookeeper.catch_up()


async def refuse(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """Refuse connections to the broker's port, though the process lives."""
    swarm.loop.network.refuse(f"b{one}")
    swarm.loop.network.close(f"b{one}")
    await asyncio.sleep(lasts_s)
    swarm.loop.network.accept(f"b{one}")


async def reset(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """Reset the connections of all clients, and those between two brokers."""
    for name in [*swarm.clients, f"b{other}"]:
        swarm.loop.network.reset(name, f"b{one}")


async def clients_cut(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """Cut the broker from all clients; all brokers reach it."""
    names = list(swarm.clients)
    for name in names:
        swarm.loop.network.cut(name, f"b{one}")
    await asyncio.sleep(lasts_s)
    for name in names:
        swarm.loop.network.heal(name, f"b{one}")


async def clock_jump(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """Set the broker's wall clock a minute wrong."""
    swarm.cluster.brokers[one].clock.ahead_ms = swarm.random.choice([-JUMP_MS, JUMP_MS])
    await asyncio.sleep(lasts_s)
    swarm.cluster.brokers[one].clock.ahead_ms = 0


async def slow_disk(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    disk = swarm.cluster.brokers[one].disk
    before, disk.mean_offload_s = disk.mean_offload_s, SLOW_DISK_S
    await asyncio.sleep(lasts_s)
    disk.mean_offload_s = before


async def full_disk(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """Leave the disk space for some hundred bytes, until there is space again."""
    disk = swarm.cluster.brokers[one].disk
    before, disk.capacity_bytes = disk.capacity_bytes, disk.used_bytes() + 500
    await asyncio.sleep(lasts_s)
    disk.capacity_bytes = before


async def failing_disk(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """Make each write to a log fail, then replace the disk by one with the same bytes. A broker
    whose only log directory has failed exits by itself.
    """
    broker = swarm.cluster.brokers[one]
    operation = swarm.random.choice(["write_at", "sync"])
    broker.disk.fail(operation, errno.EIO, path="*.log")
    await asyncio.sleep(lasts_s)
    await swarm.cluster.kill(one)
    await swarm.cluster.start(one)


async def failing_log_dir(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """Make one log directory fail; the broker goes on with the others."""
    broker = swarm.cluster.brokers[one]
    directory = swarm.random.choice(swarm.log_dirs)
    broken = broker.disk.fail("*", errno.EIO, path=f"{directory}/*")
    await asyncio.sleep(lasts_s)
    if swarm.random.random() < 0.5:
        with contextlib.suppress(StorageError):  # the error for a directory that it cannot close
            await swarm.cluster.stop(one)
        broken.clear()
    else:
        await swarm.cluster.kill(one)
    await swarm.cluster.start(one)


async def new_disk(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """Replace the broker's disk by an empty one, maybe before the cluster notices. The others go
    on, and one may die during the broker's restart: a third one has to be in sync.
    """
    await swarm.cluster.until_steady()
    random = swarm.random
    await swarm.cluster.kill(one)
    swarm.loses_bytes(one)
    broker = swarm.cluster.brokers[one]
    before = broker.disk
    broker.disk = SimDisk(swarm.loop.random, broker.clock)
    broker.disk.cold_chance, broker.disk.on_truncate = before.cold_chance, before.on_truncate
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
    """Have another client rewrite the states of partitions, so that their versions change unknown
    to the controller; then kill a broker. In the end depose the controller: the next one reads all
    states.
    """
    ensemble = swarm.cluster.ensemble
    client = ensemble.client()
    await client.start()
    for path in [path for path in sorted(ensemble.tree.nodes) if path.endswith("/state")]:
        if swarm.random.random() < 0.7:
            # With its version: what the controller writes meanwhile must stand.
            with contextlib.suppress(NoNode, BadVersion):
                node = ensemble.tree.node(path)
                await client.set(path, node.data, node.version)
    await swarm.cluster.kill(one)
    await asyncio.sleep(lasts_s)
    await swarm.cluster.start(one)
    with contextlib.suppress(NoNode):
        await client.delete(znodes.CONTROLLER)
    await client.close()


async def unreadable_znode(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """Overwrite the state of a partition as a script might, and elect another controller. Then
    restore the state, as by hand.
    """
    ensemble = swarm.cluster.ensemble
    paths = sorted(path for path in ensemble.tree.nodes if path.endswith("/state"))
    if not paths:
        return
    path = swarm.random.choice(paths)
    data = ensemble.tree.node(path).data
    ensemble.apply([SetData(path, b"{")], NO_SESSION)
    with contextlib.suppress(NoNode):
        ensemble.apply([Delete(znodes.CONTROLLER)], NO_SESSION)
    await asyncio.sleep(lasts_s)
    if path in ensemble.tree.nodes and ensemble.tree.node(path).data == b"{":
        ensemble.apply([SetData(path, data)], NO_SESSION)


async def new_role_in_truncation(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """Isolate a broker until others lead its partitions, so that it has to truncate their logs when
    it is back. While it truncates one, slowly, stop that partition's leader (SIGTERM): the broker
    is sent another role.
    """
    disk = swarm.cluster.brokers[one].disk
    truncated: asyncio.Queue[TopicPartition] = asyncio.Queue()

    def note(path: str) -> None:
        if path.endswith(".log"):
            topic, _, number = path.split("/")[-2].rpartition("-")
            truncated.put_nowait(TopicPartition(topic, int(number)))

    before_s, on_truncate = disk.mean_offload_s, disk.on_truncate
    disk.on_truncate = note
    with isolated(swarm, one):
        await _until_deposed(swarm, one)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(AIM_S):
            key = await truncated.get()
        disk.mean_offload_s = SLOW_DISK_S
        leader = swarm.cluster.leader(*key)
        if leader is not None and leader.leader_id not in swarm.broken:
            swarm.broken.add(leader.leader_id)
            await befall(swarm, "stop", leader.leader_id, one, lasts_s)
            swarm.broken.discard(leader.leader_id)
    disk.mean_offload_s, disk.on_truncate = before_s, on_truncate


async def truncation_in_move(swarm: Swarm, one: int, other: int, lasts_s: float) -> None:
    """Isolate a broker until others lead its partitions, and move their logs to another directory
    meanwhile. It has to truncate the logs, and they grow again before the slow moves end.
    """
    cluster, random = swarm.cluster, swarm.random
    rate, broker = "replica.alter.log.dirs.io.max.bytes.per.second", (ResourceType.BROKER, str(one))
    disk = cluster.brokers[one].disk
    before_s = disk.mean_offload_s
    config = AdminConfig.of(swarm.bootstrap | {"default.api.timeout.ms": "5000"})
    async with Admin(config, random=swarm.new_chance()) as admin:
        await _set(admin, rate, broker, str(int(10 ** random.uniform(2, 4))))
        await asyncio.sleep(random.uniform(0, lasts_s))  # it reads the change meanwhile
        paths = {
            key: random.choice([p for p in swarm.log_dirs if p not in replica.log.directory])
            for key, replica in cluster.hosted(one).items()
            if replica.is_leader and replica.log.failure is None
        }
        disk.mean_offload_s = random.choice([SLOW_DISK_S, 5 * SLOW_DISK_S])
        with isolated(swarm, one):
            with contextlib.suppress(*REFUSALS):
                await admin.alter_replica_log_dirs(one, paths)
            await _until_deposed(swarm, one)
        await asyncio.sleep(lasts_s)
        disk.mean_offload_s = before_s
        await _set(admin, rate, broker, None)


async def _until_deposed(swarm: Swarm, one: int) -> None:
    """Wait until a broker that is isolated leads no partition, as the znodes say."""
    nodes = swarm.cluster.ensemble.tree.nodes
    with contextlib.suppress(TimeoutError):  # no other replica may be in sync
        async with asyncio.timeout(AIM_S):
            while any(
                json.loads(node.data)["leader"] == one
                for path, node in nodes.items()
                if path.endswith("/state") and node.data.endswith(b"}")
            ):
                await asyncio.sleep(0.1)


async def _set(
    admin: Admin, name: str, resource: tuple[ResourceType, str], value: str | None
) -> None:
    """Set or delete a config; a cluster in trouble may refuse it."""
    change = ConfigChange(name, ConfigOp.DELETE if value is None else ConfigOp.SET, value)
    with contextlib.suppress(*REFUSALS):
        await admin.incremental_alter_configs({resource: [change]})


BEGINNINGS = ("kill", "stop", "expire", "pause", "isolate", "zookeeper_cut")
"""Faults of one broker to which the others react."""
AIMED = ("kill", "pause", "isolate", "zookeeper_cut", "expire")
"""Faults of the broker that acts."""
AIM_S = 15.0
"""Seconds to wait for a moment."""


def at(moment: Moment) -> Fault:
    """Return a fault that is followed by another one, of the broker that acts next in
    this moment.
    """

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
        lagging_zookeeper,
        new_role_in_truncation,
        truncation_in_move,
    )
}
LATER = frozenset({"lagging_zookeeper", "new_role_in_truncation", "truncation_in_move"})
"""Faults that were added after the first seeds were kept: a seed that may draw them is another run.
"""
OF_TWO_DIRECTORIES = frozenset({"failing_log_dir", "truncation_in_move"})
OF_TWO = frozenset({"cut", "cut_one_way", "slow_link", "reset"})
OF_ALL = frozenset({"kill_all", "rolling_restart", "power", "power_and_kill_all", "new_disk"})


async def strike(swarm: Swarm, name: str, lasts_s: float) -> None:
    """Inject the fault into brokers without a fault; skip it if there are too few."""
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
    """Run one fault from its beginning to its end, of `one` or of all `victims`."""
    swarm.note(Struck(swarm.now_s, name, frozenset(victims or {one})))
    await FAULTS[name](swarm, one, other, lasts_s)
    swarm.note(Mended(swarm.now_s, name))
