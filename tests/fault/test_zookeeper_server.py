"""Test this project's ZooKeeper server when it is killed: acknowledged writes and sessions
survive."""

from __future__ import annotations

import signal
import threading

import pytest

from kserver.zookeeper_server.jute import (
    AclRecord,
    CreateRequest,
    Err,
    EventType,
    GetDataResponse,
    NamesResponse,
    OpCode,
    PathResponse,
    ReadRequest,
    StatResponse,
)
from tests.support.zookeeper_client import RawClient
from tests.support.zookeeper_server import OwnZooKeeperServer

OPEN = (AclRecord(31, "world", "anyone"),)
PERSISTENT, EPHEMERAL = 0, 1
PATIENCE_S = 60
CLIENTS, AHEAD, ANSWERS = 4, 10, 400


@pytest.fixture
def server(tmp_path):
    with OwnZooKeeperServer(tmp_path) as server:
        yield server


class Creator(threading.Thread):
    """Creates nodes, several in flight, until its server ends; every other node is ephemeral."""

    def __init__(self, address: str, number: int, answered: threading.Semaphore) -> None:
        super().__init__()
        self.client = RawClient(address).connect(timeout_ms=60_000)
        self.number = number
        self.answered = answered
        self.made: list[str] = []
        self.zxid = 0

    def run(self) -> None:
        sent = 0
        try:
            while True:
                while sent < len(self.made) + AHEAD:
                    path = f"/{self.number}-{sent}"
                    self.client.send(OpCode.CREATE, CreateRequest(path, b"x", OPEN, sent % 2))
                    sent += 1
                reply = self.client.reply()
                self.made.append(reply.record(PathResponse).path)
                self.zxid = reply.zxid
                self.answered.release()
        except ConnectionError:
            pass


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_that_was_answered_is_lost(server, end):
    answered = threading.Semaphore(0)
    creators = [Creator(server.address, number, answered) for number in range(CLIENTS)]
    for creator in creators:
        creator.start()
    for _ in range(ANSWERS):
        answered.acquire()
    server.process.send_signal(end)
    assert server.process.wait(PATIENCE_S) == (0 if end == signal.SIGTERM else -end)
    for creator in creators:
        creator.join()
        creator.client.close()
    server.start()
    for creator in creators:
        _, timeout_ms, session, password = creator.client.session
        again = RawClient(server.address).connect(session, password, 60_000, creator.zxid)
        assert again.session[1:] == (timeout_ms, session, password)
        there = again.call(OpCode.GET_CHILDREN, ReadRequest("/", False)).record(NamesResponse).names
        assert {path[1:] for path in creator.made} <= set(there)
        owners = {
            again.call(OpCode.EXISTS, ReadRequest(path, False)).record(StatResponse)
            .stat.ephemeral_owner
            for path in creator.made[1::2]
        }  # fmt: skip
        assert owners == {session}
        assert again.call(OpCode.CREATE, CreateRequest("/more", b"", OPEN, EPHEMERAL)).zxid > (
            creator.zxid
        )
        assert again.call(OpCode.CLOSE_SESSION).err == Err.OK
        again.close()
    with_nobody = RawClient(server.address).connect()
    left = with_nobody.call(OpCode.GET_CHILDREN, ReadRequest("/", False)).record(NamesResponse)
    assert {name for name in left.names if name.partition("-")[2].isdigit()} <= {
        f"{creator.number}-{n}"
        for creator in creators
        for n in range(0, len(creator.made) + AHEAD, 2)
    }
    with_nobody.close()


def test_a_session_that_does_not_come_back_ends_after_the_start_too(server):
    gone = RawClient(server.address).connect(timeout_ms=1_000)
    # Both are sent at once, so that the session cannot expire between them on a slow disk.
    gone.send(OpCode.CREATE, CreateRequest("/passing", b"", OPEN, EPHEMERAL))
    gone.send(OpCode.CREATE, CreateRequest("/lasting", None, OPEN, PERSISTENT))
    assert (gone.reply().err, gone.reply().err) == (Err.OK, Err.OK)
    server.kill()
    gone.close()
    server.start()
    client = RawClient(server.address).connect(timeout_ms=60_000)
    reply = client.call(OpCode.EXISTS, ReadRequest("/passing", True))
    if reply.err == Err.OK:  # the session may have expired before this client connected
        assert client.event()[::2] == (EventType.DELETED, "/passing")
    assert client.call(OpCode.EXISTS, ReadRequest("/passing", False)).err == Err.NO_NODE
    kept = client.call(OpCode.GET_DATA, ReadRequest("/lasting", False)).record(GetDataResponse)
    assert kept.data is None
    client.close()


def test_access_lists_outlive_the_server(server):
    client = RawClient(server.address).connect()
    grants = (AclRecord(1, "world", "anyone"),)
    client.call(OpCode.CREATE, CreateRequest("/guarded", b"x", grants, PERSISTENT))
    server.kill()
    client.close()
    server.start()
    client = RawClient(server.address).connect()
    kept = client.call(OpCode.GET_DATA, ReadRequest("/guarded", False)).record(GetDataResponse)
    assert kept.data == b"x"
    request = CreateRequest("/guarded/a", b"", OPEN, PERSISTENT)
    assert client.call(OpCode.CREATE, request).err == Err.NO_AUTH
    client.close()
