"""Test that clients of other projects are throttled to their quotas and report it."""

from __future__ import annotations

import itertools
import json
import logging
import time

import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer, KafkaProducer

from tests.contract.api.calls import alter_quotas
from tests.support.brokers import OURS, create_topic
from tests.support.process import BrokerProcess
from tests.support.wire_client import WireClient

BOUND = 200_000
WINDOW_S = 2
"""Seconds whose quota is available at the first request: quota.window.num - 1."""
CLOSE = 0.15


@pytest.fixture(scope="module")
def quick(kind, tmp_path_factory):
    """A broker whose quotas cover a window of two seconds."""
    if kind != OURS:
        pytest.skip("a broker of its own is started here")
    settings = {"quota.window.num": WINDOW_S + 1}
    with BrokerProcess(tmp_path_factory.mktemp("quotas"), settings) as broker:
        yield broker


@pytest.fixture
def held(quick):
    """held(client id, key=bound) sets quotas for a client id."""

    def hold(client_id, **bounds):
        with WireClient(quick.address) as admin:
            assert not alter_quotas(admin, (("client-id", client_id),), **bounds).error_code.value

    return hold


def check(sent, took_s):
    """Assert that the rate is not above the quota; on a loaded machine it may be below."""
    assert sent <= BOUND * (took_s + WINDOW_S) * (1 + CLOSE)


def test_librdkafkas_producer(quick, held):
    topic = create_topic(quick.address, "librdkafka")
    held("librdkafka", producer_byte_rate=BOUND)
    waits = []

    def seen(text):
        brokers = json.loads(text)["brokers"].values()
        waits.extend(broker["throttle"]["max"] for broker in brokers)

    producer = Producer(
        {
            "bootstrap.servers": quick.address,
            "client.id": "librdkafka",
            "batch.size": 20_000,
            "max.in.flight.requests.per.connection": 1,
            "statistics.interval.ms": 200,
            "stats_cb": seen,
        }
    )
    began = time.monotonic()
    for _ in range(40):
        producer.produce(topic, bytes(18_000))
    assert producer.flush(60) == 0
    took_s = time.monotonic() - began
    producer.poll(0.5)
    check(40 * 18_000, took_s)
    assert max(waits) > 0
    held("librdkafka", producer_byte_rate=None)


def test_kafka_pythons_producer_and_consumer(quick, held, caplog):
    caplog.set_level(logging.WARNING, logger="kafka")
    topic = create_topic(quick.address, "kafka-python")
    held("kafka-python", producer_byte_rate=BOUND, consumer_byte_rate=BOUND)
    producer = KafkaProducer(
        bootstrap_servers=quick.address,
        client_id="kafka-python",
        batch_size=20_000,
        max_in_flight_requests_per_connection=1,
    )
    began = time.monotonic()
    for _ in range(40):
        producer.send(topic, bytes(18_000))
    producer.flush(60)
    check(40 * 18_000, time.monotonic() - began)
    assert "ProduceResponse throttled by broker" in caplog.text
    producer.close()

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=quick.address,
        client_id="kafka-python",
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=40_000,
        group_id=None,
        consumer_timeout_ms=20_000,
    )
    began = time.monotonic()
    assert len(list(itertools.islice(consumer, 40))) == 40
    check(40 * 18_000, time.monotonic() - began)
    assert "FetchResponse throttled by broker" in caplog.text
    consumer.close()
