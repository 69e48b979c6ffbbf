import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kserver import znodes
from kserver.controller.claimed_store import ClaimedStore
from kserver.controller.producer_ids import LAST_PRODUCER_ID, allocate
from kserver.errors import ErrorCode, KafkaError
from kserver.world.zookeeper import BadVersion, SessionExpired
from kserver.znodes import ProducerIdBlock
from tests.support.clock import SimClock
from tests.support.loop import simulate
from tests.support.zookeeper import SimEnsemble


async def claimed(ensemble):
    """A store as the controller has it, and its session."""
    zookeeper = ensemble.client()
    await zookeeper.start()
    if await zookeeper.exists(znodes.CONTROLLER_EPOCH) is None:
        await zookeeper.create(znodes.CONTROLLER_EPOCH, b"0")
    stat = await zookeeper.set(znodes.CONTROLLER_EPOCH, b"1")
    store = ClaimedStore(zookeeper)
    store.session, store.epoch_version = zookeeper.session_id, stat.version
    return store, zookeeper


def run(test, seed=1):
    async def main(loop):
        ensemble = SimEnsemble(loop, SimClock(loop))
        await test(ensemble, *await claimed(ensemble))

    simulate(main, seed)


def test_each_block_begins_where_the_last_one_ended_whoever_asks():
    async def test(_, store, zookeeper):
        assert await allocate(store, 1) == ProducerIdBlock(1, 0, 999)
        assert await allocate(store, 7) == ProducerIdBlock(7, 1000, 1999)
        data, _ = await zookeeper.get("/latest_producer_id_block")
        assert data == b'{"version":1,"broker":7,"block_start":"1000","block_end":"1999"}'

    run(test)


def test_a_block_follows_the_one_that_kafka_gave():
    async def test(_, store, zookeeper):
        block = b'{"version":1,"broker":7,"block_start":"4000","block_end":"4999"}'
        await zookeeper.create("/latest_producer_id_block", block)
        assert (await allocate(store, 1)).first == 5000

    run(test)


def test_an_empty_znode_is_followed_by_the_first_block():
    async def test(_, store, zookeeper):
        await zookeeper.create("/latest_producer_id_block")
        assert (await allocate(store, 1)).first == 0

    run(test)


def test_the_last_block_is_followed_by_none():
    async def test(_, store, zookeeper):
        last = ProducerIdBlock(1, LAST_PRODUCER_ID - 999, LAST_PRODUCER_ID)
        path, data = znodes.PRODUCER_ID_BLOCK, znodes.encode_producer_id_block(last)
        await zookeeper.create(path, data)
        with pytest.raises(KafkaError) as refused:
            await allocate(store, 1)
        assert refused.value.code is ErrorCode.unknown_server_error

    run(test)


def test_a_controller_that_was_replaced_gives_nothing():
    async def test(ensemble, before, _):
        store, _ = await claimed(ensemble)
        with pytest.raises(BadVersion):
            await allocate(before, 1)
        assert (await allocate(store, 1)).first == 0

    run(test)


FAULTS = st.lists(st.tuples(st.sampled_from(["cut", "expire"]), st.floats(0, 0.2)), max_size=4)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 1000), FAULTS)
def test_no_block_is_given_twice(seed, faults):
    async def test(ensemble, store, zookeeper):
        for fault, delay_s in faults:
            ensemble.loop.call_later(delay_s, inflict, fault, zookeeper)
        given = []
        for broker in [1, 2, 3] * 20:
            try:
                given.append(await allocate(store, broker))
            except (BadVersion, SessionExpired):
                store, zookeeper = await claimed(ensemble)
            await asyncio.sleep(0.01)
        assert len(given) > 50
        assert len({block.first for block in given}) == len(given)

    run(test, seed)


def inflict(fault, zookeeper):
    if fault == "cut":
        zookeeper.cut()
        zookeeper.heal()
    else:
        zookeeper.expire()
