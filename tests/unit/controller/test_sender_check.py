"""Whose control messages are taken, by the address they come from and the epoch they name."""

import asyncio

from kserver import znodes
from kserver.config.broker import BrokerConfig
from kserver.controller.sender_check import CONFIRM_S, SenderCheck
from kserver.model import Endpoint
from tests.support.clock import SimClock
from tests.support.loop import simulate
from tests.support.zookeeper import SimEnsemble

PATIENCE_S = 60
BROKER, STRANGER = "10.0.0.1", "10.0.0.9"


def scenario(test):
    """Run an `async def test(ensemble, check)` in a simulation; broker 1 is at BROKER."""

    def run():
        async def main(loop):
            ensemble = SimEnsemble(loop, SimClock(loop))
            zookeeper = ensemble.client()
            await zookeeper.start()
            await register(zookeeper, 1, BROKER)
            await zookeeper.create("/controller_epoch", b"4")
            await zookeeper.create("/controller", znodes.encode_controller(1, 0))
            async with asyncio.timeout(PATIENCE_S):
                await test(zookeeper, SenderCheck(zookeeper, BrokerConfig))

        simulate(main, seed=1)

    run.__name__ = test.__name__
    return run


async def register(zookeeper, number, host):
    endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", host, 9092)
    data = znodes.encode_broker(znodes.BrokerRegistration(number, (endpoint,), 0))
    await zookeeper.create(znodes.broker_path(number), data, make_parents=True)


@scenario
async def test_brokers_are_known_by_their_address_also_new_ones(zookeeper, check):
    for address, is_known in (
        (BROKER, True),
        (f"::ffff:{BROKER}", True),
        (f"{BROKER}%eth0", True),
        (STRANGER, False),
        ("", False),
    ):
        assert await check.is_broker(address, "StopReplica") == is_known
    await register(zookeeper, 9, STRANGER)
    assert await check.is_broker(STRANGER, "StopReplica")


def test_each_stranger_is_warned_about_once_with_the_remedy(caplog):
    @scenario
    async def ask(_, check):
        for _ in range(3):
            assert not await check.is_broker(STRANGER, "StopReplica")

    ask()
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"StopReplica from {STRANGER} refused")
    assert "inter.broker.check.address=false" in line


@scenario
async def test_where_addresses_are_not_checked_all_may_send(zookeeper, check):
    assert not await check.is_broker(STRANGER, "StopReplica")
    config = BrokerConfig.load(None, ["inter.broker.check.address=false"])
    assert await SenderCheck(zookeeper, lambda: config).is_broker(STRANGER, "StopReplica")


@scenario
async def test_while_zookeeper_is_away_nobody_is_refused_or_believed(zookeeper, check):
    zookeeper.cut()
    asked = asyncio.create_task(check.is_broker(BROKER, "LeaderAndIsr"))
    epoch = asyncio.create_task(check.is_controller(1, 4))
    await asyncio.sleep(2 * CONFIRM_S)
    assert not asked.done()
    assert not epoch.done()
    zookeeper.heal()
    assert await asked
    assert await epoch


@scenario
async def test_an_epoch_is_believed_once_zookeeper_has_it(zookeeper, check):
    assert await check.is_controller(1, 4)
    assert not await check.is_controller(2, 4)
    assert await check.is_controller(2, 3)
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    assert not await check.is_controller(1, 5)
    assert CONFIRM_S <= loop.time() - began_s < CONFIRM_S + 1
    waiting = asyncio.create_task(check.is_controller(1, 5))
    await asyncio.sleep(CONFIRM_S / 2)
    await zookeeper.set("/controller_epoch", b"5")
    assert await waiting
