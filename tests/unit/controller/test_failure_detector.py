"""Watches of processes, over the simulated network."""

from __future__ import annotations

import asyncio

import pytest

from kserver.controller.failure_detector import (
    LOOK_AGAIN_S,
    ControllerFailureDetector,
    ProcessWatch,
)
from kserver.controller.liveness import Proof
from kserver.model import Endpoint
from tests.support.loop import SimLoop, simulate

ENDPOINT = Endpoint("PLAINTEXT", "PLAINTEXT", "localhost", 9092)


class Closes(asyncio.Protocol):
    """The end of a process: the kernel still accepts, and then resets the connection."""

    accepted = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        Closes.accepted += 1
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


@pytest.mark.parametrize("accepted", range(4))
def test_a_process_that_accepts_connections_as_it_ends_is_soon_proven_gone(accepted: int) -> None:
    async def scenario(loop: SimLoop) -> None:
        gone = asyncio.Event()

        async def on_change(watch: ProcessWatch) -> None:
            assert watch.proof.is_gone
            gone.set()

        Closes.accepted = 0
        server = await loop.create_server(Closes, "localhost", 9092)
        watch = ProcessWatch(ENDPOINT, Proof(), "1", on_change)
        watching = asyncio.create_task(watch.run())
        async with asyncio.timeout(60):
            while Closes.accepted < accepted:
                await asyncio.sleep(0.001)
            server.close()
            began_s = loop.time()
            await gone.wait()
        assert loop.time() - began_s < LOOK_AGAIN_S / 2
        watching.cancel()

    simulate(scenario, seed=1)


@pytest.mark.parametrize("is_deposed", [False, True])
def test_an_election_gives_way_to_others_only_if_this_broker_deposed_the_controller(
    is_deposed: bool,
) -> None:
    async def scenario(loop: SimLoop) -> None:
        begun, end = asyncio.Event(), asyncio.Event()

        async def depose(claim: int) -> bool:
            assert claim == 7
            begun.set()
            await end.wait()
            return is_deposed

        detector = ControllerFailureDetector(1, 18.0, depose)
        running = asyncio.create_task(detector.watches.run())
        await asyncio.sleep(0)
        detector.follow(2, 7, ENDPOINT)
        async with asyncio.timeout(60):
            await begun.wait()
            # The deletion triggers the election before its own response arrives.
            election = asyncio.create_task(detector.gives_way())
            await asyncio.sleep(1)
            assert not election.done()
            end.set()
            assert await election is is_deposed
            assert not await detector.gives_way(), "once for each deposition"
        running.cancel()

    simulate(scenario, seed=1)
