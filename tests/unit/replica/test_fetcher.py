"""Fetchers come and go with the partitions that are followed, and leave no log half cut."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kserver.config.broker import BrokerConfig
from kserver.errors import ErrorCode
from kserver.metadata import BrokerInfo, ClusterMetadata
from kserver.model import NO_EPOCH, Endpoint, TopicPartition
from kserver.peer import Peer
from kserver.replica.fetch_bytes import FetchedPartition
from kserver.replica.follower_session import Position
from kserver.replica.manager import ReplicaManager
from kserver.wire.api_key import ApiKey
from kserver.wire.versions import reply_to
from tests.support.logs import batch
from tests.support.scripted_broker import ScriptedBroker
from tests.unit.log.test_manager import Host, run
from tests.unit.replica.test_manager import ME, become, started, state, stop

KEY = TopicPartition("a", 0)
LEADER = 1
MOVED_WITHIN_S = 3.0
"""Time until the new address is used; less than replica.socket.timeout.ms."""


def grow(host: Host, replicas: ReplicaManager, batches: int) -> None:
    for _ in range(batches):
        replicas.get("a", 0).log.append_as_leader(batch(), 1, host.clock.now_ms())


@pytest.mark.parametrize("seed", range(5))
def test_a_cut_ends_before_a_role_is_given_also_of_a_fetcher_that_has_nothing_left(
    seed: int,
) -> None:
    async def scenario(host: Host) -> None:
        replicas = await started(host)
        running = host.loop.create_task(replicas.run())
        become(replicas, "a", state(0, leader=1, epoch=1))
        grow(host, replicas, 10)
        partition = replicas.get("a", 0)
        (fetcher,) = replicas.fetchers.running
        cutting = host.loop.create_task(fetcher._truncate(partition, 4))
        while not partition.log.is_being_cut:
            await asyncio.sleep(0)
        # It follows another one from now on, and then leads.
        become(replicas, "a", state(0, leader=2, epoch=2))
        assert fetcher not in replicas.fetchers.running
        await replicas.truncations_ended({KEY})
        assert not partition.log.is_being_cut
        assert become(replicas, "a", state(0, leader=ME, epoch=3))
        assert partition.log.epochs.entries[-1] == (3, 4), "its epoch starts at the cut"
        grow(host, replicas, 1)
        await cutting
        running.cancel()
        await asyncio.wait([running])

    run(scenario, seed=seed)


def test_a_leader_has_as_many_fetchers_as_are_set_and_none_without_partitions() -> None:
    async def scenario(host: Host) -> None:
        replicas = await started(host)
        running = host.loop.create_task(replicas.run())
        become(replicas, "a", *(state(n, leader=1, epoch=1) for n in range(8)))
        assert len(replicas.fetchers.running) == 1
        for number in (3, 2):
            host.config = BrokerConfig.load(
                None, ["log.dirs=/logs", f"num.replica.fetchers={number}"]
            )
            replicas.reconfigure(ClusterMetadata("cluster"), ())
            assert len(replicas.fetchers.running) == number
        for number in range(8):
            stop(replicas, "a", number, 1, delete=False)
        assert not replicas.fetchers.running
        running.cancel()
        await asyncio.wait([running])

    run(scenario)


def test_a_partition_that_is_followed_no_longer_leaves_the_session() -> None:
    async def scenario(host: Host) -> None:
        replicas = await started(host)
        become(replicas, "a", state(0, leader=1, epoch=1), state(1, leader=1, epoch=1))
        (fetcher,) = replicas.fetchers.running
        fetcher._position()
        assert {number for _, number in fetcher._session.positions} == {0, 1}
        stop(replicas, "a", 1, 1, delete=False)
        assert {number for _, number in fetcher._session.positions} == {0}

    run(scenario)


@pytest.mark.parametrize("asked_epoch", [1, 2])
def test_what_was_fetched_in_an_earlier_leader_epoch_is_dropped(asked_epoch: int) -> None:
    """Between two epochs of the same leader another may have led, and its log may be another."""

    async def scenario(host: Host) -> None:
        replicas = await started(host)
        become(replicas, "a", state(0, leader=1, epoch=2))
        partition = replicas.get("a", 0)
        (fetcher,) = replicas.fetchers.running
        key = (partition.topic_id.bytes, 0)
        fetcher._session.want(key, Position(asked_epoch, 0, NO_EPOCH, 0))
        peer: Any = None
        await fetcher._take(FetchedPartition(key, 0, 0, 0, batch(), None), peer)
        assert partition.log.log_end_offset == (1 if asked_epoch == 2 else 0)

    run(scenario)


@pytest.mark.parametrize("is_current", [True, False])
def test_a_log_beyond_the_end_of_its_leader_s_is_cut_in_its_epoch_only(is_current: bool) -> None:
    """The leader says that it has not what is asked for, and where its log ends.  If it leads in
    another epoch by then, that is no news of it."""

    async def scenario(host: Host) -> None:
        replicas = await started(host)
        running = host.loop.create_task(replicas.run())
        become(replicas, "a", state(0, leader=1, epoch=1))
        grow(host, replicas, 10)
        partition = replicas.get("a", 0)
        (fetcher,) = replicas.fetchers.running
        key = (partition.topic_id.bytes, 0)
        fetcher._session.want(key, Position(1, 10, NO_EPOCH, 0))
        leader = ScriptedBroker(host.loop, "leader")

        def ends_at_4(request: Any) -> Any:
            if not is_current:
                become(replicas, "a", state(0, leader=1, epoch=2))
            new = reply_to(request)
            (topic,), partitions = request.topics, new.topics.partitions
            listed = partitions(
                partition_index=0, error_code=ErrorCode.none, timestamp=-1, offset=4, leader_epoch=1
            )
            return new(topics=[new.topics(name=topic.name, partitions=[listed])])

        leader.on(ApiKey.LIST_OFFSETS, ends_at_4)
        await leader.start()
        peer = await Peer.connect("leader", leader.port)
        out_of_range = int(ErrorCode.offset_out_of_range)
        await fetcher._take(FetchedPartition(key, out_of_range, -1, -1, b"", None), peer)
        assert len(leader.asked(ApiKey.LIST_OFFSETS)) == 1
        assert partition.log.log_end_offset == (4 if is_current else 10)
        peer.close()
        leader.stop()
        running.cancel()
        await asyncio.wait([running])

    run(scenario)


def refuses(request: Any) -> Any:
    """Return the response of a broker that does not lead the partitions."""
    new = reply_to(request)
    new_partition = new.responses.partitions
    return new(
        error_code=ErrorCode.none,
        session_id=0,
        responses=[
            new.responses(
                topic_id=topic.topic_id,
                partitions=[
                    new_partition(
                        partition_index=partition.partition,
                        error_code=ErrorCode.not_leader_or_follower,
                        high_watermark=-1,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


@pytest.mark.parametrize("at_old_address", ["refuses", "is silent", "moves while connecting"])
def test_a_leader_that_moved_is_fetched_from_at_its_new_address(at_old_address: str) -> None:
    """At the old address there is another broker, or a machine that is down."""

    async def scenario(host: Host) -> None:
        replicas = await started(host)
        old, new = ScriptedBroker(host.loop, "old"), ScriptedBroker(host.loop, "new")
        is_asked, is_followed = asyncio.Event(), asyncio.Event()

        def leader_is_at(broker: ScriptedBroker) -> None:
            endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", broker.name, broker.port)
            info = BrokerInfo(LEADER, {"PLAINTEXT": endpoint})
            image = ClusterMetadata("cluster", brokers={LEADER: info})
            replicas._metadata.update(image)
            replicas.fetchers.apply(image)

        def at_old(request: Any) -> Any:
            is_asked.set()
            return None if at_old_address == "is silent" else refuses(request)

        def at_new(request: Any) -> Any:
            is_followed.set()
            return refuses(request)

        async def moves(request: Any) -> Any:
            leader_is_at(new)
            is_asked.set()
            return old._api_versions(request)

        old.on(ApiKey.FETCH, at_old)
        new.on(ApiKey.FETCH, at_new)
        if at_old_address == "moves while connecting":
            old.on(ApiKey.API_VERSIONS, moves)
        await old.start()
        await new.start()
        leader_is_at(old)
        running = host.loop.create_task(replicas.run())
        become(replicas, "a", state(0, leader=LEADER, epoch=1))
        await is_asked.wait()
        if at_old_address != "moves while connecting":
            leader_is_at(new)
        async with asyncio.timeout(MOVED_WITHIN_S):
            await is_followed.wait()
        asked = len(old.asked(ApiKey.FETCH))
        await asyncio.sleep(MOVED_WITHIN_S)
        assert len(old.asked(ApiKey.FETCH)) == asked
        running.cancel()
        await asyncio.wait([running])
        old.stop()
        new.stop()

    run(scenario)
