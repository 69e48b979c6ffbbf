"""Fixtures: real brokers for the client library: ours, and Apache Kafka 4.3.1 and 3.9.2."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.support import brokers

APACHE = ("4.3.1", "3.9.2")
SETTINGS = {
    "log.cleaner.backoff.ms": 100,
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 500,
    "offsets.topic.num.partitions": 4,
}
_names = itertools.count(1)


@pytest.fixture(scope="session", params=[brokers.OURS, *APACHE])
def broker(request, tmp_path_factory) -> Iterator[brokers.Broker]:
    kind, directory = request.param, tmp_path_factory.mktemp("broker")
    with brokers.running(kind, directory, SETTINGS) as running:
        running.kind = request.param
        yield running


@pytest.fixture
def topic(broker) -> str:
    return brokers.create_topic(broker.address, f"t{next(_names)}", partitions=3)
