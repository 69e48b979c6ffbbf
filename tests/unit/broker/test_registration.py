import asyncio
import errno
import re
from random import Random

import pytest

from kserver import znodes
from kserver.broker.registration import Registration, broker_id, cluster_id, note_directories
from kserver.cluster_config.znode_store import make_persistent
from kserver.config.broker import BrokerConfig
from kserver.config.topic import TopicConfig
from kserver.errors import ConfigError
from kserver.log.manager import LogManager
from kserver.model import Endpoint
from kserver.world import World
from kserver.world.zookeeper import NO_SESSION, Delete
from tests.support.clock import SimClock
from tests.support.disk import SimDisk
from tests.support.loop import simulate
from tests.support.zookeeper import SimEnsemble

ENDPOINT = Endpoint("PLAINTEXT", "PLAINTEXT", "localhost", 9092)
WITH_ZOOKEEPER = {"zookeeper_connect": "localhost:2181"}


def scenario(test):
    """Run an `async def test(ensemble)` in a simulation."""

    def run():
        async def main(loop):
            await test(SimEnsemble(loop, SimClock(loop)))

        simulate(main, seed=1)

    run.__name__ = test.__name__
    return run


async def client_of(ensemble):
    zookeeper = ensemble.client()
    await zookeeper.start()
    await make_persistent(zookeeper)
    return zookeeper


def registration(ensemble, zookeeper, number=1, endpoint=ENDPOINT, **config):
    clock = SimClock(ensemble.loop)
    disk = SimDisk(ensemble.loop.random, clock)
    world = World(clock, disk, zookeeper, ensemble.loop.random, "boot")
    settings = BrokerConfig(**config)
    return Registration(world, settings, number, [endpoint], LogManager(world, settings))


async def kept(ensemble):
    """A client, its registration, and the task that keeps that."""
    zookeeper = await client_of(ensemble)
    registered = registration(ensemble, zookeeper)
    await registered.register()
    return zookeeper, registered, asyncio.create_task(registered.run())


async def on_disk(ensemble, zookeeper, disk, boot="boot"):
    """The registration of a broker whose log directories are open."""
    world = World(SimClock(ensemble.loop), disk, zookeeper, ensemble.loop.random, boot)
    config = BrokerConfig.load(None, ["log.dirs=/data"])
    logs = LogManager(world, config)
    await logs.lock()
    await logs.open(lambda _: TopicConfig())
    return Registration(world, config, 1, [ENDPOINT], logs), logs


async def registered_by(zookeeper):
    data, _ = await zookeeper.get("/brokers/ids/1")
    return znodes.decode_broker(1, data)


@scenario
async def test_the_znodes_that_every_cluster_has_are_made_once(ensemble):
    clients = [ensemble.client() for _ in range(3)]
    for zookeeper in clients:
        await zookeeper.start()
    await asyncio.gather(*(make_persistent(zookeeper) for zookeeper in clients))
    assert set(znodes.PERSISTENT_PATHS) <= set(ensemble.tree.nodes)
    before = dict(ensemble.tree.nodes)
    await make_persistent(clients[0])
    assert ensemble.tree.nodes == before


@scenario
async def test_a_clusters_id_is_made_up_once(ensemble):
    clients = [await client_of(ensemble) for _ in range(3)]
    random = Random(5)
    made = await asyncio.gather(*(cluster_id(zookeeper, random) for zookeeper in clients))
    assert len(set(made)) == 1
    assert re.fullmatch(r"[A-Za-z0-9_-]{22}", made[0])
    assert await cluster_id(clients[0], random) == made[0]


@scenario
async def test_numbers_from_zookeeper_start_above_those_that_files_may_choose(ensemble):
    zookeeper = await client_of(ensemble)
    config = BrokerConfig(**WITH_ZOOKEEPER)
    assert [await broker_id(zookeeper, config, None) for _ in range(2)] == [1001, 1002]
    assert await broker_id(zookeeper, config, 1001) == 1001


@scenario
async def test_no_two_brokers_get_the_same_number(ensemble):
    clients = [ensemble.client() for _ in range(3)]
    for zookeeper in clients:
        await zookeeper.start()
    config = BrokerConfig(**WITH_ZOOKEEPER)
    numbers = await asyncio.gather(*(broker_id(zookeeper, config, None) for zookeeper in clients))
    assert sorted(numbers) == [1001, 1002, 1003]


@scenario
async def test_a_configured_number_goes_before_the_stored_one(ensemble):
    zookeeper = await client_of(ensemble)
    assert await broker_id(zookeeper, BrokerConfig(broker_id=7, **WITH_ZOOKEEPER), 1001) == 7
    assert await broker_id(zookeeper, BrokerConfig(node_id=8), None) == 8


@scenario
async def test_a_broker_without_zookeeper_is_number_0_unless_told(ensemble):
    zookeeper = await client_of(ensemble)
    assert await broker_id(zookeeper, BrokerConfig(), None) == 0
    assert await broker_id(zookeeper, BrokerConfig(), 4) == 4
    assert await broker_id(zookeeper, BrokerConfig(broker_id=5000), 4) == 5000


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"broker_id": 1001}, "Invalid value 1001 for configuration broker.id: .* is 1000"),
        ({"broker_id_generation_enable": False}, "Invalid value -1 for configuration broker.id"),
    ],
)
def test_numbers_that_zookeeper_may_hand_out_are_not_chosen(config, text):
    async def main(loop):
        zookeeper = await client_of(SimEnsemble(loop, SimClock(loop)))
        with pytest.raises(ConfigError, match=text):
            await broker_id(zookeeper, BrokerConfig(**config, **WITH_ZOOKEEPER), None)

    simulate(main, seed=1)


@scenario
async def test_a_broker_tells_its_endpoints_and_rack_while_it_lives(ensemble):
    zookeeper = await client_of(ensemble)
    registered = registration(ensemble, zookeeper, broker_rack="r1")
    await registered.register()
    data, stat = await zookeeper.get("/brokers/ids/1")
    broker = znodes.decode_broker(1, data)
    assert (broker.endpoints, broker.rack) == ((ENDPOINT,), "r1")
    assert registered.epoch == stat.czxid
    await zookeeper.close()
    assert "/brokers/ids/1" not in ensemble.tree.nodes


@scenario
async def test_a_new_session_registers_anew(ensemble):
    zookeeper, registered, running = await kept(ensemble)
    first = registered.epoch
    for _ in range(3):
        zookeeper.expire()
        zookeeper.cut()
        zookeeper.heal()
        await asyncio.sleep(1)
        stat = await zookeeper.exists("/brokers/ids/1")
        assert stat.ephemeral_owner == zookeeper.session_id
        assert registered.epoch == stat.czxid > first
        first = registered.epoch
    running.cancel()


@scenario
async def test_a_broker_is_registered_in_its_present_session_or_not_at_all(ensemble):
    zookeeper, registered, running = await kept(ensemble)
    session = zookeeper.session_id
    zookeeper.expire()
    while zookeeper.session_id == session:
        await asyncio.sleep(0)
    await asyncio.sleep(0)  # its listeners are called in the next turn
    assert not registered.is_registered
    await registered.registered()
    node = ensemble.tree.nodes[znodes.broker_path(1)]
    assert node.owner == zookeeper.session_id
    running.cancel()


@scenario
async def test_a_registration_that_was_deleted_is_made_again_also_after_a_cut(ensemble):
    other = await client_of(ensemble)
    zookeeper, registered, running = await kept(ensemble)
    zookeeper.cut()
    zookeeper.heal()
    await asyncio.sleep(1)
    for _ in range(3):
        epoch = registered.epoch
        await other.delete(znodes.broker_path(1))
        await asyncio.sleep(1)
        assert (await other.exists(znodes.broker_path(1))).czxid == registered.epoch > epoch
    running.cancel()


@scenario
async def test_a_registration_that_is_deleted_at_once_is_made_again(ensemble):
    """That of a new session, and the next ones too, before the broker has looked at it."""
    path, left = znodes.broker_path(1), 3
    zookeeper, registered, running = await kept(ensemble)

    def delete(event):
        nonlocal left
        if event.path == path and path in ensemble.tree.nodes and left:
            left -= 1
            ensemble.loop.call_soon(ensemble.apply, [Delete(path)], NO_SESSION)

    ensemble.on_change = delete
    other = await client_of(ensemble)
    zookeeper.expire()
    zookeeper.cut()
    zookeeper.heal()
    await asyncio.sleep(10)
    assert left == 0
    assert (await other.exists(path)).czxid == registered.epoch
    assert registered.is_registered
    running.cancel()


@scenario
async def test_a_lost_connection_alone_leaves_the_registration(ensemble):
    zookeeper, registered, running = await kept(ensemble)
    epoch = registered.epoch
    zookeeper.cut()
    await asyncio.sleep(5)
    zookeeper.heal()
    await asyncio.sleep(5)
    assert (await zookeeper.exists("/brokers/ids/1")).czxid == epoch
    running.cancel()


@scenario
async def test_a_registration_whose_answer_was_lost_stands(ensemble):
    for delay_s in (0.0001, 0.001, 0.002, 0.003, 0.004):
        zookeeper = await client_of(ensemble)
        registered = registration(ensemble, zookeeper)
        ensemble.loop.call_later(delay_s, zookeeper.cut)
        ensemble.loop.call_later(delay_s + 1, zookeeper.heal)
        started = ensemble.loop.time()
        await registered.register()
        assert ensemble.loop.time() - started < 3
        await asyncio.sleep(2)
        await zookeeper.close()


@scenario
async def test_a_restart_waits_for_its_own_old_session_to_end(ensemble):
    crashed = await client_of(ensemble)
    await registration(ensemble, crashed).register()
    crashed.kill()
    zookeeper = await client_of(ensemble)
    again = registration(ensemble, zookeeper)
    await again.register()
    assert 15 < ensemble.loop.time() < 25
    assert (await zookeeper.exists("/brokers/ids/1")).czxid == again.epoch


@scenario
async def test_a_restart_on_the_same_disk_waits_for_nothing(ensemble):
    disk = SimDisk(ensemble.loop.random, SimClock(ensemble.loop))
    crashed = await client_of(ensemble)
    first, _ = await on_disk(ensemble, crashed, disk)
    await first.register()
    await crashed.create(znodes.CONTROLLER, znodes.encode_controller(1, 0), ephemeral=True)
    crashed.kill()
    zookeeper = await client_of(ensemble)
    again, _ = await on_disk(ensemble, zookeeper, disk.kill())
    began_s = ensemble.loop.time()
    await again.register()
    assert ensemble.loop.time() - began_s < 1
    assert (await zookeeper.exists("/brokers/ids/1")).czxid == again.epoch > first.epoch
    assert await zookeeper.exists(znodes.CONTROLLER) is None, "it was the dead one's"


@scenario
async def test_a_restart_leaves_the_controller_that_is_another(ensemble):
    disk = SimDisk(ensemble.loop.random, SimClock(ensemble.loop))
    crashed, controller = await client_of(ensemble), await client_of(ensemble)
    first, _ = await on_disk(ensemble, crashed, disk)
    await first.register()
    await controller.create(znodes.CONTROLLER, znodes.encode_controller(2, 0), ephemeral=True)
    crashed.kill()
    zookeeper = await client_of(ensemble)
    again, _ = await on_disk(ensemble, zookeeper, disk.kill())
    await again.register()
    assert (await zookeeper.exists(znodes.CONTROLLER)).ephemeral_owner == controller.session_id


@scenario
async def test_another_disk_proves_nothing(ensemble):
    crashed = await client_of(ensemble)
    first, _ = await on_disk(ensemble, crashed, SimDisk(Random(1), SimClock(ensemble.loop)))
    await first.register()
    crashed.kill()
    zookeeper = await client_of(ensemble)
    again, _ = await on_disk(ensemble, zookeeper, SimDisk(Random(1), SimClock(ensemble.loop)))
    began_s = ensemble.loop.time()
    await again.register()
    assert ensemble.loop.time() - began_s > 10


@scenario
async def test_a_broker_tells_that_its_machine_went_down_with_its_records(ensemble):
    disk = SimDisk(ensemble.loop.random, SimClock(ensemble.loop))
    told = []
    for boot, ends in (("1", "kill"), ("1", "stop"), ("2", "crash"), ("3", "kill"), ("3", "stop")):
        zookeeper = await client_of(ensemble)
        alive, logs = await on_disk(ensemble, zookeeper, disk, boot)
        await alive.register()
        told.append((await registered_by(zookeeper)).may_lack_records)
        if ends == "stop":
            await logs.close()
            logs.unlock()
        else:
            disk = disk.crash(0.0) if ends == "crash" else disk.kill()
        await zookeeper.close()
    # At first, for the disk is new; not after a crash of the process, nor after a clean stop that
    # a boot follows; but after a crash of the machine.
    assert told == [True, False, False, True, False]


@scenario
async def test_a_number_that_another_broker_has_is_refused(ensemble):
    there = Endpoint("PLAINTEXT", "PLAINTEXT", "elsewhere", 9092)
    await registration(ensemble, await client_of(ensemble), endpoint=there).register()
    here = registration(ensemble, await client_of(ensemble))
    with pytest.raises(
        ConfigError, match=r"/brokers/ids/1.*PLAINTEXT://elsewhere:9092.*another broker\.id"
    ):
        await here.register()


async def noted(ensemble, zookeeper, disk, directories="/a,/b"):
    """A start over these log directories: the paths that are lost, and the broker's parts."""
    world = World(SimClock(ensemble.loop), disk, zookeeper, ensemble.loop.random, "boot")
    config = BrokerConfig.load(None, [f"log.dirs={directories}"])
    logs = LogManager(world, config)
    await logs.lock()
    logs.identify(1, "cluster")
    logs.missing.lost_directories = await note_directories(zookeeper, 1, logs.directories)
    return (
        sorted(logs.missing.lost_directories.values()),
        Registration(world, config, 1, [ENDPOINT], logs),
    )


@scenario
async def test_a_log_directory_that_was_had_before_is_lost_until_it_is_back_or_forgotten(ensemble):
    zookeeper = await client_of(ensemble)
    disk = SimDisk(ensemble.loop.random, SimClock(ensemble.loop))
    for _ in range(2):
        assert (await noted(ensemble, zookeeper, disk))[0] == []
        disk = disk.kill()
    disk.rename("/b", "/unmounted")
    for _ in range(2):
        # The first of these starts makes an empty directory.
        assert (await noted(ensemble, zookeeper, disk))[0] == ["/b"]
        disk = disk.kill()
    disk.remove_tree("/b")
    disk.rename("/unmounted", "/b")
    lost, alive = await noted(ensemble, zookeeper, disk)
    assert lost == ["/b"], "the empty one, until every partition has its log"
    await alive.forget_lost_directories()
    assert (await noted(ensemble, zookeeper, disk.kill()))[0] == []


@scenario
async def test_nothing_is_forgotten_while_a_log_directory_has_failed(ensemble):
    zookeeper = await client_of(ensemble)
    disk = SimDisk(ensemble.loop.random, SimClock(ensemble.loop))
    await noted(ensemble, zookeeper, disk, "/a,/b,/c")
    disk = disk.kill()
    disk.remove_tree("/c")
    disk.fail("*", errno.EIO, path="/b*")
    lost, alive = await noted(ensemble, zookeeper, disk, "/a,/b,/c")
    assert lost == ["/c"], "whether that of /b is lost is not known"
    await alive.forget_lost_directories()
    assert (await noted(ensemble, zookeeper, disk.kill(), "/a,/b,/c"))[0] == ["/c"]
