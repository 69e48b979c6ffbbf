"""Test a broker process against hostile clients: it keeps running, with bounded memory, and stays
responsive for other clients.

After every test the fixture `guarded` asserts that the control client, which produces and fetches
all the time, makes progress; that memory has not grown; that all descriptors are released; and that
no unexpected error was logged. test_fuzz sends corrupted requests in large numbers.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import socket
import struct
import threading
import time
import urllib.request
from pathlib import Path
from random import Random

import pytest

from kserver.api.table import SERVED
from kserver.errors import ErrorCode
from kserver.metrics.catalog import WAITING
from kserver.wire import varint
from kserver.wire.api_key import ApiKey
from kserver.wire.batch import batches, encode_records
from kserver.wire.codec import write_request
from kserver.wire.compression import Compression, compress
from kserver.wire.versions import request
from tests.contract.api.calls import (
    Topic,
    batch,
    fetch,
    fetch_fields,
    produce,
    produce_fields,
    topic_id,
)
from tests.support import hostile
from tests.support.brokers import create_topic, until
from tests.support.hostile import Known
from tests.support.process import BrokerProcess
from tests.support.wire_client import WireClient, build, milliseconds

GROWTH_LIMIT_BYTES = ((min(32, (os.cpu_count() or 1) + 4) + 2) << 4) << 20
"""Allowed growth of the broker's memory.

A stored batch may decompress to 16 MiB, and malloc keeps freed memory per thread. The limit is 16
MiB for each thread of the pool, plus 32 MiB for everything else.
"""
PATIENCE_S = 30
"""Timeout of one response; long enough for a busy machine."""
A_MONTH_MS = 2**31 - 1
METRICS_ON = re.compile(r"metrics on http://([^/]+)/metrics")
API_VERSIONS_V0 = struct.pack(">ihhih", 10, 18, 0, 7, -1)
TOPICS = {
    "plain": {},
    "gzip": {"compression_type": "gzip"},
    "zstd": {"compression_type": "zstd"},
    "header": {"validate_records": "header"},
    "compacted": {"cleanup_policy": "compact"},
}

STORED = [f"stored-{codec.name}" for codec in Compression if codec]
PREY = ["prey-1", "prey-2"]
"""Topics for corrupted requests to name; some of these requests delete them."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    settings = {
        "auto.create.topics.enable": "false",
        "connections.max.idle.ms": 600_000,
        "http.listener": "127.0.0.1:0",
    }
    with BrokerProcess(tmp_path_factory.mktemp("broker"), settings) as broker:
        for name, config in TOPICS.items():
            create_topic(broker.address, name, 2, **config)
        for name in ("control", *PREY):
            create_topic(broker.address, name)
        for name in STORED:
            create_topic(broker.address, name, validate_records="header")
        warm(broker)
        yield broker


def known_to(broker, names):
    with WireClient(broker.address) as client:
        return Known(list(names), [topic_id(client, name) for name in names])


@pytest.fixture(scope="module")
def known(broker):
    return known_to(broker, TOPICS)


def warm(broker):
    """Load the messages of every API version, which happens at first use and must not count as
    memory growth.

    Some requests are answered, some close the connection, some wait. The response to the last
    request shows that all of them have been processed.
    """
    random = Random(0)
    with contextlib.ExitStack() as sockets:
        for key, versions in SERVED.items():
            for version in versions:
                frame = hostile.random_request(
                    random, key, version, Known(["absent"], [hostile.ZERO_ID])
                )
                sock = sockets.enter_context(connected(broker))
                sock.sendall(struct.pack(">i", len(frame)) + frame)
        with WireClient(broker.address) as client:
            client.call(ApiKey.METADATA, 1, topics=[])


@pytest.fixture(autouse=True)
def guarded(broker):
    """Assert, after each test, that the broker is running and healthy."""
    with Control(broker) as control:
        clear_peak(broker.pid)
        memory, open_before = rss_bytes(broker.pid), connections(broker.pid)
        lines = len(broker.output)
        yield control
        control.one_more()
    assert broker.process.poll() is None, "".join(broker.output[-20:])
    assert rss_bytes(broker.pid, "VmHWM") - memory < GROWTH_LIMIT_BYTES
    deadline = time.monotonic() + PATIENCE_S
    while connections(broker.pid) > open_before:
        assert time.monotonic() < deadline, "connections are not given back"
        time.sleep(0.05)
    told = broker.output[lines:]
    assert not any("Traceback" in line or "internal error" in line for line in told), "".join(told)


class Control:
    """A well-behaved client that produces and fetches in a thread."""

    def __init__(self, broker):
        self._broker = broker
        self._stop = threading.Event()
        self._done = 0
        self._changed = threading.Condition()
        self._error = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self):
        try:
            with WireClient(self._broker.address, timeout_s=PATIENCE_S) as client:
                topic = Topic("control", topic_id(client, "control"))
                for number in itertools.count():
                    value = b"control %d" % number
                    produced = produce(client, 9, topic, batch(value))
                    assert produced.error_code is ErrorCode.none
                    fetched = fetch(client, 12, topic, produced.base_offset)
                    (one,) = batches(fetched.records)
                    assert [record.value for record in one.records()] == [value]
                    with self._changed:
                        self._done += 1
                        self._changed.notify_all()
                    if self._stop.wait(0.01):
                        return
        except BaseException as error:
            self._error = error
            with self._changed:
                self._changed.notify_all()

    def one_more(self):
        """Wait for a round that began after this call."""
        with self._changed:
            aim = self._done + 2
            assert self._changed.wait_for(
                lambda: self._done >= aim or self._error is not None, PATIENCE_S
            )


@contextlib.contextmanager
def connected(broker):
    with socket.create_connection(("127.0.0.1", broker.port), PATIENCE_S) as sock:
        yield sock


def until_closed(sock, patience_s=PATIENCE_S):
    """Return the bytes received until the broker closes the connection, or None on a timeout."""
    sock.settimeout(patience_s)
    received = b""
    try:
        while data := sock.recv(1 << 16):
            received += data
    except TimeoutError:
        return None
    except ConnectionResetError:
        pass
    return received


def rss_bytes(pid, which="VmRSS"):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"{which}:\s+(\d+) kB", status)[1]) * 1024


def clear_peak(pid):
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def connections(pid):
    """Return the number of sockets that the process has open."""
    count = 0
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed in the meantime
            count += str(path.readlink()).startswith("socket:")
    return count


def waiting(broker):
    """Return the number of requests that wait for records, for the disk or for a timeout."""
    (address,) = (match[1] for line in broker.output if (match := METRICS_ON.search(line)))
    with urllib.request.urlopen(f"http://{address}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    (value,) = (line.split()[1] for line in lines if line.startswith(WAITING.exposed() + " "))
    return float(value)


# Frames


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, (100 << 20) + 1])
def test_a_length_that_no_request_may_have_closes_at_once(broker, size):
    with connected(broker) as sock:
        sock.sendall(struct.pack(">i", size))
        assert until_closed(sock) == b""


def test_other_protocols_are_closed(broker):
    for data in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", b"SSH-2.0-x\r\n" * 9):
        with connected(broker) as sock:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            assert until_closed(sock) == b""


def test_clients_that_leave_within_a_frame_leave_nothing(broker):
    frame = write_request(request(ApiKey.METADATA, 1)(topics=None), 1, "x")
    for end in range(len(frame) + 1):
        with connected(broker) as sock:
            sock.sendall(frame[:end])
    large = struct.pack(">i", 50 << 20) + bytes(1 << 20)
    for _ in range(20):
        with connected(broker) as sock:
            sock.sendall(large)


def test_slow_senders_hold_nobody_up(broker, guarded):
    """A hundred connections send one byte at a time; each still gets its response."""
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(connected(broker)) for _ in range(100)]
        for at in range(len(API_VERSIONS_V0)):
            for sock in socks:
                sock.sendall(API_VERSIONS_V0[at : at + 1])
            guarded.one_more()
        for sock in socks:
            assert sock.recv(1 << 16)[4:8] == struct.pack(">i", 7)


@pytest.mark.parametrize("claimed", [90 << 20, 3 << 20])
def test_a_thousand_claims_take_no_memory(broker, claimed):
    """CVE-2022-34917: before authentication, only bytes that were received may use memory."""
    with contextlib.ExitStack() as stack:
        for _ in range(1000):
            sock = stack.enter_context(connected(broker))
            sock.sendall(struct.pack(">i", claimed) + bytes(1000))
        # All of them have been read once a later connection gets its response.
        with WireClient(broker.address) as client:
            client.call(18, 0)
        assert connections(broker.pid) > 1000


def test_a_thousand_parked_fetches_that_are_left_cost_nothing(broker, known):
    topic = Topic(known.names[0], known.ids[0])
    fields = fetch_fields(12, topic, {1: 0}, max_wait_ms=A_MONTH_MS, min_bytes=1 << 30)
    with contextlib.ExitStack() as stack:
        for _ in range(1000):
            client = stack.enter_context(WireClient(broker.address))
            client.send(ApiKey.FETCH, 12, **fields)
        until(lambda: waiting(broker) >= 1000)
        assert connections(broker.pid) > 1000
    until(lambda: waiting(broker) == 0)


def test_a_reader_that_never_reads_is_not_served_on(broker, known):
    """Requests a gigabyte of responses and reads none of them."""
    topic = Topic("plain", known.ids[0])
    with WireClient(broker.address) as client:
        records = batch(Random(0).randbytes(900_000))
        first = produce(client, 9, topic, records).base_offset
    fields = fetch_fields(12, topic, {0: first})
    ask = write_request(build(request(ApiKey.FETCH, 12), fields), 1, None)
    with connected(broker) as sock:
        sock.settimeout(1)
        with contextlib.suppress(TimeoutError):
            for _ in range(1000):
                sock.sendall(ask)
        with WireClient(broker.address) as client:
            client.call(18, 0)


# Requests


@pytest.mark.parametrize("key", SERVED)
def test_spoilt_requests_are_answered_or_closed(broker, key):
    """A sample through real sockets; test_fuzz sends thousands."""
    random = Random(key)
    known = known_to(broker, PREY)
    for version in SERVED[key]:
        for number in range(6):
            frame = hostile.random_request(random, key, version, known)
            if number:
                frame = hostile.spoilt(random, frame)
            with connected(broker) as sock:
                sock.sendall(struct.pack(">i", len(frame)) + frame)
                sock.shutdown(socket.SHUT_WR)
                # A waiting fetch ends when its client disconnects.
                until_closed(sock, 0.5)


@pytest.mark.parametrize("flexible", [False, True])
def test_an_array_may_claim_any_length(broker, flexible):
    """20 bytes that ask for memory for two billion elements."""
    for key, versions in SERVED.items():
        version = versions[-1] if flexible else versions[0]
        count = varint.encode_unsigned(2**31) if flexible else struct.pack(">i", 2**31 - 1)
        head = struct.pack(">hhih", key, version, 1, -1) + (b"\0" if flexible else b"")
        for at in range(12):
            frame = head + bytes(at) + count
            with connected(broker) as sock:
                sock.sendall(struct.pack(">i", len(frame)) + frame)
                sock.shutdown(socket.SHUT_WR)
                until_closed(sock, 0.5)


# Batches


@pytest.mark.parametrize("name", TOPICS)
def test_spoilt_batches_are_answered(broker, known, name):
    random = Random(name)
    topic = Topic(name, known.ids[known.names.index(name)])
    with WireClient(broker.address, timeout_s=PATIENCE_S) as client:
        for _ in range(200):
            data = hostile.spoilt(random, hostile.random_batch(random))
            answer = produce(client, 9, topic, hostile.with_right_crc(data))
            assert answer.error_code is not ErrorCode.unknown_server_error


def packed(codec, body, count):
    """Return a compressed batch with these bytes as its records; its header is correct."""
    head = struct.pack(">hiqqqhii", codec, count - 1, 1000, 1000, -1, -1, -1, count)
    rest = head + body
    frame = struct.pack(">qiibI", 0, len(rest) + 9, -1, 2, 0) + rest
    return hostile.with_right_crc(frame)


def zeros(codec):
    """Return one record whose value is 20 MiB of zeros with snappy, 100 MiB with other codecs."""
    size = 20 << 20 if codec is Compression.snappy else 100 << 20
    return compress(codec, encode_records([(1000, b"k", bytes(size), ())])), 1


def crumbs(codec):
    """Return as many of the smallest records as fit into one request."""
    count = 150_000
    while True:
        body = compress(codec, encode_records([(1000, b"", None, ())] * count))
        if len(body) < 1_000_000:
            return body, count
        count //= 2


def many(codec):
    """Return one record and, for the header, a count of 2**31 - 1."""
    return compress(codec, encode_records([(1000, b"", None, ())])), 2**31 - 1


def claims(codec):
    """Return data that claims a gigabyte: in its first bytes, or in blocks that repeat one byte."""
    match codec:
        case Compression.snappy:
            return varint.encode_unsigned(2**32 - 1) + b"\0a", 1
        case Compression.zstd:
            head = struct.pack("<IBB", 0xFD2FB528, 0, ZSTD_WINDOW_OF_2_GB)
            block = (128 << 10 << 3 | 1 << 1).to_bytes(3, "little") + b"a"
            return head + block * 8192, 1
        case Compression.lz4:
            part = compress(codec, bytes(32 << 20))
            return part * 7, 1
    return compress(codec, bytes(32 << 20)) * 30, 1


ZSTD_WINDOW_OF_2_GB = 21 << 3
REFUSED = {
    ErrorCode.corrupt_message,
    ErrorCode.invalid_record,
    ErrorCode.message_too_large,
}


@pytest.mark.parametrize("codec", [c for c in Compression if c])
@pytest.mark.parametrize("bomb", [zeros, crumbs, many, claims], ids=lambda bomb: bomb.__name__)
def test_a_bomb_is_refused_or_looked_at_within_the_bound(broker, known, bomb, codec):
    """CVE-2023-34455: where the broker must decompress a batch, a small one may expand
    enormously."""
    body, count = bomb(codec)
    data = packed(codec, body, count)
    assert len(data) < 1 << 20
    with WireClient(broker.address, timeout_s=PATIENCE_S) as client:
        for name in ("gzip", "zstd", "plain", "compacted"):
            if name == codec.name:
                continue  # stored without decompression
            topic = Topic(name, known.ids[known.names.index(name)])
            error = produce(client, 9, topic, data).error_code
            assert error in REFUSED or (bomb is crumbs and error is ErrorCode.none)


@pytest.mark.parametrize("codec", [c for c in Compression if c])
def test_a_bomb_that_was_stored_is_looked_through_within_the_bound(broker, codec):
    """Accepted where only the header is validated; a timestamp lookup decompresses it."""
    with WireClient(broker.address, timeout_s=PATIENCE_S) as client:
        for bomb in (zeros, crumbs, claims):
            name = f"stored-{codec.name}"
            topic = Topic(name, topic_id(client, name))
            body, count = bomb(codec)
            assert produce(client, 9, topic, packed(codec, body, count)).error_code.value == 0
            for timestamp in (0, 1000, -3):
                partitions = [{"partition_index": 0, "timestamp": timestamp}]
                topics = [{"name": name, "partitions": partitions}]
                answer = client.call(ApiKey.LIST_OFFSETS, 7, replica_id=-1, topics=topics)
                error = answer.topics[0].partitions[0].error_code
                assert error in {ErrorCode.none, ErrorCode.corrupt_message}


# Names

BAD_NAMES = (
    "",
    ".",
    "..",
    "../../escaped",
    "/etc/escaped",
    "a/b",
    "a\0b",
    "a\nb",
    "\x1b[2J\x1b[31mescaped",
    "\u202eescaped",
    "\u2028",
    "t" * 250,
    "\u00fc" * 125,
    "%s%n",
    "${jndi:ldap://x}",
    "a b",
    "__cluster_metadata",
)


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_leaves_neither_its_directory_nor_its_line(broker, name, tmp_path):
    """The name of a topic, in every request that has one, or the client id."""
    before = directories(broker)
    lines = len(broker.output)
    with WireClient(broker.address, client_id=name) as client:
        topics = [{"name": name, "num_partitions": 1, "replication_factor": 1}]
        answer = client.call(ApiKey.CREATE_TOPICS, 5, topics=topics, timeout=milliseconds(9000))
        assert answer.topics[0].error_code in REFUSED_NAMES
        asked = client.call(
            ApiKey.METADATA, 9, topics=[{"name": name}], allow_auto_topic_creation=True
        )
        assert asked.topics[0].error_code in REFUSED_NAMES
        topic = Topic(name, hostile.ZERO_ID)
        refused = produce(client, 9, topic, batch(b"a")).error_code
        assert refused in REFUSED_NAMES
        assert fetch(client, 12, topic, 0).error_code in REFUSED_NAMES
        # With acks=0 there is no response: the broker logs the error and closes the connection.
        client.send(ApiKey.PRODUCE, 9, **produce_fields(9, topic, {0: batch(b"a")}, acks=0))
        assert client.is_closed()
    with WireClient(broker.address) as client:
        partitions = [{"partition_index": 0, "timestamp": -1}]
        topics = [{"name": name, "partitions": partitions}]
        answer = client.call(ApiKey.LIST_OFFSETS, 7, replica_id=-1, topics=topics)
        assert answer.topics[0].partitions[0].error_code in REFUSED_NAMES
    assert directories(broker) <= before
    for line in broker.output[lines:]:
        assert LOG_LINE.fullmatch(line), line


LOG_LINE = re.compile(r"\[[-0-9 :,]+\] [A-Z]+ [ -~]*\n")
REFUSED_NAMES = {
    ErrorCode.invalid_topic_exception,
    ErrorCode.invalid_request,
    ErrorCode.unknown_topic_or_partition,
}


def directories(broker):
    """Return all directories except the control topic's and those that await removal."""
    found = {os.path.join(at, one) for at, below, _ in os.walk(broker.directory) for one in below}
    found |= set(map(str, broker.directory.parent.glob("escaped*")))
    return {path for path in found if "control" not in path and not path.endswith("-delete")}


def test_a_group_or_transaction_may_have_any_name(broker):
    for name in BAD_NAMES:
        with WireClient(broker.address, client_id=name) as client:
            answer = client.call(ApiKey.FIND_COORDINATOR, 3, key=name, key_type=0)
            assert isinstance(answer.error_code, ErrorCode)
            timeout = milliseconds(1000)
            client.call(
                ApiKey.INIT_PRODUCER_ID, 2, transactional_id=name, transaction_timeout=timeout
            )
