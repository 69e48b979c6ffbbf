import asyncio

import pytest

from kserver.errors import ErrorCode, KafkaError
from kserver.txn.producer_ids import MAX_WAIT_S, ProducerIds
from kserver.znodes import ProducerIdBlock
from tests.support.loop import simulate

SIZE = 100


class Controller:
    """Gives blocks of SIZE, each after `delay_s`, as long as it is there."""

    def __init__(self):
        self.delay_s = 0.1
        self.is_there = True
        self.asked = 0

    async def allocate(self):
        self.asked += 1
        first = (self.asked - 1) * SIZE
        await asyncio.sleep(self.delay_s)
        if not self.is_there:
            raise KafkaError(ErrorCode.not_controller)
        return ProducerIdBlock(1, first, first + SIZE - 1)


def run(test):
    async def main(loop):
        controller = Controller()
        ids = ProducerIds(controller.allocate)
        running = loop.create_task(ids.run())
        await test(loop, controller, ids)
        running.cancel()

    simulate(main, 1)


def test_the_next_block_is_there_before_it_is_needed():
    async def test(loop, controller, ids):
        taken = [await ids.next()]
        assert loop.time() >= 0.1
        taken += [await ids.next() for _ in range(SIZE - SIZE // 10 - 2)]
        await asyncio.sleep(1)
        assert controller.asked == 1
        taken.append(await ids.next())
        await asyncio.sleep(1)
        assert controller.asked == 2
        began_s = loop.time()
        taken += [await ids.next() for _ in range(SIZE)]
        assert loop.time() == began_s
        assert taken == list(range(2 * SIZE - SIZE // 10))

    run(test)


def test_those_who_wait_together_are_given_ids_of_one_block():
    async def test(_, controller, ids):
        got = await asyncio.gather(*(ids.next() for _ in range(SIZE - 20)))
        assert sorted(got) == list(range(SIZE - 20))
        assert controller.asked == 1

    run(test)


def test_more_than_a_block_may_be_waited_for():
    async def test(_, controller, ids):
        got = await asyncio.gather(*(ids.next() for _ in range(3 * SIZE)))
        assert sorted(got) == list(range(3 * SIZE))

    run(test)


def test_without_a_controller_producers_are_told_to_ask_again():
    async def test(loop, controller, ids):
        controller.is_there = False
        with pytest.raises(KafkaError) as refused:
            await ids.next()
        assert refused.value.code is ErrorCode.coordinator_load_in_progress
        assert MAX_WAIT_S <= loop.time() < MAX_WAIT_S + 0.1
        controller.is_there = True
        assert await ids.next() >= 0

    run(test)


def test_one_who_gives_up_leaves_the_block_to_the_next():
    async def test(loop, controller, ids):
        first, second = loop.create_task(ids.next()), loop.create_task(ids.next())
        await asyncio.sleep(0)
        first.cancel()
        assert await second == 0
        assert controller.asked == 1

    run(test)
