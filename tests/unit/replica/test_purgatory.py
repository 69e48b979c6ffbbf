"""Who waits for what."""

import asyncio

from kserver.replica.purgatory import Purgatory


def in_loop(body):
    async def main():
        return await body(Purgatory(asyncio.get_running_loop()), asyncio.get_running_loop())

    return asyncio.run(main())


def test_a_wait_ends_once_it_is_ready_and_is_asked_only_by_its_keys():
    async def body(purgatory, loop):
        asked = []
        answers = iter([False, True])

        def ready():
            asked.append(1)
            return next(answers)

        purgatory.wait(["a", "b"], ready, loop.time() + 60, lambda: asked.append("expired"))
        purgatory.check("c")
        assert not asked
        purgatory.check("a")
        purgatory.check("b")
        purgatory.check("a")
        assert asked == [1, 1]
        assert len(purgatory) == 0

    in_loop(body)


def test_a_wait_that_is_never_ready_expires_once():
    async def body(purgatory, loop):
        expired = asyncio.Event()
        purgatory.wait(["a"], lambda: False, loop.time() + 0.001, expired.set)
        await expired.wait()
        assert len(purgatory) == 0

    in_loop(body)


def test_waits_are_asked_in_the_order_in_which_they_began():
    async def body(purgatory, loop):
        order = []
        for name in "xyz":
            purgatory.wait(
                ["k"], lambda name=name: order.append(name) or True, loop.time() + 60, list
            )
        purgatory.check("k")
        assert order == ["x", "y", "z"]

    in_loop(body)


def test_a_wait_may_begin_another_while_it_is_asked():
    async def body(purgatory, loop):
        def again():
            purgatory.wait(["k"], lambda: False, loop.time() + 60, list)
            return True

        purgatory.wait(["k"], again, loop.time() + 60, list)
        purgatory.check("k")
        assert len(purgatory) == 1
        purgatory.close()
        assert len(purgatory) == 0

    in_loop(body)


def test_a_wait_is_answered_once_though_its_answer_checks_its_key():
    async def body(purgatory, loop):
        answered = []

        def ready():
            answered.append(1)
            purgatory.check("a")
            return True

        purgatory.wait(["a"], ready, loop.time() + 1, lambda: None)
        purgatory.check("a")
        assert answered == [1]
        assert not len(purgatory)

    in_loop(body)
