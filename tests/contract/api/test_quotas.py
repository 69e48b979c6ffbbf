"""Test throttling of clients above their quotas, in every version whose response has a throttle
time."""

import itertools
import time

import pytest

from kserver.api import create_partitions, create_topics, delete_topics, fetch, metadata
from kserver.api import produce as produce_api
from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from tests.contract.api.calls import (
    alter_quotas,
    batch,
    described_quotas,
    fetch_fields,
    produce,
    produce_fields,
)
from tests.support.brokers import until
from tests.support.wire_client import WireClient, milliseconds

KEY = ApiKey.PRODUCE
CLIENTS = (f"quota-{number}" for number in itertools.count())
NO_WAIT = milliseconds(0)


@pytest.fixture
def hold(broker):
    """hold(key=bound, ...) returns a new client with these quotas, and the quotas' entity."""
    opened, held = [], []

    def hold(**bounds):
        client_id = next(CLIENTS)
        entity = (("client-id", client_id),)
        with WireClient(broker.address) as admin:
            assert alter_quotas(admin, entity, **bounds).error_code is ErrorCode.none
            until(lambda: described_quotas(admin, entity) == bounds)
        held.append((entity, bounds))
        opened.append(WireClient(broker.address, client_id=client_id))
        return opened[-1], entity

    yield hold
    for client in opened:
        client.close()
    with WireClient(broker.address) as admin:
        for entity, bounds in held:
            alter_quotas(admin, entity, **dict.fromkeys(bounds))


def produced(client, version, topic, size):
    data = {0: batch(bytes(size))}
    return client.call(ApiKey.PRODUCE, version, **produce_fields(version, topic, data))


@pytest.mark.parametrize("version", produce_api.VERSIONS)
def test_a_producer_is_told_how_long_to_wait_and_not_heard_before(hold, topic, version):
    client, _ = hold(producer_byte_rate=10_000.0)
    began = time.monotonic()
    answer = produced(client, version, topic, 102_000)
    assert answer.responses[0].partition_responses[0].error_code is ErrorCode.none
    wait_s = answer.throttle_time.total_seconds()
    assert 0.2 <= wait_s < 5
    client.call(ApiKey.METADATA, 1, topics=[])
    assert time.monotonic() - began >= wait_s * 0.99


def test_a_producer_without_answers_is_held_too(hold, topic):
    client, _ = hold(producer_byte_rate=10_000.0)
    began = time.monotonic()
    fields = produce_fields(9, topic, {0: batch(bytes(104_000))}, acks=0)
    client.send(ApiKey.PRODUCE, 9, **fields)
    client.call(ApiKey.METADATA, 1, topics=[])
    assert time.monotonic() - began >= 0.39


@pytest.mark.parametrize("version", fetch.VERSIONS)
def test_a_consumer_gets_nothing_until_its_time_is_over(hold, topic, client, version):
    for _ in range(2):
        produce(client, 9, topic, batch(bytes(60_000)))
    consumer, _ = hold(consumer_byte_rate=10_000.0)
    limit = {"max_bytes": 1000, "partition_max_bytes": 1000}
    first = consumer.call(ApiKey.FETCH, version, **fetch_fields(version, topic, {0: 0}, **limit))
    assert first.throttle_time == NO_WAIT
    assert len(first.responses[0].partitions[0].records) > 60_000
    second = consumer.call(ApiKey.FETCH, version, **fetch_fields(version, topic, {0: 1}, **limit))
    assert second.throttle_time > NO_WAIT
    assert second.responses == ()


def test_a_session_goes_on_after_it_was_held(hold, topic, client):
    for _ in range(2):
        produce(client, 9, topic, batch(bytes(60_000)))
    consumer, entity = hold(consumer_byte_rate=10_000.0)

    def fetched(version=12, **fields):
        return consumer.call(
            ApiKey.FETCH, version, **fetch_fields(version, topic, {0: 0}, **fields)
        )

    begun = fetched(session_epoch=0, partition_max_bytes=1)
    assert begun.session_id > 0
    held = fetched(session_id=begun.session_id, session_epoch=1, partition_max_bytes=1)
    assert held.throttle_time > NO_WAIT
    assert (held.session_id, held.responses) == (begun.session_id, ())
    consumer.close()
    alter_quotas(client, entity, consumer_byte_rate=None)
    fields = fetch_fields(12, topic, {0: 1}, session_id=begun.session_id, session_epoch=2)
    again = client.call(ApiKey.FETCH, 12, **fields)
    assert again.error_code is ErrorCode.none
    assert len(again.responses[0].partitions[0].records) > 60_000


@pytest.mark.usefixtures("only_ours")
def test_what_exceeds_all_that_may_be_fetched_at_once_is_fetched_for_all_that(hold, topic, client):
    produce(client, 9, topic, batch(bytes(60_000)))
    consumer, _ = hold(consumer_byte_rate=100.0)
    answer = consumer.call(ApiKey.FETCH, 12, **fetch_fields(12, topic, {0: 0}))
    assert len(answer.responses[0].partitions[0].records) > 60_000


def test_a_quota_that_is_taken_away_holds_nobody_any_more(hold, topic, client):
    producer, entity = hold(producer_byte_rate=10_000.0)
    assert produced(producer, 9, topic, 101_000).throttle_time > NO_WAIT
    alter_quotas(client, entity, producer_byte_rate=None)
    assert produced(producer, 9, topic, 101_000).throttle_time == NO_WAIT


@pytest.mark.parametrize("version", [3, metadata.VERSIONS[-1]])
def test_request_time_counts_in_every_api(hold, version):
    client, _ = hold(request_percentage=0.0001)
    answers = [client.call(ApiKey.METADATA, version, topics=[]) for _ in range(2)]
    assert any(answer.throttle_time > NO_WAIT for answer in answers)


@pytest.mark.parametrize("version", create_topics.VERSIONS)
def test_who_makes_too_many_partitions_is_refused_or_slowed(hold, name, version):
    client, _ = hold(controller_mutation_rate=1.0)

    def create(topic, partitions):
        return client.call(
            ApiKey.CREATE_TOPICS,
            version,
            topics=[{"name": topic, "num_partitions": partitions, "replication_factor": 1}],
            timeout=milliseconds(30_000),
        )

    first = create(name, 60)
    assert first.topics[0].error_code is ErrorCode.none
    strict = version >= create_topics.FIRST_STRICT
    assert (first.throttle_time == NO_WAIT) is strict
    if strict:
        second = create(name + "-2", 1)
        assert second.topics[0].error_code is ErrorCode.throttling_quota_exceeded
        assert second.throttle_time > NO_WAIT


@pytest.mark.parametrize("version", [v for v in delete_topics.VERSIONS if v >= 5])
def test_who_deletes_too_many_partitions_is_refused(hold, make_topic, version):
    client, _ = hold(controller_mutation_rate=1.0)
    names = [make_topic(60).name, make_topic().name]
    codes = []
    for name in names:
        fields = {"topics": [{"name": name}], "topic_names": [name]}
        answer = client.call(ApiKey.DELETE_TOPICS, version, timeout=milliseconds(30_000), **fields)
        codes.append(answer.responses[0].error_code)
    assert codes == [ErrorCode.none, ErrorCode.throttling_quota_exceeded]


@pytest.mark.parametrize("version", [v for v in create_partitions.VERSIONS if v >= 3])
def test_who_adds_too_many_partitions_is_refused(hold, make_topic, version):
    client, _ = hold(controller_mutation_rate=1.0)
    codes = []
    for name, count in ((make_topic().name, 61), (make_topic().name, 2)):
        topics = [{"name": name, "count": count, "assignments": None}]
        answer = client.call(
            ApiKey.CREATE_PARTITIONS, version, topics=topics, timeout=milliseconds(30_000)
        )
        codes.append(answer.results[0].error_code)
    assert codes == [ErrorCode.none, ErrorCode.throttling_quota_exceeded]


def test_an_address_that_connects_too_often_is_turned_away(broker, client):
    entity = (("ip", "127.0.0.1"),)
    assert alter_quotas(client, entity, connection_creation_rate=1.0).error_code is ErrorCode.none

    def turned_away():
        with WireClient(broker.address) as another:
            try:
                another.call(ApiKey.METADATA, 1, topics=[])
            except ConnectionError:
                return True
        return False

    try:
        until(turned_away)
    finally:
        alter_quotas(client, entity, connection_creation_rate=None)
    until(lambda: not turned_away())
