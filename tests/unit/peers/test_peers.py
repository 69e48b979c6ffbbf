from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace

import pytest

from kserver.config.broker import BrokerConfig, ConfigEntry
from kserver.errors import ErrorCode, KafkaError
from kserver.metadata import BrokerInfo, ClusterMetadata, MetadataCache
from kserver.model import BrokerId, Endpoint
from kserver.peer import Disconnected, Peer
from kserver.peers.peers import LAST_BACKOFF_S, NotTriedAgain, Outbox, Peers
from kserver.wire.api_key import ApiKey
from kserver.wire.versions import reply_to, request
from tests.support.loop import SimLoop, simulate
from tests.support.scripted_broker import ScriptedBroker

OTHER: BrokerId = 2


def registered(host: str, port: int = 9092, listener: str = "INSIDE") -> BrokerInfo:
    return BrokerInfo(OTHER, {listener: Endpoint(listener, "PLAINTEXT", host, port)})


def run(scenario, **settings):
    """The scenario with a scripted broker, a pool of connections and the metadata it goes by."""

    async def main(loop: SimLoop):
        broker = ScriptedBroker(loop, "here")
        broker.on(ApiKey.METADATA, lambda asked: reply_to(asked)(brokers=[], topics=[]))
        await broker.start()
        given = {
            "log.dirs": "/data",
            "listeners": "INSIDE://:1,PLAINTEXT://:2",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "inter.broker.listener.name": "INSIDE",
        }
        config = BrokerConfig.of([ConfigEntry(k, v, "test") for k, v in given.items()])
        metadata = MetadataCache(ClusterMetadata("c", brokers={OTHER: registered("here")}))
        peers = Peers("broker-1-test", lambda: config, metadata)
        try:
            return await scenario(broker, peers, metadata)
        finally:
            peers.close()

    return simulate(main, 1)


def told(metadata: MetadataCache, peers: Peers, *brokers: BrokerInfo) -> None:
    image = replace(metadata.current, brokers={one.id: one for one in brokers})
    metadata.update(image)
    peers.apply(image)


async def ask(peer: Peer):
    return await peer.call(request(ApiKey.METADATA, peer.version(ApiKey.METADATA))())


def test_all_who_ask_for_a_broker_are_given_one_connection():
    async def scenario(broker, peers, _):
        first, *others = await asyncio.gather(*(peers.to(OTHER) for _ in range(5)))
        assert others == [first] * 4
        assert len(broker.connections) == 1
        assert broker.client_ids == ["broker-1-test"]

    run(scenario)


def test_a_connection_that_has_ended_is_made_anew():
    async def scenario(broker, peers, _):
        first = await peers.to(OTHER)
        broker.drop()
        await first.closed
        assert await peers.to(OTHER) is not first

    run(scenario)


def test_a_broker_that_refuses_is_left_alone_for_longer_and_longer():
    async def scenario(broker, peers, _):
        broker.stop()
        loop, refused_at_s = broker.loop, []
        while len(refused_at_s) < 9:
            with pytest.raises(OSError) as refused:
                await peers.to(OTHER)
            if not isinstance(refused.value, NotTriedAgain):
                refused_at_s.append(loop.time())
            await asyncio.sleep(0.01)
        pauses = [b - a for a, b in itertools.pairwise(refused_at_s)]
        assert 0.05 <= pauses[0] < 0.1 < pauses[1] < 0.2 < pauses[2]
        assert all(LAST_BACKOFF_S <= pause < LAST_BACKOFF_S + 0.1 for pause in pauses[-2:])
        await broker.start()
        await asyncio.sleep(LAST_BACKOFF_S)
        assert (await peers.to(OTHER)).is_open

    run(scenario)


def test_a_broker_that_moved_is_asked_at_its_new_address():
    async def scenario(broker, peers, metadata):
        there = ScriptedBroker(broker.loop, "there")
        await there.start()
        before = await peers.to(OTHER)
        told(metadata, peers, registered("there"))
        assert not before.is_open
        await peers.to(OTHER)
        assert len(there.connections) == 1

    run(scenario)


def test_what_is_out_fails_once_the_broker_is_registered_no_more():
    async def scenario(broker, peers, metadata):
        broker.on(ApiKey.METADATA, lambda _: None)
        asked = asyncio.ensure_future(ask(await peers.to(OTHER)))
        await asyncio.sleep(1)
        told(metadata, peers)
        with pytest.raises(Disconnected):
            await asked
        with pytest.raises(KafkaError) as refused:
            await peers.to(OTHER)
        assert refused.value.code is ErrorCode.broker_not_available

    run(scenario)


def test_a_connection_outlasts_what_the_metadata_says_of_others():
    async def scenario(_, peers, metadata):
        before = await peers.to(OTHER)
        told(metadata, peers, registered("here"), replace(registered("there"), id=3))
        assert await peers.to(OTHER) is before

    run(scenario)


def test_a_broker_without_the_listener_between_brokers_is_refused_by_name():
    async def scenario(_, peers, metadata):
        told(metadata, peers, registered("here", listener="OUTSIDE"))
        with pytest.raises(KafkaError, match=r"no listener INSIDE; correct"):
            await peers.to(OTHER)

    run(scenario)


def test_what_comes_while_a_request_is_out_goes_together_in_the_next():
    async def main(_: SimLoop):
        sent, answered = [], asyncio.Semaphore(0)

        async def send(broker, items):
            sent.append((broker, items))
            await answered.acquire()

        outbox = Outbox[str](send, most=3)
        running = asyncio.ensure_future(outbox.run())
        outbox.put(1, "a")
        await asyncio.sleep(0.1)
        for item in "bcde":
            outbox.put(1, item)
        outbox.put(2, "f")
        await asyncio.sleep(0.1)
        assert sent == [(1, ["a"]), (2, ["f"])]
        answered.release()
        answered.release()
        await asyncio.sleep(0.1)
        assert sent[2:] == [(1, ["b", "c", "d"])]
        answered.release()
        await asyncio.sleep(0.1)
        assert sent[3:] == [(1, ["e"])]
        running.cancel()

    simulate(main, 1)
