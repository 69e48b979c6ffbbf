"""A proxy between clients and a broker that spoils some of the broker's answers.

    broker = SimulatedBroker(loop, {"advertised.listeners": f"PLAINTEXT://{Meddler.ADDRESS}"})
    meddler = Meddler(loop, "broker", 9092)
    await meddler.start()
    meddler.share = 0.3         how many answers are spoilt from now on

What it does to an answer: bytes cut, flipped or inserted, lengths that lie, another correlation id,
any answer of the right shape with the edges of every type in it, the same twice, or none.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from kserver.wire.codec import read_request_header
from kserver.wire.frame import FrameReader
from tests.support.hostile import Known, random_answer, spoilt
from tests.support.loop import SimLoop, host

NAME, PORT = "middle", 9092
FRAME_LIMIT = 1 << 26


class Meddler:
    ADDRESS = f"{NAME}:{PORT}"

    def __init__(self, loop: SimLoop, name: str, port: int, known: Known) -> None:
        self.loop = loop
        self.target = (name, port)
        self.known = known
        self.share = 0.0
        self.spoilt = 0

    async def start(self) -> None:
        with host(NAME):
            await self.loop.create_server(lambda: _FromClient(self), NAME, PORT)

    def meddled(self, api_key: int, version: int, frame: bytes) -> list[bytes]:
        """What goes to the client in this answer's place, each without its length."""
        chance = self.loop.random
        if chance.random() >= self.share:
            return [frame]
        self.spoilt += 1
        match chance.randrange(8):
            case 0:
                return []
            case 1:
                return [frame, frame]
            case 2:
                return [chance.randbytes(4) + frame[4:]]
            case 3 | 4:
                return [frame[:4] + spoilt(chance, frame[4:])]
            case _:
                id = int.from_bytes(frame[:4])
                return [random_answer(chance, api_key, version, id, self.known)]

    def length(self, frame: bytes) -> bytes:
        chance = self.loop.random
        if self.share and chance.random() < 0.02:
            return chance.choice([b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\0\0\0\0", b"GET "])
        return len(frame).to_bytes(4)


class _FromClient(asyncio.Protocol):
    def __init__(self, meddler: Meddler) -> None:
        self.meddler = meddler
        self.frames = FrameReader(FRAME_LIMIT)
        self.asked: deque[tuple[int, int]] = deque()
        self.early: list[bytes] = []
        self.to_broker: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.task = self.meddler.loop.create_task(self._connect())

    async def _connect(self) -> None:
        try:
            with host(NAME):
                self.to_broker, _ = await self.meddler.loop.create_connection(
                    lambda: _FromBroker(self), *self.meddler.target
                )
        except OSError:
            self.transport.abort()
            return
        for data in self.early:
            self.to_broker.write(data)

    def data_received(self, data: bytes) -> None:
        for frame in self.frames.feed(data):
            header, _ = read_request_header(memoryview(frame))
            self.asked.append((header.api_key, header.api_version))
        if self.to_broker is None:
            self.early.append(data)
        else:
            self.to_broker.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self.to_broker is not None:
            self.to_broker.abort()


class _FromBroker(asyncio.Protocol):
    def __init__(self, client: _FromClient) -> None:
        self.client = client
        self.frames = FrameReader(FRAME_LIMIT)

    def data_received(self, data: bytes) -> None:
        meddler, client = self.client.meddler, self.client
        for frame in self.frames.feed(data):
            for answer in meddler.meddled(*client.asked.popleft(), bytes(frame)):
                client.transport.write(meddler.length(answer) + answer)

    def connection_lost(self, error: Exception | None) -> None:
        self.client.transport.abort()
