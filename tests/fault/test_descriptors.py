"""Test a broker that reaches its limit on open files: new connections, partitions and segments are
refused, and existing ones continue to work."""

from __future__ import annotations

import contextlib
import resource
import socket

import pytest

from kserver.errors import ErrorCode
from tests.contract.api.calls import Topic, batch, produce, topic_id
from tests.fault.test_disk_full import values
from tests.support.brokers import create_topic, until
from tests.support.process import BrokerProcess
from tests.support.side_by_side import k
from tests.support.wire_client import WireClient


def limit(broker, files):
    _, hard = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (files, hard))


def is_offline(broker):
    return any("went offline: " in line for line in broker.output)


@pytest.fixture
def broker(tmp_path):
    with BrokerProcess(tmp_path) as broker:
        yield broker
        assert not any("Traceback" in line for line in broker.output), "".join(broker.output)
        assert not is_offline(broker), "".join(broker.output)


def test_connections_leave_descriptors_to_the_logs(broker):
    name = create_topic(broker.address, "t", segment_bytes=1000)
    limit(broker, 200)
    host, _, port = broker.address.rpartition(":")
    with WireClient(broker.address) as client, contextlib.ExitStack() as stack:
        topic = Topic(name, topic_id(client, name))
        for _ in range(230):
            stack.enter_context(socket.create_connection((host, int(port))))
        until(lambda: any("the limit of 200 open files" in line for line in broker.output))
        # The descriptors reserved for logs suffice to roll segments and write checkpoints.
        for n in range(10):
            assert produce(client, 9, topic, batch(b"%d" % n * 600)).base_offset == n
        stack.close()
        until(lambda: serves_one_more(broker))
        assert len(values(client, topic)) == 10
    assert broker.stop() == 0


def serves_one_more(broker):
    with contextlib.suppress(OSError), WireClient(broker.address) as client:
        return bool(client.call(3, 9, topics=[]).brokers)
    return False


def test_partitions_that_could_not_be_opened_are_not_created(broker):
    limit(broker, 256)
    to = ("topics", "--bootstrap-server", broker.address)
    refused = k(*to, "--create", "--topic", "wide", "--partitions", "100")
    assert refused.status == 1
    told = (refused.out + refused.err).decode()
    assert "Topic 'wide' needs 300 open files on broker" in told
    assert "raise the limit on open files" in told
    assert k(*to, "--list").out.strip() == b""
    assert not list(broker.data.glob("wide-*"))

    assert k(*to, "--create", "--topic", "narrow", "--partitions", "10").status == 0
    refused = k(*to, "--alter", "--topic", "narrow", "--partitions", "100")
    assert refused.status == 1
    told = (refused.out + refused.err).decode()
    assert "Topic 'narrow' needs 270 open files" in told
    assert len(list(broker.data.glob("narrow-*"))) == 10
    assert broker.stop() == 0


def test_segments_that_cannot_be_opened_refuse_appends_until_they_can(broker):
    name = create_topic(broker.address, "t", segment_bytes=1000)
    with WireClient(broker.address) as client:
        topic = Topic(name, topic_id(client, name))
        assert produce(client, 9, topic, batch(b"0" * 600)).base_offset == 0
        limit(broker, 100)
        written = 1
        for _ in range(100):
            answer = produce(client, 9, topic, batch(b"%d" % written * 300))
            if answer.error_code is not ErrorCode.none:
                break
            assert answer.base_offset == written
            written += 1
        assert answer.error_code is ErrorCode.kafka_storage_error
        assert len(values(client, topic)) == written
        until(lambda: any("raise the limit on open files" in line for line in broker.output))

        limit(broker, 1000)
        assert produce(client, 9, topic, batch(b"on")).base_offset == written
        broker.kill()
    broker.start()
    with WireClient(broker.address) as client:
        assert len(values(client, topic)) == written + 1
    assert broker.stop() == 0


def test_a_start_with_fewer_than_the_logs_take_says_so_and_fails_no_disk(tmp_path):
    broker = BrokerProcess(tmp_path)
    with broker:
        create_topic(broker.address, "t", 60)
    command = BrokerProcess.command
    broker.command = ("sh", "-c", 'ulimit -n 100; exec "$@"', "sh", *command)
    with pytest.raises(RuntimeError, match="did not start"):
        broker.start()
    assert broker.output[-1] == (
        f"k server-start: {broker.data} has 60 log(s); each needs at least 3 open files,"
        " more than the limit allows: raise the limit on open files (ulimit -n,"
        " LimitNOFILE=)\n"
    )
    assert not is_offline(broker)
    broker.command = command
    with broker, WireClient(broker.address) as client:
        topic = Topic("t", topic_id(client, "t"))
        assert produce(client, 9, topic, batch(b"v")).base_offset == 0
