"""A proxy between clients and a broker that changes responses, or responds in the broker's place.

    broker = SimulatedBroker(loop, {"advertised.listeners": f"PLAINTEXT://{ADDRESS}"})
    await Proxy(loop, ("broker", 9092), Spoiler(loop.random, known)).start()

A Spoiler corrupts responses: bytes cut, flipped or inserted, lengths, correlation ids, any response
of the right shape with the edges of every type, the same one twice, or none.

A Refuser returns errors as an overloaded broker does: batches fail before they are appended, or
after.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from random import Random
from typing import Any, NamedTuple, Protocol

from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from kserver.wire.codec import (
    read_request,
    read_request_header,
    read_response,
    write_response,
)
from kserver.wire.versions import reply_to
from tests.support.frame_reader import FrameReader
from tests.support.hostile import Known, random_answer, spoilt
from tests.support.loop import SimLoop, host

NAME, PORT = "middle", 9092
ADDRESS = f"{NAME}:{PORT}"
FRAME_LIMIT = 1 << 26
NOT_APPENDED = (
    ErrorCode.not_leader_or_follower,
    ErrorCode.not_enough_replicas,
    ErrorCode.leader_not_available,
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.throttling_quota_exceeded,
)
APPENDED = (
    ErrorCode.request_timed_out,
    ErrorCode.not_enough_replicas_after_append,
    ErrorCode.kafka_storage_error,
)


class Asked(NamedTuple):
    api_key: int
    version: int


class Meddler(Protocol):
    def instead(self, frame: memoryview) -> bytes | None:
        """Return a response to the request, with its length, which the broker is not to see; None
        to forward it.
        """

    def answer(self, asked: Asked, frame: bytes) -> bytes:
        """Return the frame, with its length, that replaces the broker's response."""


class Spoiler:
    """`share` is the fraction of responses to corrupt from now on, `spoilt` the number corrupted so
    far.
    """

    def __init__(self, random: Random, known: Known) -> None:
        self.random = random
        self.known = known
        self.share = 0.0
        self.spoilt = 0

    def instead(self, frame: memoryview) -> bytes | None:
        return None

    def answer(self, asked: Asked, frame: bytes) -> bytes:
        random = self.random
        if random.random() >= self.share:
            return _with_length(frame)
        self.spoilt += 1
        match random.randrange(16):
            case 0 | 1:
                return b""
            case 2 | 3:
                return _with_length(frame) * 2
            case 4 | 5:
                return _with_length(random.randbytes(4) + frame[4:])
            case 6 | 7 | 8 | 9:
                return _with_length(frame[:4] + spoilt(random, frame[4:]))
            case 10:
                lie = random.choice(
                    [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\0\0\0\0", b"GET "]
                )
                return lie + frame
            case _:
                id = int.from_bytes(frame[:4])
                return _with_length(random_answer(random, *asked, id, self.known))


class Refuser:
    """`share` is the fraction of batches to refuse from now on."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.share = 0.0
        self.refused = 0

    def instead(self, frame: memoryview) -> bytes | None:
        header, at = read_request_header(frame)
        if header.api_key != ApiKey.PRODUCE or not self._refuses():
            return None
        request = read_request(header, frame, at)
        reply, code = reply_to(request), self.random.choice(NOT_APPENDED)
        responses = [
            reply.responses(
                name=getattr(topic, "name", ""),
                topic_id=getattr(topic, "topic_id", None),
                partition_responses=[
                    reply.responses.partition_responses(index=p.index, error_code=code)
                    for p in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
        answer = reply(responses=responses)
        return write_response(ApiKey.PRODUCE, header.api_version, header.correlation_id, answer)

    def answer(self, asked: Asked, frame: bytes) -> bytes:
        if asked.api_key != ApiKey.PRODUCE or not self._refuses():
            return _with_length(frame)
        code = self.random.choice(APPENDED)
        id, answer = read_response(ApiKey.PRODUCE, asked.version, memoryview(frame))
        refused = dataclasses.replace(
            answer,
            responses=tuple(
                dataclasses.replace(
                    topic,
                    partition_responses=tuple(
                        dataclasses.replace(p, error_code=code, base_offset=-1)
                        for p in topic.partition_responses
                    ),
                )
                for topic in answer.responses
            ),
        )
        return write_response(ApiKey.PRODUCE, asked.version, id, refused)

    def _refuses(self) -> bool:
        refuses = self.random.random() < self.share
        self.refused += refuses
        return refuses


def _with_length(frame: bytes) -> bytes:
    return len(frame).to_bytes(4) + frame


class Proxy:
    def __init__(self, loop: SimLoop, target: tuple[str, int], meddler: Meddler) -> None:
        self.loop = loop
        self.target = target
        self.meddler = meddler

    async def start(self) -> None:
        with host(NAME):
            await self.loop.create_server(lambda: _FromClient(self), NAME, PORT)


class _FromClient(asyncio.Protocol):
    """Sends responses in the order of the requests, from the broker or from the meddler."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.frames = FrameReader(FRAME_LIMIT)
        self.answers: deque[Asked | bytes] = deque()
        self.early: list[bytes] = []
        self.to_broker: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.task = self.proxy.loop.create_task(self._connect())

    async def _connect(self) -> None:
        try:
            with host(NAME):
                self.to_broker, _ = await self.proxy.loop.create_connection(
                    lambda: _FromBroker(self), *self.proxy.target
                )
        except OSError:
            self.transport.abort()
            return
        for data in self.early:
            self.to_broker.write(data)

    def data_received(self, data: bytes) -> None:
        for frame in self.frames.feed(data):
            request = memoryview(frame)
            answer = self.proxy.meddler.instead(request)
            if answer is not None:
                self.answers.append(answer)
                self.send_ready()
                continue
            header, _ = read_request_header(request)
            self.answers.append(Asked(header.api_key, header.api_version))
            if self.to_broker is None:
                self.early.append(_with_length(bytes(frame)))
            else:
                self.to_broker.write(_with_length(bytes(frame)))

    def send_ready(self) -> None:
        while self.answers and isinstance(self.answers[0], bytes):
            self.transport.write(self.answers.popleft())

    def connection_lost(self, error: Exception | None) -> None:
        if self.to_broker is not None:
            self.to_broker.abort()


class _FromBroker(asyncio.Protocol):
    def __init__(self, client: _FromClient) -> None:
        self.client = client
        self.frames = FrameReader(FRAME_LIMIT)

    def data_received(self, data: bytes) -> None:
        client = self.client
        for frame in self.frames.feed(data):
            asked = client.answers.popleft()
            assert isinstance(asked, Asked)
            client.answers.appendleft(client.proxy.meddler.answer(asked, bytes(frame)))
            client.send_ready()

    def connection_lost(self, error: Exception | None) -> None:
        self.client.transport.abort()
