"""Test that `k top` reports the same of Apache's brokers, with ZooKeeper and with KRaft, as of
ours."""

from __future__ import annotations

import contextlib
import json
import subprocess

import pytest

from kcli.client import Blocking, Consumer, TopicPartition
from tests.support import brokers
from tests.support.brokers import until
from tests.support.mixed_cluster import APACHE, MixedCluster
from tests.support.steady_writer import SteadyWriter
from tests.support.tools import K

PATIENCE_S = 60
ALONE = {
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
}
RECORD = b"x" * 200


@pytest.fixture(scope="module", params=[APACHE, "4.3.1"], ids=["zookeeper", "kraft"])
def address(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("apache")
    with contextlib.ExitStack() as stack:
        if request.param == APACHE:
            yield stack.enter_context(MixedCluster(directory, {1: APACHE}, ALONE)).addresses
        else:
            yield stack.enter_context(brokers.running(request.param, directory, ALONE)).address


def test_top(address):
    brokers.create_topic(address, "orders")
    brokers.await_coordinator(address, "readers")
    at = TopicPartition("orders", 0)
    with SteadyWriter(address, "orders", RECORD) as writer:
        until(lambda: writer.written > 10)
        with Blocking(Consumer, {"bootstrap.servers": address, "group.id": "readers"}) as consumer:
            consumer.assign([at])
            consumer.commit({at: 10})
        before = writer.written
        words = [*K, "top", "--once", "-o", "json", "--bootstrap-server", address]
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S)
        # Samples are two seconds apart, and responses to the first may be late.
        most = writer.written - before
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["errors"] == []
    rows = {(row["kind"], row["name"]): row for row in told["items"]}
    (broker,) = (row for (kind, _), row in rows.items() if kind == "broker")
    assert (broker["state"], broker["address"], broker["is_controller"]) == ("up", address, True)
    orders, readers = rows["topic", "orders"], rows["group", "readers"]
    assert 0 < orders["records_in_per_second"] < most
    each = orders["bytes_in_per_second"] / orders["records_in_per_second"]
    assert len(RECORD) / 2 < each < 4 * len(RECORD)
    assert orders["records_out_per_second"] == 0
    assert before - 10 <= readers["lag"] <= writer.written - 10
    assert (readers["state"], readers["lag_trend"]) == ("Empty", "growing")
