"""Send corrupted requests to an unmodified broker in this process, where every bug shows as an
exception.

The broker runs on the deterministic loop, which handles about 1000 requests per second. The long
form is `pytest tests/soak/soak_fuzz.py`; frames that found a bug are added to FOUND.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import struct
import uuid
from collections.abc import Iterator
from random import Random

import pytest

from kserver.api.table import SERVED
from kserver.errors import ErrorCode
from kserver.peer import Peer
from kserver.wire.api_key import ApiKey
from kserver.wire.batch import batches
from kserver.wire.codec import read_response, write_request
from kserver.wire.versions import request
from tests.simulation.test_broker import batch, create, fetch, produce
from tests.support import hostile
from tests.support.hostile import Known
from tests.support.loop import SimLoop, host, simulate
from tests.support.simulated import PORT, SimulatedBroker

SEEDS = range(2)
APIS = [(key, version) for key, versions in SERVED.items() for version in versions]
SETTINGS = {"auto.create.topics.enable": "false", "socket.request.max.bytes": 1 << 20}
PATIENCE_S = 1.0
"""Timeout of one request in simulated time; every wait that a request can ask for here is
shorter."""
HANG_S = 20
"""Limit of real time for one request."""
CANARY_ID = -77
CANARY = struct.pack(">ihhih", 10, 18, 0, CANARY_ID, -1)
CONTROL = "control"
"""Name of a topic that the attacker does not know."""
TOPICS: dict[str, dict[str, object]] = {
    "plain": {},
    "zstd": {"compression_type": "zstd"},
    "header": {"validate_records": "header"},
    "stamped": {"message_timestamp_type": "LogAppendTime"},
    "compacted": {"cleanup_policy": "compact"},
}


class Door(asyncio.Protocol):
    """A connection that sends, after each request, a canary request that always gets a response."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.changed = asyncio.Event()
        self.lost = False

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.changed.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        self.changed.set()

    async def ask(self, frame: bytes) -> list[bytes] | None:
        """Send the frame and the canary; return the responses before the canary's.

        Return None if the connection was closed.
        """
        self.transport.write(struct.pack(">i", len(frame)) + frame + CANARY)
        answers = []
        while not self.lost:
            for answer in self._frames():
                if answer[:4] == struct.pack(">i", CANARY_ID):
                    return answers
                answers.append(answer)
            self.changed.clear()
            await self.changed.wait()
        return None

    def _frames(self) -> Iterator[bytes]:
        while len(self.received) >= 4:
            end = 4 + int.from_bytes(self.received[:4])
            if len(self.received) < end:
                return
            frame = bytes(self.received[4:end])
            del self.received[:end]
            yield frame


class Attack:
    """A broker with some topics, and a connection to it that is reopened whenever it is closed."""

    def __init__(self, loop: SimLoop, broker: SimulatedBroker) -> None:
        self.loop = loop
        self.broker = broker
        self.topics: dict[str, uuid.UUID] = {}
        self.asked = self.answered = self.closed = 0
        self._door: Door | None = None

    @property
    def known(self) -> Known:
        return Known(list(self.topics), list(self.topics.values()))

    async def stock(self) -> None:
        """Create the topics that are missing, because some requests delete them."""
        peer = await self.broker.connect()
        assert self.broker.broker is not None
        for name, config in TOPICS.items():
            with contextlib.suppress(AssertionError):  # the topic exists
                self.topics[name] = await create(peer, name, 2, **config)
        peer.close()

    async def send(self, frame: bytes) -> None:
        """Send a frame and assert that it gets a well-formed response or that its connection is
        closed, without a bug or a hang."""
        signal.alarm(HANG_S)
        try:
            await self._send(frame)
        except BaseException as error:
            error.add_note(f"the request: {frame[:4000].hex()}")
            raise
        finally:
            signal.alarm(0)

    async def _send(self, frame: bytes) -> None:
        if self._door is None or self._door.lost:
            with host("attacker"):
                _, self._door = await self.loop.create_connection(Door, self.broker.name, PORT)
        self.asked += 1
        try:
            async with asyncio.timeout(PATIENCE_S):
                answers = await self._door.ask(frame)
        except TimeoutError:
            # The request asked for a long wait. Drop the connection instead of waiting.
            self._door.transport.abort()
            self._door = None
            assert _is_fetch(frame), "no answer"
            return
        assert not self.broker.bugs
        if answers is None:
            self.closed += 1
            return
        self.answered += 1
        key, version, correlation_id = struct.unpack_from(">hhi", frame)
        if not answers:
            assert key == ApiKey.PRODUCE, "no answer"
            return
        (answer,) = answers
        assert answer[:4] == struct.pack(">i", correlation_id)
        if version in SERVED[key]:
            read_response(key, version, memoryview(answer))

    async def check(self) -> None:
        """Assert that other clients are still served."""
        peer = await self.broker.connect("other")
        data = batch(self.broker.clock.now_ms(), b"control")
        done = await produce(peer, CONTROL, 0, data)
        assert done.error_code is ErrorCode.none
        found = await fetch(peer, CONTROL, 0, done.base_offset)
        assert found.error_code is ErrorCode.none
        assert found.records
        peer.close()


def _is_fetch(frame: bytes) -> bool:
    return frame[:2] == ApiKey.FETCH.to_bytes(2)


async def under_attack(loop: SimLoop, **settings: object) -> Attack:
    broker = SimulatedBroker(loop, SETTINGS | settings)
    await broker.start()
    peer = await broker.connect()
    await create(peer, CONTROL)
    peer.close()
    attack = Attack(loop, broker)
    await attack.stock()
    return attack


FOUND = {
    # The length of the second topic's name is -6, which moved the reader back to its start.
    "a step back for each of two billion topics": bytes.fromhex(
        "0000 0007 00000001 ffff"
        "ffff 0001 00000000 7fffffff  0001 78 00000000  fffa 00000000 00000000"
    ),
    "an array that is null and must not be": bytes.fromhex(
        "0002 0003 00000001 ffff  ffffffff 00 00000001 0001 78 ffffffff"
    ),
    "a topic with the empty name": bytes.fromhex(
        "0000 000a 00000001 ffff 00  00 0001 00000000 02 01 01 00 00"
    ),
}
"""Frames that once found a bug."""


@pytest.fixture(autouse=True)
def _no_hang():
    def hangs(*_):
        raise AssertionError(f"the broker is busy with one request for {HANG_S} s")

    before = signal.signal(signal.SIGALRM, hangs)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("seed", SEEDS)
def test_spoilt_requests_of_every_kind_are_answered_or_end_their_connection(seed):
    async def scenario(loop: SimLoop) -> None:
        attack = await under_attack(loop)
        random = Random(seed)
        for number in range(250):
            if number % 50 == 0:
                await attack.stock()
            key, version = random.choice(APIS)
            frame = hostile.random_request(random, key, version, attack.known)
            await attack.send(frame)
            for _ in range(8):
                await attack.send(hostile.spoilt(random, frame))
        await attack.check()
        assert attack.answered > 100
        assert attack.closed > 100
        await attack.broker.stop()

    simulate(scenario, seed)


def test_what_once_found_a_bug_does_not_again():
    async def scenario(loop: SimLoop) -> None:
        attack = await under_attack(loop)
        for frame in FOUND.values():
            await attack.send(frame)
        await attack.check()
        await attack.broker.stop()

    simulate(scenario, 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_length_can_lie_in_what_is_read_by_hand(seed):
    async def scenario(loop: SimLoop) -> None:
        attack = await under_attack(loop)
        random = Random(seed)
        for key in (ApiKey.PRODUCE, ApiKey.FETCH):
            for version in SERVED[key]:
                frame = hostile.random_request(random, key, version, attack.known)[:400]
                for lie in hostile.lies(frame, start=8):
                    if random.random() < 0.03:
                        await attack.send(lie)
        await attack.check()
        await attack.broker.stop()

    simulate(scenario, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_spoilt_batch_is_refused_or_can_be_read_and_recovered(seed):
    """An accepted batch must not stop a consumer from reading on or the broker from starting."""

    async def scenario(loop: SimLoop) -> None:
        attack = await under_attack(loop)
        random = Random(seed)
        acked: dict[tuple[str, int], int] = {}
        for _ in range(3):
            peer = await attack.broker.connect()
            for _ in range(200):
                data = hostile.random_batch(random)
                if random.random() < 0.8:
                    data = hostile.with_right_crc(hostile.spoilt(random, data))
                topic, partition = random.choice(list(TOPICS)), random.randrange(2)
                done = await produce(peer, topic, partition, data)
                assert done.error_code is not ErrorCode.unknown_server_error
                if done.error_code is ErrorCode.none:
                    acked[topic, partition] = done.base_offset
            peer.close()
            await attack.check()
            assert not attack.broker.bugs
            await attack.broker.kill()
            await attack.broker.start()
        peer = await attack.broker.connect()
        assert len(acked) == 2 * len(TOPICS)
        for (topic, partition), last in acked.items():
            assert await read_through(peer, topic, partition) > last
            for timestamp in (-3, -2, -1, 0, 1_700_000_000_001, 2**63 - 1):
                await attack.send(list_offset(topic, partition, timestamp))
        assert attack.closed == 0
        await attack.broker.stop()

    simulate(scenario, seed)


def list_offset(topic: str, partition: int, timestamp: int) -> bytes:
    build = request(ApiKey.LIST_OFFSETS, 7)
    wanted = build.topics.partitions(partition_index=partition, timestamp=timestamp)
    topics = [build.topics(name=topic, partitions=[wanted])]
    return write_request(build(replica_id=-1, topics=topics), 1, None)[4:]


async def read_through(peer: Peer, topic: str, partition: int) -> int:
    """Read the whole partition and return its end offset.

    Assert that every batch has a valid CRC and, except in topic "header", that all its records can
    be decoded.
    """
    offset = 0
    while True:
        answer = await fetch(peer, topic, partition, offset)
        assert answer.error_code is ErrorCode.none
        if not answer.records:
            assert answer.high_watermark == offset
            return offset
        for one in batches(answer.records):
            assert one.is_valid_crc()
            assert one.base_offset >= offset
            if topic != "header":
                assert len(one.records()) == one.count
            offset = one.next_offset


def test_records_that_nobody_can_read_are_told_apart_where_they_must_be_read():
    """Undecodable records are accepted where only the header is validated; a timestamp lookup has
    to read them."""

    async def scenario(loop: SimLoop) -> None:
        attack = await under_attack(loop)
        peer = await attack.broker.connect()
        now_ms = attack.broker.clock.now_ms()
        good = bytearray(batch(now_ms, b"value"))
        for garbage in (b"\xff" * 12, b"\0" * 12, b"\x10" * 12):
            bad = hostile.with_right_crc(bytes(good[:61]) + garbage)
            bad = hostile.with_right_crc(bad[:8] + struct.pack(">i", len(bad) - 12) + bad[12:])
            assert (await produce(peer, "header", 0, bad)).error_code is ErrorCode.none
        peer.close()
        for timestamp in (-3, 0, now_ms):
            await attack.send(list_offset("header", 0, timestamp))
        assert attack.closed == 0
        await attack.check()
        await attack.broker.stop()

    simulate(scenario, 0)
