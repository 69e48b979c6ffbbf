"""Every key that acts, acting: here, or in the test that is named at the end."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import socket
from pathlib import Path
from random import Random

import pytest

from kcli.client.admin.admin import Admin
from kcli.client.cluster import Cluster
from kcli.client.config import AdminConfig, ClientConfig, ConsumerConfig, ProducerConfig
from kcli.client.errors import TimedOut
from kcli.client.interceptors import ProducerInterceptor
from kserver.config.setting import Acts, settings_of
from kserver.errors import ErrorCode, KafkaError
from kserver.wire.api_key import ApiKey
from tests.support import consuming
from tests.support.consuming import T0, T1
from tests.support.loop import SimLoop, simulate
from tests.support.producing import OK, run
from tests.support.scripted_broker import ScriptedBroker, metadata

HERE = Path(__file__).parent


class Seen(ProducerInterceptor):
    def on_send(self, record):
        return record._replace(headers=[("seen", b"")])


def cluster_of(*servers: str, **settings: object) -> Cluster:
    given = {"bootstrap.servers": ",".join(servers)}
    given |= {key.replace("_", "."): str(value) for key, value in settings.items()}
    return Cluster(AdminConfig.of(given), random=Random(1))


# Connections


def test_client_id_goes_with_every_request():
    async def scenario(producer, broker, topic):
        await (await producer.send("t", b"v"))
        assert set(broker.client_ids) == {"it's me"}

    run(scenario, client_id="it's me")


@pytest.mark.parametrize("config", [AdminConfig, ProducerConfig])
def test_connections_max_idle_ms_ends_those_that_nobody_uses(config):
    async def main(loop: SimLoop) -> None:
        broker = ScriptedBroker(loop)
        await broker.start()
        given = {"bootstrap.servers": broker.address, "connections.max.idle.ms": "2000"}
        cluster = Cluster(config.of(given))
        peer = await cluster.peer()
        await asyncio.sleep(1.5)
        assert peer.is_open
        await peer.closed
        assert loop.time() == pytest.approx(2, abs=0.2)
        await cluster.close()

    simulate(main, 1)


async def gaps_between_connections(loop: SimLoop, **settings: object) -> list[float]:
    """To a broker that is not there, as soon as may be."""
    cluster = cluster_of("nobody:1", **settings)
    times = []
    for _ in range(6):
        with pytest.raises(ConnectionRefusedError):
            await cluster.peer()
        times.append(loop.time())
    return [b - a for a, b in itertools.pairwise(times)]


def test_reconnect_backoff_ms_doubles_up_to_reconnect_backoff_max_ms():
    async def main(loop: SimLoop) -> None:
        settings = {"reconnect_backoff_ms": 1000, "reconnect_backoff_max_ms": 4000}
        gaps = await gaps_between_connections(loop, **settings)
        for gap, expected in zip(gaps, (1, 2, 4, 4, 4), strict=True):
            assert gap == pytest.approx(expected, rel=0.21)

    simulate(main, 1)


def test_socket_connection_setup_timeout_ms_doubles_up_to_its_max():
    async def main(loop: SimLoop) -> None:
        broker = ScriptedBroker(loop)
        broker.on(ApiKey.API_VERSIONS, lambda request: None)
        await broker.start()
        cluster = cluster_of(
            broker.address,
            socket_connection_setup_timeout_ms=1000,
            socket_connection_setup_timeout_max_ms=3000,
            reconnect_backoff_ms=0,
        )
        for expected in (1, 2, 3, 3):
            before = loop.time()
            with pytest.raises(TimeoutError):
                await cluster.peer()
            assert loop.time() - before == pytest.approx(expected, abs=0.1)

    simulate(main, 1)


@pytest.mark.parametrize(
    ("key", "option"),
    [("send_buffer_bytes", socket.SO_SNDBUF), ("receive_buffer_bytes", socket.SO_RCVBUF)],
)
@pytest.mark.parametrize("config", [AdminConfig, ProducerConfig])
def test_buffer_sizes_reach_the_socket_and_unset_leave_it(key, option, config):
    """Over a real socket; what listens there says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        async def connected(**settings: object) -> int:
            given = {"bootstrap.servers": f"127.0.0.1:{port}"} | {
                name.replace("_", "."): str(value) for name, value in settings.items()
            }
            cluster = Cluster(config.of(given))
            asking = asyncio.ensure_future(cluster.peer())
            accepted, _ = await asyncio.to_thread(listener.accept)
            with accepted:
                await asyncio.to_thread(accepted.recv, 1)
                size = _of_our_end(accepted, option)
                asking.cancel()
            await asyncio.wait([asking])
            return size

        async def both() -> None:
            plain = await connected()
            small = await connected(**{key: 9000})
            # Linux keeps the double.
            assert small == 18000
            assert plain != small

        asyncio.run(both())


def _of_our_end(accepted: socket.socket, option: int) -> int:
    """The option of this process's socket at the other end.

    Both addresses say which: sockets to different places may have one port.
    """
    ends = accepted.getpeername(), accepted.getsockname()
    for name in Path("/proc/self/fd").iterdir():
        try:
            # What is duplicated of another kind would stay open: a pipe would have no end.
            if os.readlink(name).startswith("socket:"):
                with socket.socket(fileno=socket.dup(int(name.name))) as one:
                    if (one.getsockname(), one.getpeername()) == ends:
                        return one.getsockopt(socket.SOL_SOCKET, option)
        except OSError:
            continue
    raise AssertionError("no such socket")


def test_request_timeout_ms_ends_a_call_that_is_not_answered():
    async def main(loop: SimLoop) -> None:
        broker = ScriptedBroker(loop)
        broker.on(ApiKey.METADATA, lambda request: None)
        await broker.start()
        cluster = cluster_of(broker.address, request_timeout_ms=1500)
        with pytest.raises(TimeoutError, match="did not respond to Metadata within 1500 ms"):
            await cluster.refresh(None)
        assert loop.time() == pytest.approx(1.5, abs=0.1)

    simulate(main, 1)


def test_retry_backoff_ms_doubles_up_to_retry_backoff_max_ms():
    async def main(loop: SimLoop) -> None:
        cluster = cluster_of("a:1", retry_backoff_ms=1000, retry_backoff_max_ms=4000)
        times = []

        async def attempt():
            times.append(loop.time())
            raise KafkaError(ErrorCode.leader_not_available)

        with pytest.raises(KafkaError):
            await cluster.retry("x", cluster.deadline(60_000), attempt, retries=5)
        gaps = [b - a for a, b in itertools.pairwise(times)]
        for gap, expected in zip(gaps, (1, 2, 4, 4, 4), strict=True):
            assert gap == pytest.approx(expected, rel=0.21)

    simulate(main, 1)


def test_retries_of_an_admin_client_are_a_limit():
    async def main(loop: SimLoop) -> None:
        broker = ScriptedBroker(loop)
        broker.on(ApiKey.METADATA, lambda request: broker.drop())
        await broker.start()
        config = AdminConfig.of({"bootstrap.servers": broker.address, "retries": 3})
        async with Admin(config) as admin:
            with pytest.raises(OSError, match=r"closed|lost"):
                await admin.list_topics()
        assert len(broker.asked(ApiKey.METADATA)) == 4

    simulate(main, 1)


# Producer


def test_metadata_max_age_ms_is_when_a_producer_asks_again():
    async def scenario(producer, broker, topic):
        await (await producer.send("t", b"v"))
        before = len(broker.asked(ApiKey.METADATA))
        await asyncio.sleep(5)
        assert len(broker.asked(ApiKey.METADATA)) - before in (4, 5)

    run(scenario, metadata_max_age_ms="1000")


def test_metadata_max_age_ms_is_when_a_consumer_asks_again():
    async def scenario(consumer, server):
        consumer.assign([T0])
        await consumer.poll(500)
        before = len(server.broker.asked(ApiKey.METADATA))
        await asyncio.sleep(5)
        assert len(server.broker.asked(ApiKey.METADATA)) - before in (4, 5)

    consuming.run(scenario, metadata_max_age_ms="1000")


def test_metadata_max_idle_ms_forgets_a_topic_until_it_is_used_again():
    async def scenario(producer, broker, topic):
        await (await producer.send("t", b"v"))
        await asyncio.sleep(8)
        before = len(broker.asked(ApiKey.METADATA))
        await asyncio.sleep(8)
        assert len(broker.asked(ApiKey.METADATA)) == before
        assert (await (await producer.send("t", b"v"))).offset == 1
        await asyncio.sleep(3)
        assert len(broker.asked(ApiKey.METADATA)) > before

    run(scenario, metadata_max_age_ms="1000", metadata_max_idle_ms="5000")


WORDS = Random(1)
TEXT = " ".join(f"{WORDS.choice('abcdefgh')}{WORDS.randrange(500)}" for _ in range(3000)).encode()


@pytest.mark.parametrize(
    ("key", "low", "high"),
    [
        ("compression_gzip_level", 1, 9),
        ("compression_lz4_level", 1, 17),
        ("compression_zstd_level", 1, 19),
    ],
)
def test_compression_levels_trade_time_for_size(key, low, high):
    sizes = []

    async def scenario(producer, broker, topic):
        await (await producer.send("t", TEXT))
        sizes.append(topic.log[0].size)
        assert topic.values() == [TEXT]

    for level in (low, high):
        run(scenario, compression_type=key.split("_")[1], **{key: str(level)})
    assert sizes[1] < sizes[0]


@pytest.mark.parametrize(("most", "idempotent"), [(1, True), (2, True), (8, False)])
def test_max_in_flight_requests_per_connection_is_how_many_are_out(most, idempotent):
    async def scenario(producer, broker, topic):
        await (await producer.send("t", b"first"))
        topic.verdict = lambda batch: None
        for n in range(20):
            producer.try_send("t", b"%02d" % n * 60)
            await asyncio.sleep(0.01)
        assert len(broker.asked(ApiKey.PRODUCE)) == 1 + most

    run(
        scenario,
        max_in_flight_requests_per_connection=str(most),
        enable_idempotence=str(idempotent),
        batch_size="150",
        linger_ms="0",
    )


def share_of_a_slow_broker(until: float, **settings: str) -> int:
    """Of 600 records without keys, those that go to the one of two partitions whose broker answers
    nothing before a time.
    """

    async def scenario(producer, broker, topic):
        slow = ScriptedBroker(broker.loop, "broker-1", id=1)

        async def handle(request):
            await asyncio.sleep(max(0.0, until - broker.loop.time()))
            return topic.handle(request)

        slow.on(ApiKey.PRODUCE, handle)
        await slow.start()
        for each in (broker, slow):
            each.on(ApiKey.METADATA, metadata(broker, slow, topics=[("t", OK, (0, 1), (1, 1))]))
        await producer.ready("t")
        found = []
        for n in range(600):
            producer.try_send("t", b"%060d" % n, on_delivery=lambda _, told: found.append(told))
            await asyncio.sleep(0.005)
        await producer.flush()
        assert len(found) == 600
        return sum(told.partition == 1 for told in found)

    return run(scenario, batch_size="200", linger_ms="0", **settings)


def test_partitioner_adaptive_partitioning_enable_sends_less_to_a_slow_broker():
    key = "partitioner_adaptive_partitioning_enable"
    adaptive, even = (share_of_a_slow_broker(4.0, **{key: value}) for value in ("true", "false"))
    assert adaptive < 200
    assert 200 < even < 400


def test_partitioner_availability_timeout_ms_leaves_a_stuck_broker_out():
    settings = {"partitioner_adaptive_partitioning_enable": "false"}
    key = "partitioner_availability_timeout_ms"
    left_out, even = (share_of_a_slow_broker(4.0, **settings, **{key: v}) for v in ("100", "0"))
    assert left_out < 100
    assert 200 < even < 400


# Consumer


@pytest.mark.parametrize("value", ["true", "false"])
def test_allow_auto_create_topics_is_asked_of_the_broker(value):
    async def scenario(consumer, server):
        consumer.assign([T0])
        await consumer.poll(500)
        wishes = {r.allow_auto_topic_creation for r in server.broker.asked(ApiKey.METADATA)}
        assert (True in wishes) == (value == "true")

    consuming.run(scenario, allow_auto_create_topics=value)


def test_fetch_sizes_are_asked_of_the_broker():
    """fetch.max.bytes, fetch.min.bytes and max.partition.fetch.bytes."""

    async def scenario(consumer, server):
        server.logs[T0].append(1)
        consumer.assign([T0])
        await consuming.read(consumer, 1)
        asked = server.fetches[0]
        assert (asked.max_bytes, asked.min_bytes) == (123_456, 7)
        assert asked.topics[0].partitions[0].partition_max_bytes == 5432

    consuming.run(
        scenario,
        fetch_max_bytes="123456",
        fetch_min_bytes="7",
        max_partition_fetch_bytes="5432",
    )


def test_the_rack_is_told_with_each_fetch():
    """client.rack."""

    async def scenario(consumer, server):
        server.logs[T0].append(1)
        consumer.assign([T0])
        await consuming.read(consumer, 1)
        assert server.fetches[0].rack_id == "r7"

    consuming.run(scenario, client_rack="r7")


def test_max_poll_records_is_the_most_of_one_poll():
    async def scenario(consumer, server):
        for log in server.logs.values():
            log.append(20)
        consumer.assign([T0, T1])
        sizes = []
        while sum(sizes) < 40:
            sizes.append(len(await consumer.poll(1000)))
        assert max(sizes) == 7

    consuming.run(scenario, max_poll_records="7")


@pytest.mark.parametrize("value", ["true", "false"])
def test_check_crcs_decides_on_a_wrong_checksum(value):
    async def scenario(consumer, server):
        log = server.logs[T0]
        log.append(1)
        base, count, data = log.batches[0]
        log.batches[0] = (base, count, data[:17] + bytes(4) + data[21:])
        consumer.assign([T0])
        if value == "false":
            assert [r.value for r in await consuming.read(consumer, 1)] == [b"0"]
        else:
            with pytest.raises(KafkaError, match="does not match its checksum"):
                await consumer.poll(1000)

    consuming.run(scenario, check_crcs=value)


def test_default_api_timeout_ms_is_how_long_a_call_takes():
    async def scenario(consumer, server):
        server.broker.on(ApiKey.METADATA, lambda request: None)
        before = server.loop.time()
        with pytest.raises(TimedOut):
            await consumer.end_offsets([T0])
        assert server.loop.time() - before == pytest.approx(1.5, abs=0.1)

    consuming.run(scenario, default_api_timeout_ms="1500")


def test_interceptor_classes_are_made_and_asked():
    async def scenario(producer, broker, topic):
        await (await producer.send("t", b"v"))
        assert topic.log[0].records()[0].headers == (("seen", b""),)

    run(scenario, interceptor_classes=f"{__name__}.Seen")


ELSEWHERE = {
    "acks": "test_producer.test_acks_are_asked_for_and_without_them_nothing_is_awaited",
    "auto.commit.interval.ms": (
        "test_commits.test_auto_commit_interval_ms_is_how_often_poll_commits"
    ),
    "auto.offset.reset": "test_consumer.test_without_a_position_the_reset_says_where_to_start",
    "batch.size": "test_accumulator.test_records_gather_in_a_batch_until_it_is_full",
    "bootstrap.servers": "test_cluster.test_any_broker_is_one_that_answers",
    "buffer.memory": "test_producer.test_when_memory_is_full_sending_waits_and_everything_arrives",
    "compression.type": "test_producer.test_batches_are_compressed_as_configured",
    "delivery.timeout.ms": "test_sender.test_a_record_that_is_not_delivered_in_time_expires",
    "enable.auto.commit": (
        "test_commits.test_enable_auto_commit_commits_when_partitions_go_and_at_the_end"
    ),
    "enable.idempotence": (
        "test_producer.test_without_idempotence_they_have_none_and_no_identity_is_fetched"
    ),
    "exclude.internal.topics": (
        "test_membership.test_a_pattern_is_what_matches_now_and_exclude_internal_topics_hides_some"
    ),
    "fetch.max.wait.ms": "test_consumer.test_a_poll_without_records_ends_in_its_time",
    "group.id": "test_membership.test_group_id_and_what_the_member_is_like_are_told",
    "group.instance.id": (
        "test_membership.test_group_instance_id_makes_a_member_that_does_not_leave"
    ),
    "group.protocol": "test_consumer_group.test_group_protocol_consumer_has_but_one_request",
    "group.remote.assignor": (
        "test_consumer_group.test_the_first_heartbeat_says_all_and_the_next_what_has_changed"
    ),
    "heartbeat.interval.ms": ("test_membership.test_heartbeat_interval_ms_is_kept_between_polls"),
    "isolation.level": (
        "test_consumer.test_read_committed_is_asked_for_and_its_end_is_the_stable_one"
    ),
    "key.deserializer": "test_deserializing.test_bytes_become_values_and_null_stays_null",
    "key.serializer": "test_record_appender.test_values_and_keys_become_bytes_and_null_stays_null",
    "linger.ms": "test_producer.test_what_is_sent_within_the_linger_goes_together",
    "max.block.ms": (
        "test_producer.test_when_memory_stays_full_sending_is_given_up_after_max_block"
    ),
    "max.poll.interval.ms": (
        "test_membership.test_max_poll_interval_ms_without_a_poll_ends_the_membership"
    ),
    "max.request.size": "test_sender.test_a_request_is_no_larger_than_max_request_size",
    "metadata.recovery.strategy": "test_cluster.test_without_that_strategy_they_are_not",
    "partition.assignment.strategy": (
        "test_membership.test_group_id_and_what_the_member_is_like_are_told"
    ),
    "partitioner.class": (
        "test_record_appender.test_round_robin_takes_one_partition_after_the_other"
    ),
    "partitioner.ignore.keys": "test_record_appender.test_keys_can_be_ignored",
    "retries": "test_sender.test_retries_have_a_limit_if_one_is_set",
    "session.timeout.ms": ("test_membership.test_group_id_and_what_the_member_is_like_are_told"),
    "transaction.timeout.ms": (
        "test_transaction_manager.test_a_transaction_takes_transaction_timeout_ms_along"
    ),
    "transaction.two.phase.commit.enable": (
        "test_config.test_transactions_need_idempotence_and_have_one_phase"
    ),
    "transactional.id": (
        "test_transaction_manager.test_by_the_older_protocol_partitions_and_offsets_are_announced"
    ),
    "value.deserializer": "test_deserializing.test_settings_name_them",
    "value.serializer": (
        "test_record_appender.test_a_serializer_that_is_given_goes_before_the_one_that_is_named"
    ),
}


def test_every_key_that_acts_is_shown_to():
    here = Path(__file__).read_text()
    for config in (ClientConfig, ProducerConfig, ConsumerConfig, AdminConfig):
        for key, setting in settings_of(config).items():
            if setting.acts is not Acts.NOW:
                continue
            if key in ELSEWHERE:
                file, test = ELSEWHERE[key].split(".")
                (path,) = HERE.rglob(f"{file}.py")
                assert f"def {test}(" in path.read_text(), key
            else:
                named = re.escape(key).replace(r"\.", "[._]")
                assert re.search(rf"\b{named}\b", here.partition("ELSEWHERE = ")[0]), key
