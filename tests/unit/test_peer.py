from __future__ import annotations

import asyncio
import struct
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kserver.errors import ErrorCode, KafkaError, ProtocolError
from kserver.peer import (
    READ_BYTES,
    TRUSTED_BYTES,
    Disconnected,
    Peer,
    PeerOptions,
)
from kserver.wire import codec
from kserver.wire.api_key import ApiKey
from kserver.wire.codec import versions_of
from kserver.wire.versions import reply_to, request
from tests.support.loop import SimLoop, simulate
from tests.support.scripted_broker import ScriptedBroker, frame


def echo(request):
    """Metadata whose cluster id is the name of the topic that was asked for."""
    return reply_to(request)(cluster_id=request.topics[0].name, brokers=[], topics=[])


def ask(peer: Peer, name: str):
    new = request(ApiKey.METADATA, peer.version(ApiKey.METADATA))
    return peer.call(new(topics=[new.topics(name=name)]))


def run(scenario, seed: int = 1, **options):
    """The scenario with a scripted broker that echoes, and a peer connected to it."""

    async def main(loop: SimLoop):
        broker = ScriptedBroker(loop)
        broker.on(ApiKey.METADATA, echo)
        await broker.start()
        peer = await Peer.connect("broker", 9092, PeerOptions(**options))
        try:
            return await scenario(broker, peer)
        finally:
            peer.close()
            await peer.closed

    return simulate(main, seed)


@pytest.mark.parametrize("seed", range(5))
def test_pipelined_calls_get_their_own_answers(seed):
    async def scenario(broker, peer):
        return await asyncio.gather(*(ask(peer, str(n)) for n in range(300)))

    answers = run(scenario, seed)
    assert [answer.cluster_id for answer in answers] == [str(n) for n in range(300)]


@pytest.mark.parametrize("newest", range(versions_of(ApiKey.API_VERSIONS)[1] + 1))
def test_a_broker_that_knows_only_old_api_versions_is_understood(newest):
    async def main(loop: SimLoop):
        broker = ScriptedBroker(loop)
        broker.versions[ApiKey.API_VERSIONS] = (0, newest)
        await broker.start()
        peer = await Peer.connect("broker", 9092)
        peer.close()
        return peer.versions, [asked.__version__ for asked in broker.requests]

    offered, asked = simulate(main, 1)
    assert offered[ApiKey.API_VERSIONS] == (0, newest)
    assert asked[-1] == newest
    assert len(asked) <= 2


def test_a_broker_that_refuses_api_versions_in_every_version_is_given_up():
    async def main(loop: SimLoop):
        broker = ScriptedBroker(loop)
        broker.versions[ApiKey.API_VERSIONS] = (9, 9)
        await broker.start()
        with pytest.raises(ProtocolError, match="every version"):
            await Peer.connect("broker", 9092)

    simulate(main, 1)


def test_versions_are_the_highest_that_both_ends_know():
    async def scenario(broker, peer):
        ours = versions_of(ApiKey.METADATA)
        peer.versions = {ApiKey.METADATA: (0, 99)}
        assert peer.version(ApiKey.METADATA) == ours[1]
        assert peer.version(ApiKey.METADATA, at_most=5) == 5
        peer.versions = {ApiKey.METADATA: (2, 7)}
        assert peer.version(ApiKey.METADATA) == 7
        for offered in ({}, {ApiKey.METADATA: (98, 99)}):
            peer.versions = offered
            with pytest.raises(KafkaError, match="Metadata") as caught:
                peer.version(ApiKey.METADATA)
            assert caught.value.code is ErrorCode.unsupported_version

    run(scenario)


@pytest.mark.parametrize(
    "answer",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 3),
        struct.pack(">i", (1 << 28) + 1),
        frame(77, b""),
        frame(2, b"garbage"),
        b"HTTP/1.1 400 Bad Request\r\n",
    ],
    ids=["negative", "no id", "over the limit", "another id", "garbage", "another protocol"],
)
def test_bytes_that_make_no_sense_are_a_protocol_error(answer):
    async def scenario(broker, peer):
        broker.on(ApiKey.METADATA, lambda request: answer)
        with pytest.raises(ProtocolError):
            await ask(peer, "a")

    run(scenario)


def test_an_answer_that_nobody_asked_for_ends_the_connection():
    async def scenario(broker, peer):
        broker.connections[0].transport.write(frame(1, b""))
        await peer.closed
        with pytest.raises(ProtocolError, match="without a request"):
            await ask(peer, "a")

    run(scenario)


def test_all_that_is_out_fails_with_what_broke_the_connection():
    async def scenario(broker, peer):
        broker.on(ApiKey.METADATA, lambda request: None)
        calls = [asyncio.ensure_future(ask(peer, str(n))) for n in range(5)]
        await asyncio.sleep(1)
        broker.drop()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(outcome, Disconnected) for outcome in outcomes)
        assert not peer.is_open

    run(scenario)


def test_a_late_answer_ends_the_connection_and_all_that_waits_behind_it():
    async def scenario(broker, peer):
        broker.on(ApiKey.METADATA, lambda request: None)
        loop = asyncio.get_running_loop()
        start = loop.time()
        first = asyncio.ensure_future(ask(peer, "a"))
        await asyncio.sleep(0.5)
        second = asyncio.ensure_future(ask(peer, "b"))
        with pytest.raises(TimeoutError, match="did not respond to Metadata within 1000 ms"):
            await first
        assert loop.time() - start == pytest.approx(1, abs=0.01)
        with pytest.raises(TimeoutError):
            await second

    run(scenario, request_timeout_ms=1000)


def test_an_idle_connection_is_closed_and_a_used_one_is_not():
    async def scenario(broker, peer):
        for _ in range(5):
            await asyncio.sleep(0.9)
            await ask(peer, "a")
        assert peer.is_open
        await asyncio.sleep(1.1)
        assert not peer.is_open

    run(scenario, max_idle_ms=1000)


def test_a_broker_that_accepts_and_says_nothing_is_given_up():
    async def main(loop: SimLoop):
        broker = ScriptedBroker(loop)
        broker.on(ApiKey.API_VERSIONS, lambda request: None)
        await broker.start()
        with pytest.raises(TimeoutError, match="broker:9092 did not respond within 200 ms"):
            await Peer.connect("broker", 9092, PeerOptions(setup_timeout_ms=200))
        assert loop.time() == pytest.approx(0.2, abs=0.01)

    simulate(main, 1)


def test_a_refused_connection_is_an_os_error():
    async def main(loop: SimLoop):
        with pytest.raises(ConnectionRefusedError):
            await Peer.connect("broker", 9092)

    simulate(main, 1)


def test_calls_beyond_the_limit_wait_for_a_place():
    async def scenario(broker, peer):
        most = 0

        async def slowly(request):
            nonlocal most
            most = max(most, peer.in_flight)
            await asyncio.sleep(0.01)
            return echo(request)

        broker.on(ApiKey.METADATA, slowly)
        answers = await asyncio.gather(*(ask(peer, str(n)) for n in range(20)))
        assert [answer.cluster_id for answer in answers] == [str(n) for n in range(20)]
        assert most == 3

    run(scenario, max_in_flight=3)


def test_a_call_that_is_given_up_leaves_the_others_their_answers():
    async def scenario(broker, peer):
        calls = [asyncio.ensure_future(ask(peer, str(n))) for n in range(5)]
        await asyncio.sleep(0)
        calls[1].cancel()
        rest = [calls[n] for n in (0, 2, 3, 4)]
        answers = await asyncio.gather(*rest)
        assert [answer.cluster_id for answer in answers] == ["0", "2", "3", "4"]
        with suppress(asyncio.CancelledError):
            await calls[1]

    run(scenario)


def test_what_is_posted_has_no_answer_and_stands_in_nobodys_way():
    async def scenario(broker, peer):
        produce = codec.request_type(0, 3)
        broker.on(0, lambda request: None, (3, 3))
        peer.post(0, 3, [b"\xff\xff", struct.pack(">hii", 0, 1000, 0)])
        assert (await ask(peer, "a")).cluster_id == "a"
        assert isinstance(broker.requests[1], produce)

    run(scenario)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_posted_arrives_though_the_connection_is_closed_once_it_is_drained(seed):
    async def scenario(broker, peer):
        posted = asyncio.Event()
        broker.on(0, lambda request: posted.set(), (3, 3))
        peer.post(0, 3, [b"\xff\xff", struct.pack(">hii", 0, 1000, 0)])
        await peer.drained()
        peer.close()
        async with asyncio.timeout(60):
            await posted.wait()

    run(scenario, seed)


@pytest.mark.parametrize(
    "size", [READ_BYTES - 8, READ_BYTES, READ_BYTES + 1, TRUSTED_BYTES + 1, 3 * TRUSTED_BYTES]
)
def test_large_answers_arrive_whole_and_so_does_what_follows(size):
    body = bytes(range(256)) * (size // 256 + 1)

    async def scenario(broker, peer):
        broker.on(0, lambda request: frame(2, body), (3, 3))
        large = peer.send(0, 3, [b"\xff\xff", struct.pack(">hii", 1, 1000, 0)])
        small = asyncio.ensure_future(ask(peer, "after"))
        answer = await large
        assert answer[4:] == body
        assert (await small).cluster_id == "after"

    run(scenario)


def test_a_length_that_lies_costs_no_memory():
    async def scenario(broker, peer):
        broker.on(ApiKey.METADATA, lambda request: struct.pack(">ii", 200_000_000, 2) + b"x" * 1000)
        tracemalloc.start()
        try:
            with pytest.raises(TimeoutError):
                await ask(peer, "a")
            assert tracemalloc.get_traced_memory()[1] < 2 * TRUSTED_BYTES
        finally:
            tracemalloc.stop()

    run(scenario, request_timeout_ms=1000)


class Wire(asyncio.Transport):
    """A transport that takes everything and keeps nothing."""

    def write(self, data) -> None:
        pass

    def abort(self) -> None:
        pass


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.integers(0, 3 * READ_BYTES), min_size=1, max_size=4),
    st.data(),
)
def test_answers_are_the_same_however_their_bytes_arrive(sizes, data):
    async def main(loop: SimLoop):
        peer = Peer("broker", 9092, PeerOptions())
        peer.connection_made(Wire())
        answers = [peer.send(ApiKey.METADATA, 0, [b""]) for _ in sizes]
        bodies = [bytes([n]) * size for n, size in enumerate(sizes)]
        stream = b"".join(frame(n + 1, body) for n, body in enumerate(bodies))
        while stream:
            buffer = peer.get_buffer(-1)
            most = min(len(buffer), len(stream))
            taken = data.draw(st.one_of(st.just(most), st.integers(1, most)))
            buffer[:taken] = stream[:taken]
            stream = stream[taken:]
            peer.buffer_updated(taken)
        assert [bytes(answer.result()[4:]) for answer in answers] == bodies
        peer.close()

    simulate(main, 1)
