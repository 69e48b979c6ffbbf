from __future__ import annotations

import asyncio
import contextlib
import itertools
from random import Random

import pytest

from kcli.client.admin.admin import Admin
from kcli.client.cluster import Cluster, To, addresses_of, node_of
from kcli.client.config import AdminConfig
from kcli.client.consumer.consumer import Consumer
from kcli.client.errors import ClusterUnreachable, TimedOut
from kcli.client.topic_metadata import MAX_LAG_S
from kserver.errors import ConfigError, ErrorCode, KafkaError, ProtocolError
from kserver.model import TopicPartition
from kserver.wire.api_key import ApiKey
from tests.support.loop import SimLoop, simulate
from tests.support.scripted_broker import ScriptedBroker, metadata

T0 = TopicPartition("t", 0)


def cluster_of(*servers: str, **settings: str) -> Cluster:
    given = {"bootstrap.servers": ",".join(servers)}
    given |= {key.replace("_", "."): value for key, value in settings.items()}
    return Cluster(AdminConfig.of(given), random=Random(1))


def run(scenario, *, brokers: int = 1):
    async def main(loop: SimLoop):
        started = [ScriptedBroker(loop, f"broker-{n}", id=n) for n in range(brokers)]
        for broker in started:
            broker.on(ApiKey.METADATA, metadata(*started))
            await broker.start()
        return await scenario(*started)

    return simulate(main, 1)


@pytest.mark.parametrize(
    ("server", "address"),
    [
        ("localhost:9092", ("localhost", 9092)),
        ("PLAINTEXT://b.example.com:1", ("b.example.com", 1)),
        ("[::1]:9092", ("::1", 9092)),
    ],
)
def test_servers_are_hosts_and_ports(server, address):
    assert addresses_of([server]) == [address]


@pytest.mark.parametrize("server", ["localhost", "localhost:", ":9092", "a:b", "a:99999", "a b:1"])
def test_what_is_no_server_is_refused_by_name(server):
    with pytest.raises(ConfigError, match=r"Invalid url in bootstrap\.servers: "):
        addresses_of([server])


def test_without_servers_there_is_nobody_to_ask():
    with pytest.raises(ConfigError, match=r'Missing required configuration "bootstrap\.servers"'):
        cluster_of()


@pytest.mark.parametrize("protocol", ["SSL", "sasl_plaintext"])
def test_other_protocols_than_plaintext_are_refused(protocol):
    with pytest.raises(ConfigError, match=rf"{protocol}.*security\.protocol.*only PLAINTEXT"):
        cluster_of("a:1", security_protocol=protocol)


def test_any_broker_is_one_that_answers():
    async def scenario(broker):
        cluster = cluster_of("nobody:1", "broker-0:9092")
        peer = await cluster.peer()
        assert str(peer) == "broker-0:9092"
        assert await cluster.peer() is peer
        await cluster.close()

    run(scenario)


def test_many_askers_share_one_connection():
    async def scenario(broker):
        cluster = cluster_of("broker-0:9092")
        peers = await asyncio.gather(*(cluster.peer() for _ in range(10)))
        assert len(set(map(id, peers))) == 1
        assert len(broker.connections) == 1
        await cluster.close()

    run(scenario)


def test_a_broker_and_the_controller_are_found_through_metadata():
    async def scenario(*brokers):
        for broker in brokers:
            broker.on(ApiKey.METADATA, metadata(*brokers, controller=2))
        cluster = cluster_of("broker-0:9092")
        assert str(await cluster.peer(1)) == "broker-1:9092"
        assert str(await cluster.peer(To.CONTROLLER)) == "broker-2:9092"
        assert cluster.cluster_id == "c"
        await cluster.close()

    run(scenario, brokers=3)


def test_a_broker_that_is_not_there_is_refused():
    async def scenario(broker):
        cluster = cluster_of("broker-0:9092")
        with pytest.raises(KafkaError, match="broker 7 does not exist") as caught:
            await cluster.peer(7)
        assert caught.value.code is ErrorCode.broker_not_available
        await cluster.close()

    run(scenario)


def test_without_a_broker_the_call_is_named_when_its_time_is_over():
    async def main(loop: SimLoop):
        cluster = cluster_of("nobody:1")
        with pytest.raises(ClusterUnreachable) as caught:
            await cluster.retry("listTopics", cluster.deadline(5000), cluster.peer)
        assert str(caught.value) == "Timed out waiting for a node assignment. Call: listTopics"
        assert isinstance(caught.value.cause, ConnectionRefusedError)
        assert loop.time() == pytest.approx(5, abs=0.01)

    simulate(main, 1)


def test_a_broker_that_answers_nothing_in_time_is_not_called_unreachable():
    async def scenario(broker):
        broker.on(ApiKey.METADATA, lambda request: None)
        cluster = cluster_of("broker-0:9092")
        with pytest.raises(TimedOut, match="listTopics was not answered in time"):
            await cluster.retry("listTopics", cluster.deadline(5000), lambda: cluster.refresh(None))
        await cluster.close()

    run(scenario)


def test_what_is_retriable_is_tried_again_until_the_deadline_and_then_told():
    async def scenario(broker):
        cluster = cluster_of("broker-0:9092")
        tries = 0

        async def attempt():
            nonlocal tries
            tries += 1
            raise KafkaError(ErrorCode.leader_not_available, f"try {tries}")

        with pytest.raises(KafkaError, match="try"):
            await cluster.retry("x", cluster.deadline(3000), attempt)
        # 100, 200, 400, 800, 1000 ms between them, each a fifth more or less.
        assert 4 <= tries <= 7

    run(scenario)


def test_what_is_not_retriable_is_told_at_once():
    async def scenario(broker):
        cluster = cluster_of("broker-0:9092")

        async def attempt():
            raise KafkaError(ErrorCode.invalid_request)

        with pytest.raises(KafkaError):
            await cluster.retry("x", cluster.deadline(60_000), attempt)
        assert asyncio.get_running_loop().time() < 1

    run(scenario)


def test_connection_attempts_to_a_dead_broker_back_off():
    async def main(loop: SimLoop):
        cluster = cluster_of("nobody:1")
        times = []
        for _ in range(8):
            with pytest.raises(ConnectionRefusedError):
                await cluster.peer()
            times.append(loop.time())
        gaps = [b - a for a, b in itertools.pairwise(times)]
        assert 0.03 < gaps[0] < 0.07
        assert all(0.75 < gap < 1.25 for gap in gaps[5:])

    simulate(main, 1)


def test_a_lost_connection_is_made_again():
    async def scenario(broker):
        cluster = cluster_of("broker-0:9092")
        first = await cluster.peer()
        broker.drop()
        await first.closed
        second = await cluster.peer()
        assert second is not first
        assert second.is_open
        await cluster.close()

    run(scenario)


def test_when_no_known_broker_answers_the_bootstrap_servers_are_asked_again():
    async def scenario(*brokers):
        old, _ = brokers
        cluster = cluster_of("broker-0:9092", "broker-1:9092")
        old.on(ApiKey.METADATA, metadata(old))
        await cluster.refresh(())
        old.stop()
        await asyncio.sleep(0.1)
        assert str(await cluster.peer()) == "broker-1:9092"
        await cluster.close()

    run(scenario, brokers=2)


def test_without_that_strategy_they_are_not():
    async def scenario(*brokers):
        old, _ = brokers
        cluster = cluster_of("broker-0:9092", "broker-1:9092", metadata_recovery_strategy="none")
        old.on(ApiKey.METADATA, metadata(old))
        await cluster.refresh(())
        old.stop()
        await asyncio.sleep(0.1)
        with pytest.raises(ConnectionRefusedError):
            await cluster.peer()

    run(scenario, brokers=2)


def test_metadata_of_some_topics_leaves_the_others_and_all_replaces_them():
    async def scenario(broker):
        ok = ErrorCode.none
        cluster = cluster_of("broker-0:9092")
        broker.on(ApiKey.METADATA, metadata(broker, topics=[("a", ok, (0, 1))]))
        await cluster.refresh(["a"])
        broker.on(ApiKey.METADATA, metadata(broker, topics=[("b", ok, (-1, 1))]))
        await cluster.refresh(["b"])
        assert set(cluster.topics) == {"a", "b"}
        assert cluster.partition(TopicPartition("a", 0)).leader == 0
        assert cluster.partition(TopicPartition("b", 0)).leader is None
        assert cluster.partition(TopicPartition("b", 1)) is None
        await cluster.refresh(None)
        assert set(cluster.topics) == {"b"}
        await cluster.close()

    run(scenario)


def test_a_topic_that_is_refused_is_told_and_one_that_is_gone_forgotten():
    async def scenario(broker):
        cluster = cluster_of("broker-0:9092")
        broker.on(ApiKey.METADATA, metadata(broker, topics=[("a", ErrorCode.none, (0, 1))]))
        await cluster.refresh(["a"])
        gone = ErrorCode.unknown_topic_or_partition
        broker.on(ApiKey.METADATA, metadata(broker, topics=[("a", gone)]))
        refused = await cluster.refresh(["a"])
        assert refused["a"].code is gone
        assert not cluster.topics
        await cluster.close()

    run(scenario)


def test_a_broker_that_lags_does_not_lead_back_to_an_old_leader():
    async def scenario(*brokers):
        cluster = cluster_of("broker-0:9092")
        ok = ErrorCode.none
        for leader, epoch, expected in ((0, 5, 0), (1, 4, 0), (1, 6, 1)):
            for broker in brokers:
                broker.on(ApiKey.METADATA, metadata(*brokers, topics=[("a", ok, (leader, epoch))]))
            await cluster.refresh(["a"])
            assert cluster.partition(TopicPartition("a", 0)).leader == expected
        await cluster.close()

    run(scenario, brokers=2)


def test_an_epoch_that_no_other_answer_knows_of_is_forgotten_in_time():
    async def scenario(broker):
        cluster = cluster_of("broker-0:9092")
        loop = asyncio.get_running_loop()
        leaders = []
        for leader, epoch in ((5, 99), *[(0, 3)] * 15):
            leads = (leader, epoch)
            broker.on(ApiKey.METADATA, metadata(broker, topics=[("a", ErrorCode.none, leads)]))
            await cluster.refresh(["a"])
            leaders.append(cluster.partition(TopicPartition("a", 0)).leader)
            await asyncio.sleep(1)
        assert leaders[:10] == [5] * 10
        assert leaders[-3:] == [0] * 3
        assert loop.time() < 20
        await cluster.close()

    run(scenario)


def test_topics_that_nobody_asked_for_are_not_kept():
    async def scenario(broker):
        cluster = cluster_of("broker-0:9092")
        told = [(name, ErrorCode.none, (0, 1)) for name in ("a", "b")]
        broker.on(ApiKey.METADATA, metadata(broker, topics=told))
        await cluster.refresh(["a"])
        assert set(cluster.topics) == {"a"}
        await cluster.refresh(None)
        assert set(cluster.topics) == {"a", "b"}
        await cluster.close()

    run(scenario)


def test_a_topic_without_a_name_is_none_to_list_or_to_match():
    async def main(loop: SimLoop):
        broker = ScriptedBroker(loop)
        broker.on(
            ApiKey.METADATA,
            metadata(
                broker, topics=[(None, ErrorCode.none, (0, 1)), ("t", ErrorCode.none, (0, 1))]
            ),
        )
        await broker.start()
        async with Admin({"bootstrap.servers": broker.address}) as admin:
            assert [topic.name for topic in await admin.list_topics()] == ["t"]
        group = {"bootstrap.servers": broker.address, "group.id": "g"}
        async with Consumer(group) as consumer:
            consumer.subscribe(pattern="t|u")
            await consumer.cluster.refresh(None)
            assert consumer.subscription == ("t",)

    simulate(main, 1)


def test_the_wish_to_create_topics_reaches_the_broker():
    async def scenario(broker):
        cluster = cluster_of("broker-0:9092")
        await cluster.refresh(["a"])
        await cluster.refresh(["a"], create=True)
        asked = broker.asked(ApiKey.METADATA)
        assert [r.allow_auto_topic_creation for r in asked] == [False, True]
        await cluster.close()

    run(scenario)


@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("", 9092),
        ("a\x1b[31m", 9092),
        ("ü", 9092),
        ("a b", 9092),
        ("a", 0),
        ("a", 70000),
        ("a", -1),
    ],
)
def test_a_broker_that_can_be_nowhere_is_a_protocol_error(host, port):
    with pytest.raises(ProtocolError, match="an answer names a broker at"):
        node_of(1, host, port, None)


@pytest.mark.parametrize("host", ["a" * 300, "a..b", "%"])
def test_a_name_that_no_host_can_have_is_a_connection_that_fails(host):
    async def main() -> None:
        cluster = Cluster(AdminConfig(bootstrap_servers=(f"{host}:1",)))
        with pytest.raises((OSError, ConfigError)):
            await cluster.peer()
        await cluster.close()

    asyncio.run(main())


def test_a_bootstrap_server_that_is_no_broker_is_passed_over():
    async def main(loop: SimLoop) -> None:
        wrong, right = ScriptedBroker(loop, "wrong"), ScriptedBroker(loop, "right")
        wrong.on(18, lambda request: b"HTTP/1.1 400 Bad Request\r\n\r\n")
        for broker in (wrong, right):
            await broker.start()
        cluster = Cluster(AdminConfig(bootstrap_servers=(wrong.address, right.address)))
        assert (await cluster.peer()).host == "right"
        await cluster.close()

    simulate(main, 1)


def test_what_may_wait_for_long_has_a_line_of_its_own():
    """A broker answers one connection in order: nobody else's question waits there."""

    async def main(loop: SimLoop) -> None:
        broker = ScriptedBroker(loop)
        broker.on(ApiKey.METADATA, metadata(broker))
        await broker.start()
        cluster = cluster_of(broker.address)
        await cluster.refresh(())
        shared = await cluster.peer(0)
        apart = await cluster.peer(0, line="slow", response_ms=1 << 20)
        assert apart is not shared
        assert await cluster.peer(0, line="slow") is apart
        assert {await cluster.peer() for _ in range(20)} == {shared}
        await cluster.close()
        assert not apart.is_open

    simulate(main, 1)


def of_epoch(epoch: int, *brokers: ScriptedBroker):
    """Metadata of topic "t", which the first broker leads in that epoch."""
    return metadata(*brokers, topics=[("t", ErrorCode.none, (brokers[0].id, epoch))])


def test_a_broker_that_is_cut_off_leads_no_client_back():
    async def scenario(leader, stale):
        leader.on(ApiKey.METADATA, of_epoch(5, leader, stale))
        stale.on(ApiKey.METADATA, of_epoch(5, leader, stale))
        cluster = cluster_of("broker-1:9092")
        await cluster.refresh(["t"])
        stale.on(ApiKey.METADATA, of_epoch(4, stale, leader))
        for _ in range(20):
            await cluster.refresh(["t"])
            assert cluster.partition(T0).leader_epoch == 5
            await asyncio.sleep(1)
        assert len(leader.asked(ApiKey.METADATA)) >= 9, "it is asked as soon as the other lags"
        leader.stop()
        for _ in range(20):
            with contextlib.suppress(OSError, ProtocolError):
                await cluster.refresh(["t"])
            assert cluster.partition(T0).leader_epoch == 5
            await asyncio.sleep(1)
        await cluster.close()

    run(scenario, brokers=2)


def test_a_committed_offset_of_a_new_leader_rules_out_the_former_leader():
    async def scenario(leader, former):
        leader.on(ApiKey.METADATA, of_epoch(5, leader, former))
        former.on(ApiKey.METADATA, of_epoch(4, former, leader))
        for is_known in (True, False):
            cluster = cluster_of("broker-1:9092")
            if is_known:
                await cluster.refresh(["t"])
                assert cluster.partition(T0).leader == former.id
            cluster.expect_epoch(T0, 5)
            while (known := cluster.partition(T0)) is None or known.leader is None:
                await cluster.refresh(["t"])
            assert (known.leader, known.leader_epoch) == (leader.id, 5)
            await cluster.close()

    run(scenario, brokers=2)


def test_an_epoch_that_no_broker_knows_is_given_up():
    async def scenario(one, other):
        for broker in (one, other):
            broker.on(ApiKey.METADATA, of_epoch(4, one, other))
        cluster = cluster_of("broker-0:9092")
        cluster.expect_epoch(T0, 5)
        began = asyncio.get_running_loop().time()
        await cluster.refresh(["t"])
        while cluster.partition(T0).leader is None:
            await cluster.refresh(["t"])
            assert asyncio.get_running_loop().time() < began + MAX_LAG_S + 2
            await asyncio.sleep(1)
        assert asyncio.get_running_loop().time() >= began + MAX_LAG_S
        await cluster.close()

    run(scenario, brokers=2)


def test_a_topic_created_again_has_epochs_of_its_own():
    async def scenario(broker):
        broker.on(ApiKey.METADATA, of_epoch(4, broker))
        cluster = cluster_of("broker-0:9092")
        cluster.expect_epoch(T0, 5)
        broker.on(
            ApiKey.METADATA,
            metadata(broker, topics=[("t", ErrorCode.unknown_topic_or_partition)]),
        )
        await cluster.refresh(["t"])
        broker.on(ApiKey.METADATA, of_epoch(0, broker))
        await cluster.refresh(["t"])
        assert cluster.partition(T0).leader == broker.id
        await cluster.close()

    run(scenario)


def test_what_all_brokers_say_for_long_is_believed():
    async def scenario(one, other):
        for broker in (one, other):
            broker.on(ApiKey.METADATA, of_epoch(5, one, other))
        cluster = cluster_of("broker-0:9092")
        await cluster.refresh(["t"])
        for broker in (one, other):
            broker.on(ApiKey.METADATA, of_epoch(4, one, other))
        began = asyncio.get_running_loop().time()
        while cluster.partition(T0).leader_epoch == 5:
            await cluster.refresh(["t"])
            assert asyncio.get_running_loop().time() < began + MAX_LAG_S + 2
            await asyncio.sleep(1)
        assert asyncio.get_running_loop().time() >= began + MAX_LAG_S
        await cluster.close()

    run(scenario, brokers=2)
