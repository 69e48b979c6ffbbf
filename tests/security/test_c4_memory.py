"""C4: before anybody is known, what a client takes of memory is bounded by what it has sent.

CVE-2022-34917: lengths of frames and arrays made the broker allocate.
"""

import contextlib
import socket
import struct
import time

import pytest

from kserver.api.table import SERVED
from kserver.wire import guard, varint
from kserver.wire.api_key import ApiKey
from kserver.wire.codec import is_flexible, write_request
from kserver.wire.versions import request
from tests.contract.api.calls import Topic, fetch_fields, topic_id
from tests.fault.test_hostile import clear_peak, connections, rss_bytes
from tests.support.process import BrokerProcess
from tests.support.wire_client import WireClient, build

ALLOWED_BYTES = 64 << 20
HOSTILE = 1000
PATIENCE_S = 60
TOPIC = 2


def frame(body):
    return struct.pack(">i", len(body)) + body


def head(key, version):
    """A request's header, without a client id."""
    flexible = b"\0" if is_flexible(key, version) else b""
    return struct.pack(">hhih", key, version, 1, -1) + flexible


@contextlib.contextmanager
def grows_little(broker):
    clear_peak(broker.pid)
    before = rss_bytes(broker.pid)
    yield
    assert rss_bytes(broker.pid, "VmHWM") - before <= ALLOWED_BYTES


def answered(broker):
    """All that came before has been read once another, who came later, is answered."""
    with WireClient(broker.address, timeout_s=PATIENCE_S) as client:
        client.call(ApiKey.API_VERSIONS, 0)


def hostile_bytes(topic):
    """What hostile connections send, each kind in its turn."""
    parked = fetch_fields(12, topic, {0: 0}, max_wait_ms=2**31 - 1, min_bytes=1 << 30)
    fetching = write_request(build(request(ApiKey.FETCH, 12), parked), 1, None)
    metadata = write_request(request(ApiKey.METADATA, 12)(topics=None), 1, None)
    return (
        struct.pack(">i", 100 << 20) + bytes(2000),
        struct.pack(">i", 100 << 20) + bytes(30_000),
        struct.pack(">i", 60_000) + bytes(30_000),
        struct.pack(">i", 3 << 20) + head(ApiKey.PRODUCE, 9),
        fetching,
        metadata,
        b"\0",
        b"",
    )


def test_a_thousand_hostile_connections_grow_the_broker_by_64_mib_at_most(broker, topic):
    with WireClient(broker.address) as client:
        known = Topic(topic, topic_id(client, topic))
    kinds = hostile_bytes(known)
    for data in kinds:  # what is loaded at its first use is no growth
        with connected(broker) as sock:
            sock.sendall(data)
        answered(broker)
    with contextlib.ExitStack() as stack, grows_little(broker):
        for number in range(HOSTILE):
            sock = stack.enter_context(connected(broker))
            sock.sendall(kinds[number % len(kinds)])
        answered(broker)
        assert connections(broker.pid) > HOSTILE * 0.9


@contextlib.contextmanager
def connected(broker):
    with socket.create_connection(("127.0.0.1", broker.port), PATIENCE_S) as sock:
        yield sock


def closed(broker, data):
    """Send it all, and wait for the broker to hang up."""
    with connected(broker) as sock:
        try:
            sock.sendall(data)
            while sock.recv(1 << 16):
                pass
        except ConnectionError:
            pass  # it hung up within


def crowds(key, version):
    """Frames that hold, within their bytes, more elements than any request needs: of every array
    that comes early enough in a request for a few zeros to lead to it."""
    flexible = is_flexible(key, version)
    count = guard.MAX_ELEMENTS + 1
    length = varint.encode_unsigned(count + 1) if flexible else struct.pack(">i", count)
    for at in range(8):
        yield frame(
            head(key, version) + bytes(at) + length + bytes(40 * count if at < 2 else count)
        )


@pytest.mark.parametrize("key", SERVED)
def test_more_elements_than_any_request_has_cost_little(broker, key):
    for version in {SERVED[key][0], SERVED[key][-1]}:
        closed_or_answered(broker, key, version)
        with grows_little(broker):
            for data in crowds(key, version):
                with connected(broker) as sock, contextlib.suppress(ConnectionError):
                    sock.sendall(data)
                    sock.shutdown(socket.SHUT_WR)
                    while sock.recv(1 << 16):
                        pass
            answered(broker)


def closed_or_answered(broker, key, version):
    """Once before it is measured: the messages of a version are loaded at their first use."""
    with connected(broker) as sock, contextlib.suppress(ConnectionError):
        sock.sendall(frame(head(key, version) + bytes(64)))
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(1 << 16):
            pass


def test_tags_without_end_cost_little(broker):
    """Of a header, of a message, of one read by hand."""
    tags = varint.encode_unsigned(4_000_000) + b"\7\0" * 4_000_000
    header = struct.pack(">hhih", ApiKey.METADATA, 12, 1, -1)
    fetching = write_request(build(request(ApiKey.FETCH, 15), {"topics": []}), 1, None)[4:-1]
    with grows_little(broker):
        for body in (header + tags, header + b"\0" + b"\1\0\0" + tags, fetching + tags):
            began = time.monotonic()
            closed(broker, frame(body))
            assert time.monotonic() - began < PATIENCE_S


def test_a_partition_named_again_and_again_is_told_once(broker, topic):
    with WireClient(broker.address) as client, grows_little(broker):
        answer = client.call(ApiKey.METADATA, 12, topics=[{"name": topic}] * 5_000)
        assert len(answer.topics) == 1
        resource = {"resource_type": TOPIC, "resource_name": topic, "configuration_keys": None}
        answer = client.call(ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource] * 5_000)
        assert len(answer.results) == 1


@pytest.fixture(scope="module")
def strict(tmp_path_factory):
    settings = {
        "max.connections.per.ip": 5,
        "max.connection.creation.rate": 1000,
        "queued.max.request.bytes": 4 << 20,
        "socket.request.max.bytes": 20 << 20,
    }
    with BrokerProcess(tmp_path_factory.mktemp("strict"), settings) as broker:
        yield broker


def test_an_address_has_so_many_connections_and_the_next_is_hung_up_on(strict):
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(WireClient(strict.address)) for _ in range(5)]
        for client in taken:
            client.call(ApiKey.API_VERSIONS, 0)
        for _ in range(20):
            with WireClient(strict.address) as another, contextlib.suppress(ConnectionError):
                assert another.is_closed()
        taken[0].call(ApiKey.API_VERSIONS, 0)
    told = [line for line in strict.output if "max.connections.per.ip" in line]
    assert 1 <= len(told) <= 3


def test_a_request_beyond_the_limit_of_its_size_is_not_read(strict):
    with connected(strict) as sock:
        sock.sendall(struct.pack(">i", (20 << 20) + 1))
        assert sock.recv(1) == b""


def test_large_requests_wait_for_memory_and_all_are_answered(strict):
    """Three that begin at once and go on together, with room for one."""
    body = head(ApiKey.METADATA, 1) + struct.pack(">i", 0) + bytes(3 << 20)
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(connected(strict)) for _ in range(3)]
        for sock in socks:
            sock.setblocking(False)
        left = [frame(body)] * 3
        deadline = time.monotonic() + PATIENCE_S
        while any(left):
            assert time.monotonic() < deadline
            for number, sock in enumerate(socks):
                with contextlib.suppress(BlockingIOError):
                    left[number] = left[number][sock.send(left[number][: 1 << 20]) :]
        for sock in socks:
            sock.settimeout(PATIENCE_S)
            assert sock.recv(4)
