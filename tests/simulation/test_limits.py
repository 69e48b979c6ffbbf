"""Limits over hours of simulated time: what quotas come to, and who is cut for being slow."""

from __future__ import annotations

import asyncio
import datetime
import struct

import pytest

from kserver.errors import ErrorCode
from kserver.network.listener import RECEIVE_GRACE_S, RECEIVED_BYTES_A_SECOND, SWEEP_S
from kserver.peer import Peer, PeerOptions
from kserver.wire.api_key import ApiKey
from kserver.wire.batch import encode_batch
from kserver.wire.versions import request
from tests.simulation.test_broker import create
from tests.support.loop import SimLoop, host, simulate
from tests.support.simulated import PORT, SimulatedBroker

BOUND = 100_000
A_SECOND = datetime.timedelta(seconds=1)


def scenario(test):
    def run():
        async def main(loop: SimLoop) -> None:
            broker = SimulatedBroker(loop)
            await broker.start()
            await test(loop, broker)
            await broker.stop()
            assert broker.bugs == []

        simulate(main, seed=7)

    run.__name__ = test.__name__
    return run


async def connected(broker: SimulatedBroker) -> Peer:
    """A client that has the client id of the quotas."""
    with host("client"):
        return await Peer.connect(
            broker.name, PORT, PeerOptions("client", request_timeout_ms=600_000)
        )


async def set_quota(peer: Peer, key: str, value: float | None) -> None:
    build = request(ApiKey.ALTER_CLIENT_QUOTAS, 1)
    entry = build.entries
    answer = await peer.call(
        build(
            entries=[
                entry(
                    entity=[entry.entity(entity_type="client-id", entity_name="client")],
                    ops=[entry.ops(key=key, value=value or 0.0, remove=value is None)],
                )
            ]
        )
    )
    assert answer.entries[0].error_code is ErrorCode.none


def records(size: int) -> bytes:
    return encode_batch([(1_000, None, bytes(size), ())])


async def produced(peer: Peer, size: int):
    """The wait that was told, in seconds."""
    build = request(ApiKey.PRODUCE, 9)
    data = build.topic_data.partition_data(index=0, records=records(size))
    topic = build.topic_data(name="t", partition_data=[data])
    answer = await peer.call(build(acks=-1, timeout=A_SECOND, topic_data=[topic]))
    return answer.throttle_time.total_seconds()


async def fetched(peer: Peer, offset: int):
    build = request(ApiKey.FETCH, 11)
    asked = build.topics.partitions(
        partition=0, fetch_offset=offset, partition_max_bytes=30_000, current_leader_epoch=-1
    )
    answer = await peer.call(
        build(
            replica_id=-1,
            max_bytes=30_000,
            min_bytes=1,
            session_epoch=-1,
            topics=[build.topics(topic="t", partitions=[asked])],
        )
    )
    size = sum(len(p.records or b"") for topic in answer.responses for p in topic.partitions)
    return size, answer.throttle_time.total_seconds()


@scenario
@pytest.mark.parametrize
async def _unused(loop, broker):
    pass


@scenario
async def test_a_producer_that_goes_as_fast_as_it_can_is_held_at_its_quota(loop, broker):
    admin, peer = await broker.connect("admin"), await connected(broker)
    await create(admin, "t")
    await set_quota(admin, "producer_byte_rate", BOUND)
    started_s, sent = loop.time(), 0
    for _ in range(400):
        await produced(peer, 20_000)
        sent += 20_000
    # Of a window of eleven samples, ten count as if they had passed before the first request.
    rate = sent / (loop.time() - started_s + 10)
    assert rate == pytest.approx(BOUND, rel=0.15)
    await set_quota(admin, "producer_byte_rate", None)
    started_s = loop.time()
    for _ in range(100):
        assert await produced(peer, 20_000) == 0
    assert loop.time() - started_s < 5


@scenario
async def test_a_consumer_that_goes_as_fast_as_it_can_is_held_at_its_quota(loop, broker):
    admin, peer = await broker.connect("admin"), await connected(broker)
    await create(admin, "t")
    for _ in range(400):
        await produced(admin, 20_000)
    await set_quota(admin, "consumer_byte_rate", BOUND)
    started_s, offset, received, waits = loop.time(), 0, 0, []
    while offset < 400:
        size, wait_s = await fetched(peer, offset)
        assert (size == 0) is (wait_s > 0)
        offset += size > 0
        received += size
        waits.append(wait_s)
    assert any(waits)
    rate = received / (loop.time() - started_s + 10)
    assert rate == pytest.approx(BOUND, rel=0.15)


@scenario
async def test_quotas_hold_after_a_restart(loop, broker):
    admin = await broker.connect("admin")
    await create(admin, "t")
    await set_quota(admin, "producer_byte_rate", 1000.0)
    await broker.stop()
    await broker.start()
    assert await produced(await connected(broker), 100_000) > 0
    assert await produced(await broker.connect("other"), 100_000) == 0


async def cut_after_s(loop, broker, pieces):
    """How long the broker lets a connection be that sends these pieces, one every ten seconds;
    None when it took them all."""
    with host("slow"):
        reader, writer = await asyncio.open_connection(broker.name, PORT)
    started_s = loop.time()
    closed = loop.create_task(reader.read())
    for piece in pieces:
        writer.write(piece)
        await asyncio.wait([closed], timeout=10)
        if closed.done():
            assert isinstance(closed.exception(), ConnectionResetError)
            return loop.time() - started_s
    closed.cancel()
    writer.close()
    return None


BEGUN = struct.pack(">i", 200_000)


@scenario
async def test_who_does_not_go_on_with_a_request_is_cut(loop, broker):
    for begun in (BEGUN[:1], BEGUN, BEGUN + bytes(100_000)):
        grace_s = RECEIVE_GRACE_S + len(begun) / RECEIVED_BYTES_A_SECOND
        took_s = await cut_after_s(loop, broker, [begun, *[b""] * 40])
        assert grace_s <= took_s <= grace_s + 3 * SWEEP_S


@scenario
async def test_who_goes_on_with_a_request_a_byte_at_a_time_is_cut(loop, broker):
    took_s = await cut_after_s(loop, broker, [BEGUN, *[b"x"] * 40])
    assert RECEIVE_GRACE_S <= took_s <= RECEIVE_GRACE_S + 3 * SWEEP_S


@scenario
async def test_who_sends_slowly_but_surely_is_not_cut(loop, broker):
    piece = bytes(15 * RECEIVED_BYTES_A_SECOND)
    assert await cut_after_s(loop, broker, [BEGUN, *[piece] * 12]) is None


@scenario
async def test_who_is_throttled_within_a_request_is_not_cut_for_it(loop, broker):
    admin, peer = await broker.connect("admin"), await connected(broker)
    await create(admin, "t")
    await set_quota(admin, "producer_byte_rate", 1000.0)
    assert await produced(peer, 300_000) > 200
    began_s = loop.time()
    await produced(peer, 150_000)
    assert loop.time() - began_s > 200
