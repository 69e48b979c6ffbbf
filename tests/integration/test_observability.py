"""Test the observability of a real broker: metrics, health checks, slow requests, log lines."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import TypeAlias

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kserver.errors import ErrorCode
from kserver.metrics import catalog
from kserver.metrics.names import JMX, REPORTER, Metric
from kserver.network.http import CONNECTIONS
from kserver.wire.api_key import ApiKey
from tests.contract.api.calls import (
    Topic,
    batch,
    fetch,
    produce,
    produce_to,
    topic_id,
)
from tests.contract.api.group_calls import commit, stable
from tests.support.brokers import create_topic, names, until
from tests.support.process import BrokerProcess
from tests.support.wire_client import WireClient

HTTP = {"http.listener": "127.0.0.1:0"}
METRICS_ON = re.compile(r"metrics on http://([^/]+)/metrics")
TOPICS = names("observed")
HOSTILE = 'app\n[KafkaServer id=9] started "\\\x1b[2J\u202e'
CLUSTER_DEFAULT = {"resource_type": 4, "resource_name": ""}
WAIT_MS = 300
PATIENCE_S = 30

Samples: TypeAlias = dict[tuple[str, frozenset[tuple[str, str]]], float]
OF_OTHER_BROKERS = {
    catalog.FETCHER_REQUESTS,
    catalog.FETCHER_BYTES,
    catalog.FETCHER_LAG,
    catalog.CHANNEL_QUEUE,
    catalog.CHANNEL_TIMES,
}
"""Metrics for each other broker that is followed, or that the controller sends requests to."""


def http_address(broker: BrokerProcess) -> str:
    return next(match[1] for line in reversed(broker.output) if (match := METRICS_ON.search(line)))


def get(broker: BrokerProcess, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{http_address(broker)}{path}") as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def scrape(broker: BrokerProcess) -> Samples:
    status, text = get(broker, "/metrics")
    assert status == 200
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(samples: Samples, metric: Metric, /, **labels: object) -> float:
    named = frozenset((name, str(value)) for name, value in labels.items())
    return samples[metric.exposed(), named]


@pytest.fixture(scope="module")
def broker(tmp_path_factory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), HTTP) as broker:
        yield broker


@pytest.fixture
def client(broker) -> Iterator[WireClient]:
    with WireClient(broker.address, client_id=HOSTILE) as client:
        yield client


@pytest.fixture
def topic(broker, client) -> Topic:
    name = create_topic(broker.address, next(TOPICS), partitions=2)
    return Topic(name, topic_id(client, name))


def alter(client: WireClient, key: str, value: str) -> None:
    change = {"name": key, "config_operation": 0, "value": value}
    resource = CLUSTER_DEFAULT | {"configs": [change]}
    (answer,) = client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource]).responses
    assert answer.error_code is ErrorCode.none, answer.error_message


def test_every_metric_of_the_catalog_is_told_and_no_other(broker, topic):
    told = {name for name, _ in scrape(broker)}
    declared = {
        metric.exposed()
        for metrics in catalog.SECTIONS.values()
        for metric in metrics
        if metric not in OF_OTHER_BROKERS
    }
    assert {re.sub(r"_(sum|count)$", "", name) for name in told} == {
        re.sub(r"_count$", "", name) for name in declared
    }


def test_topics_count_what_was_sent_and_what_was_read(broker, client, topic):
    before = scrape(broker)
    records = [batch(b"a", b"b", b"c"), batch(b"d" * 1000)]
    for one in records:
        assert produce(client, 9, topic, one).error_code is ErrorCode.none
    assert fetch(client, 12, topic, 0).error_code is ErrorCode.none
    after = scrape(broker)
    size = sum(map(len, records))
    for metric, count in [
        (catalog.MESSAGES_IN, 4),
        (catalog.BYTES_IN, size),
        (catalog.BYTES_OUT, size),
        (catalog.PRODUCE_REQUESTS, 2),
        (catalog.FETCH_REQUESTS, 1),
        (catalog.FAILED_PRODUCE_REQUESTS, 0),
        (catalog.FAILED_FETCH_REQUESTS, 0),
        (catalog.BYTES_REJECTED, 0),
    ]:
        assert value(after, metric, topic=topic.name) == count, metric.name
        assert value(after, metric) - value(before, metric) == count, metric.name


def test_a_topic_that_is_gone_is_told_no_more_and_its_sums_stay(broker, client, topic):
    assert produce(client, 9, topic, batch(b"a")).error_code is ErrorCode.none
    before = scrape(broker)
    client.call(ApiKey.DELETE_TOPICS, 3, topic_names=[topic.name])
    until(lambda: not any(("topic", topic.name) in labels for _, labels in scrape(broker)))
    after = scrape(broker)
    assert value(after, catalog.MESSAGES_IN) == value(before, catalog.MESSAGES_IN)
    assert value(before, catalog.PARTITIONS) - value(after, catalog.PARTITIONS) == 2


def test_what_is_refused_is_counted_where_it_belongs(broker, client):
    name = create_topic(broker.address, next(TOPICS), max_message_bytes=200)
    topic = Topic(name, topic_id(client, name))
    large, torn = batch(b"x" * 1000), bytearray(batch(b"a"))
    torn[-1] ^= 1
    no_key = create_topic(broker.address, next(TOPICS), cleanup_policy="compact")
    assert produce(client, 9, topic, large).error_code is ErrorCode.message_too_large
    assert produce(client, 9, topic, bytes(torn)).error_code is ErrorCode.corrupt_message
    refused = produce(client, 9, Topic(no_key, topic.id), batch(b"a"))
    assert refused.error_code is ErrorCode.invalid_record
    samples = scrape(broker)
    assert value(samples, catalog.BYTES_REJECTED, topic=name) == len(large)
    assert value(samples, catalog.FAILED_PRODUCE_REQUESTS, topic=name) == 0
    assert value(samples, catalog.PRODUCE_REQUESTS, topic=name) == 2
    assert value(samples, catalog.FAILED_PRODUCE_REQUESTS, topic=no_key) == 1
    assert value(samples, catalog.MESSAGES_IN, topic=name) == 0


def test_partitions_and_logs_are_as_they_are(broker, client, topic):
    records = batch(b"a", b"b")
    assert produce_to(client, 9, topic, {1: records})[1].error_code is ErrorCode.none
    samples = scrape(broker)
    here = {"topic": topic.name, "partition": 1}
    for metric, expected in [
        (catalog.LOG_SIZE, len(records)),
        (catalog.LOG_SEGMENTS, 1),
        (catalog.LOG_START, 0),
        (catalog.LOG_END, 2),
        (catalog.CURRENT_OFFSET, 2),
        (catalog.OLDEST_OFFSET, 0),
        (catalog.REPLICAS_COUNT, 1),
        (catalog.IN_SYNC_COUNT, 1),
        (catalog.PARTITION_UNDER_MIN_ISR, 0),
        (catalog.PARTITION_AT_MIN_ISR, 1),
        (catalog.PARTITION_UNDER_REPLICATED, 0),
        (catalog.IN_SYNC, 1),
        (catalog.REPLICAS, 1),
        (catalog.LEADER, 0),
        (catalog.PREFERRED, 1),
        (catalog.IS_UNDER_REPLICATED, 0),
    ]:
        assert value(samples, metric, **here) == expected, metric.exposed()
    assert value(samples, catalog.LOG_SIZE, topic=topic.name, partition=0) == 0
    assert value(samples, catalog.TOPIC_PARTITIONS, topic=topic.name) == 2


def test_the_cluster_and_the_process_are_as_they_are(broker, topic):
    samples = scrape(broker)
    partitions = value(samples, catalog.PARTITIONS)
    assert partitions >= 2
    for metric, expected in [
        (catalog.BROKER_STATE, 3),
        (catalog.LEADERS, partitions),
        (catalog.ALL_PARTITIONS, partitions),
        (catalog.UNDER_REPLICATED, 0),
        (catalog.OFFLINE_REPLICAS, 0),
        (catalog.UNDER_MIN_ISR, 0),
        (catalog.AT_MIN_ISR, partitions),
        (catalog.ACTIVE_CONTROLLERS, 1),
        (catalog.OFFLINE_PARTITIONS, 0),
        (catalog.ACTIVE_BROKERS, 1),
        (catalog.BROKERS, 1),
        (catalog.UNCLEAN_ELECTIONS, 0),
        (catalog.OFFLINE_DIRECTORIES, 0),
    ]:
        assert value(samples, metric) == expected, metric.exposed()
    assert 0 <= value(samples, catalog.NETWORK_IDLE) <= 1
    assert value(samples, catalog.HANDLER_IDLE) <= 1
    assert value(samples, catalog.CPU) > 0
    assert 10 << 20 < value(samples, catalog.RESIDENT) < value(samples, catalog.VIRTUAL)
    assert 10 < value(samples, catalog.OPEN_FILES) < value(samples, catalog.MAX_FILES)
    assert abs(time.time() - value(samples, catalog.START_TIME)) < 3600
    assert value(samples, catalog.DISK_WRITTEN) >= 0


def test_connections_and_requests_are_counted(broker, client):
    network = {"listener": "PLAINTEXT", "networkProcessor": 0}
    until(lambda: value(scrape(broker), catalog.CONNECTIONS, **network) == 1)
    before = scrape(broker)
    with WireClient(broker.address) as another:
        another.call(18, 0)
        another.call(18, 0)
        during = scrape(broker)
    until(lambda: value(scrape(broker), catalog.CONNECTIONS, **network) == 1)
    assert value(during, catalog.CONNECTIONS, **network) == 2
    made = [value(samples, catalog.CONNECTIONS_MADE, **network) for samples in (before, during)]
    assert made[1] - made[0] == 1
    asked = {"request": "ApiVersions", "version": 0}
    assert (
        value(during, catalog.REQUESTS, **asked)
        - before.get(
            (catalog.REQUESTS.exposed(), frozenset((k, str(v)) for k, v in asked.items())), 0
        )
        == 2
    )
    times = catalog.REQUEST_TIMES.exposed()
    by_api = frozenset({("request", "ApiVersions")})
    assert during[f"{times}_count", by_api] - before[f"{times}_count", by_api] == 2
    assert during[f"{times}_sum", by_api] > before[f"{times}_sum", by_api]
    assert 0 < during[times, by_api | {("quantile", "0.50")}] < 10_000


def test_a_fetch_that_waits_counts_its_wait(broker, client, topic):
    name, by_api = f"{catalog.REQUEST_TIMES.exposed()}_sum", frozenset({("request", "Fetch")})
    before = scrape(broker)[name, by_api]
    fetch(client, 12, topic, 0, max_wait_ms=WAIT_MS)
    assert scrape(broker)[name, by_api] - before >= WAIT_MS


def test_metrics_are_read_while_several_topics_are_written_to(broker):
    made = [create_topic(broker.address, next(TOPICS)) for _ in range(3)]
    sent = dict.fromkeys(made, 0)
    enough = threading.Event()

    def load(name: str) -> None:
        with WireClient(broker.address) as client:
            topic = Topic(name, topic_id(client, name))
            while not enough.is_set():
                produce(client, 9, topic, batch(b"a", b"b"), acks=1)
                sent[name] += 2

    threads = [threading.Thread(target=load, args=(name,)) for name in made]
    for thread in threads:
        thread.start()
    read = {name: [] for name in made}
    for _ in range(10):
        samples = scrape(broker)
        for name in made:
            read[name].append(
                samples.get((catalog.MESSAGES_IN.exposed(), frozenset({("topic", name)})), 0)
            )
    until(lambda: all(sent.values()))
    enough.set()
    for thread in threads:
        thread.join()
    samples = scrape(broker)
    for name in made:
        assert read[name] == sorted(read[name])
        assert value(samples, catalog.MESSAGES_IN, topic=name) == sent[name] > 0


def test_it_lives_and_is_ready(broker):
    assert get(broker, "/healthz") == (200, "ok\n")
    assert get(broker, "/readyz") == (200, "ready\n")
    assert get(broker, "/")[0] == 404


def test_hostile_http_clients_cost_others_nothing(broker, client):
    host, port = http_address(broker).split(":")
    with contextlib.ExitStack() as stack:
        held = [
            stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(300)
        ]
        for number, one in enumerate(held):
            with contextlib.suppress(ConnectionError):
                one.send(
                    (b"GET /" + b"x" * 100_000, b"GET / HTTP/1.1\r\nX: ", b"\0\xff")[number % 3]
                )
        assert client.call(18, 0).error_code is ErrorCode.none
        # The others are closed on connect, or wait in the backlog.
        until(lambda: len(os.listdir(f"/proc/{broker.pid}/fd")) < 2 * CONNECTIONS)
    until(lambda: answers(broker))


def answers(broker: BrokerProcess) -> bool:
    try:
        return get(broker, "/healthz")[0] == 200
    except OSError:
        return False


def lines_with(broker: BrokerProcess, text: str, after: int) -> list[str]:
    return [line for line in broker.output[after:] if text in line]


def test_a_slow_request_is_named_while_that_is_wanted(broker, client, topic):
    start = len(broker.output)
    fetch(client, 12, topic, 0, max_wait_ms=WAIT_MS)
    assert not lines_with(broker, "Fetch v12", start)
    alter(client, "request.log.slow.ms", str(WAIT_MS))
    fetch(client, 12, topic, 0, max_wait_ms=WAIT_MS)
    until(lambda: bool(lines_with(broker, "Fetch v12 from 127.0.0.1 on PLAINTEXT", start)))
    (line,) = lines_with(broker, "Fetch v12", start)
    took = re.search(r": ([0-9.]+) ms \(([0-9.]+) handled, ([0-9.]+) waited\), request \d+", line)
    assert took is not None
    assert float(took[1]) >= WAIT_MS
    assert float(took[3]) > float(took[2])
    assert "client id 'app\\n[KafkaServer id=9] started" in line
    assert line.removesuffix("\n").isprintable()
    alter(client, "request.log.slow.ms", "-1")
    start = len(broker.output)
    fetch(client, 12, topic, 0, max_wait_ms=WAIT_MS)
    assert not lines_with(broker, "Fetch v12", start)


def test_a_start_says_what_started(broker):
    said = "".join(broker.output)
    assert re.search(r"broker 0 of cluster \S{22}, metadata store: embedded in .*\.msgpack", said)
    assert re.search(rf"{broker.data}: 0 logs, 0 bytes", said)
    assert re.search(r"listening on PLAINTEXT://127.0.0.1:\d+", said)
    assert METRICS_ON.search(said)
    assert re.search(r"\[KafkaServer id=0\] started in \d+ ms", said)


def test_an_address_that_is_taken_is_named_in_one_line(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(RuntimeError) as refused:
            BrokerProcess(tmp_path, {"http.listener": address}).start()
    *_, last = str(refused.value).splitlines()
    assert last.endswith(f"http.listener {address} cannot be opened: address already in use")
    assert "Traceback" not in str(refused.value)


def test_json_lines_and_other_names(tmp_path):
    data = tmp_path / 'da"ta\\x'
    settings = HTTP | {
        "log.dirs": data,
        "log.format": "json",
        "log.level": "WARN,kserver=INFO,kserver.request=INFO,kserver.broker.registration=ERROR",
        "metrics.naming": REPORTER,
        "request.log.slow.ms": 0,
    }
    with BrokerProcess(tmp_path, settings) as broker:
        name = create_topic(broker.address, "a")
        with WireClient(broker.address, client_id=HOSTILE) as client:
            fetch(client, 12, Topic(name, topic_id(client, name)), 0)
        samples = scrape(broker)
        assert samples[catalog.MESSAGES_IN.exposed(REPORTER), frozenset({("topic", "a")})] == 0
        offline = catalog.DIRECTORY_OFFLINE.exposed(REPORTER)
        assert samples[offline, frozenset({("logDirectory", str(data))})] == 0
        assert catalog.MESSAGES_IN.exposed(JMX) not in {name for name, _ in samples}
        assert broker.stop() == 0
    lines = [json.loads(line) for line in broker.output]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    fetched = next(line for line in lines if line.get("api") == "Fetch")
    assert fetched["client_id"] == HOSTILE
    assert fetched["version"] == 12
    assert {"kserver", "kserver.request"} <= {line["logger"] for line in lines}
    assert "kserver.broker.registration" not in {line["logger"] for line in lines}


def test_groups_are_counted_by_their_states_and_what_they_did(broker, client, topic):
    until(lambda: client.call(ApiKey.FIND_COORDINATOR, 3, key="g").error_code is ErrorCode.none)
    before = scrape(broker)
    joined = stable(client, "g", topic.name)
    assert commit(client, "g", topic, {0: 5}, joined) == {0: ErrorCode.none}
    assert commit(client, "h", topic, {0: 5}) == {0: ErrorCode.none}
    deleted = [{"name": topic.name, "partitions": [{"partition_index": 0}]}]
    client.call(ApiKey.OFFSET_DELETE, 0, group_id="h", topics=deleted)
    after = scrape(broker)
    for metric, count in [
        (catalog.OFFSETS, 1),
        (catalog.CLASSIC_GROUPS, 2),
        (catalog.STABLE_GROUPS, 1),
        (catalog.EMPTY_GROUPS, 1),
        (catalog.PREPARING_GROUPS, 0),
        (catalog.OFFSETS_COMMITTED, 2),
        (catalog.OFFSETS_DELETED, 1),
        (catalog.OFFSETS_EXPIRED, 0),
        (catalog.REBALANCES, 1),
    ]:
        assert value(after, metric) - value(before, metric) == count, metric.name
    assert value(after, catalog.GROUPS, protocol="classic") == 2
    assert value(after, catalog.CONSUMER_GROUPS, state="Stable") == 0
