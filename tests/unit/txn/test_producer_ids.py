import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kserver import znodes
from kserver.errors import ErrorCode, KafkaError
from kserver.txn.producer_ids import LAST_PRODUCER_ID, ProducerIds
from kserver.world.zookeeper import SessionExpired
from tests.support.clock import SimClock
from tests.support.loop import simulate
from tests.support.zookeeper import SimEnsemble


def run(test, seed=1):
    async def main(loop):
        ensemble = SimEnsemble(loop, SimClock(loop))
        zookeeper = ensemble.client()
        await zookeeper.start()
        await test(ensemble, zookeeper)

    simulate(main, seed)


def test_ids_count_up_from_0_and_ask_zookeeper_once_in_a_thousand():
    async def test(ensemble, zookeeper):
        ids = ProducerIds(zookeeper, broker_id=1)
        assert await ids.next() == 0
        asked_at = ensemble.loop.time()
        assert [await ids.next() for _ in range(999)] == list(range(1, 1000))
        assert ensemble.loop.time() == asked_at
        data, _ = await zookeeper.get("/latest_producer_id_block")
        assert data == b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}'
        assert await ids.next() == 1000

    run(test)


def test_a_block_follows_the_one_that_kafka_took():
    async def test(_, zookeeper):
        block = b'{"version":1,"broker":7,"block_start":"4000","block_end":"4999"}'
        await zookeeper.create("/latest_producer_id_block", block)
        assert await ProducerIds(zookeeper, 1).next() == 5000

    run(test)


def test_an_empty_znode_is_followed_by_the_first_block():
    async def test(_, zookeeper):
        await zookeeper.create("/latest_producer_id_block")
        assert await ProducerIds(zookeeper, 1).next() == 0

    run(test)


def test_those_who_wait_together_take_one_block():
    async def test(_, zookeeper):
        ids = ProducerIds(zookeeper, 1)
        got = await asyncio.gather(*(ids.next() for _ in range(1001)))
        assert sorted(got) == list(range(1001))
        data, _ = await zookeeper.get("/latest_producer_id_block")
        assert znodes.decode_producer_id_block(data).last == 1999

    run(test)


def test_the_last_block_is_followed_by_none():
    async def test(_, zookeeper):
        last = znodes.ProducerIdBlock(1, LAST_PRODUCER_ID - 999, LAST_PRODUCER_ID)
        path, data = znodes.PRODUCER_ID_BLOCK, znodes.encode_producer_id_block(last)
        await zookeeper.create(path, data)
        with pytest.raises(KafkaError) as refused:
            await ProducerIds(zookeeper, 1).next()
        assert refused.value.code is ErrorCode.unknown_server_error

    run(test)


def test_one_who_gives_up_leaves_the_block_to_the_next():
    async def test(_, zookeeper):
        ids = ProducerIds(zookeeper, 1)
        first, second = asyncio.create_task(ids.next()), asyncio.create_task(ids.next())
        await asyncio.sleep(0)
        first.cancel()
        assert await second in (0, 1000)

    run(test)


FAULTS = st.lists(st.tuples(st.sampled_from(["cut", "expire"]), st.floats(0, 0.2)), max_size=4)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 3), FAULTS)
def test_no_id_is_handed_out_twice(seed, brokers, faults):
    async def test(ensemble, zookeeper):
        for fault, delay_s in faults:
            ensemble.loop.call_later(delay_s, inflict, fault, zookeeper)
        got = []

        async def take(broker_id, zookeeper):
            ids = ProducerIds(zookeeper, broker_id)
            for _ in range(3000):
                try:
                    got.append(await ids.next())
                except SessionExpired:
                    pass

        others = [ensemble.client() for _ in range(brokers - 1)]
        for other in others:
            await other.start()
        clients = [zookeeper, *others]
        await asyncio.gather(*(take(n, client) for n, client in enumerate(clients)))
        assert len(got) == len(set(got))
        assert got

    run(test, seed)


def inflict(fault, zookeeper):
    if fault == "cut":
        zookeeper.cut()
        zookeeper.heal()
    else:
        zookeeper.expire()
