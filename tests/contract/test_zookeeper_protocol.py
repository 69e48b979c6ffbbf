"""Test ZooKeeper's protocol at the level of bytes, with the same tests for Apache's server and
ours."""

from __future__ import annotations

import itertools
import re
import struct

import pytest

from kserver.zookeeper_server import acl
from kserver.zookeeper_server.jute import (
    AclRecord,
    AuthPacket,
    ClientInfo,
    Create2Response,
    CreateRequest,
    Err,
    ErrorResponse,
    EventType,
    GetAclResponse,
    GetChildren2Response,
    GetDataResponse,
    MultiHeader,
    NamesResponse,
    NumberResponse,
    OpCode,
    PathRequest,
    PathResponse,
    ReadRequest,
    SetAclRequest,
    SetDataRequest,
    SetWatches,
    SetWatches2,
    StatResponse,
    VersionedRequest,
    WatcherEvent,
    WatchRequest,
    WhoAmIResponse,
    multi,
)
from tests.support.zookeeper_client import RawClient
from tests.support.zookeeper_server import OwnZooKeeperServer, ZooKeeperServer

OPEN = (AclRecord(31, "world", "anyone"),)
PERSISTENT, EPHEMERAL, SEQUENCE = 0, 1, 2
CONNECTED = 3
NAMES = itertools.count()


@pytest.fixture(scope="module", params=[ZooKeeperServer, OwnZooKeeperServer])
def server(request, tmp_path_factory):
    with request.param(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def connect(server):
    clients = []

    def connected(**options):
        clients.append(RawClient(server.address).connect(**options))
        return clients[-1]

    yield connected
    for client in clients:
        client.close()


@pytest.fixture
def client(connect):
    return connect()


@pytest.fixture
def root(client):
    """Path of a new node for the test."""
    path = f"/test-{next(NAMES)}"
    create(client, path)
    return path


def create(client, path, data=b"", flags=PERSISTENT, grants=OPEN):
    made = client.call(OpCode.CREATE, CreateRequest(path, data, grants, flags))
    return made.record(PathResponse).path


def event(kind, path):
    return WatcherEvent(kind, CONNECTED, path)


def names(client, path, *, watch=False):
    return client.call(OpCode.GET_CHILDREN, ReadRequest(path, watch)).record(NamesResponse).names


def stat(client, path, *, watch=False):
    return client.call(OpCode.EXISTS, ReadRequest(path, watch)).record(StatResponse).stat


def operations(*ops):
    return multi((MultiHeader(kind, False, -1), record) for kind, record in ops)


def test_a_tree_begins_as_zookeepers(client):
    assert "zookeeper" in names(client, "/")
    assert sorted(names(client, "/zookeeper")) == ["config", "quota"]


def test_requests_of_one_client_take_effect_in_their_order(client, root):
    """A read is not overtaken by a later change, even if both arrive at once."""
    for number in range(50):
        client.send(OpCode.SET_DATA, SetDataRequest(root, b"%d" % number, number))
        client.send(OpCode.GET_DATA, ReadRequest(root, False))
    last = 0
    for number in range(50):
        changed, read = client.reply(), client.reply()
        assert changed.record(StatResponse).stat.version == number + 1
        assert read.record(GetDataResponse).data == b"%d" % number
        assert last < changed.zxid == read.zxid
        last = changed.zxid
        assert read.xid == changed.xid + 1


def test_an_event_comes_before_the_answer_that_shows_its_change(connect, client, root):
    other = connect()
    assert names(client, root, watch=True) == ()
    made = create(other, f"{root}/a")
    # The response to a read that sees the change comes after the event.
    client.send(OpCode.GET_CHILDREN, ReadRequest(root, False))
    assert client.event() == event(EventType.CHILDREN, root)
    assert client.reply().record(NamesResponse).names == ("a",)
    stat(client, made, watch=True)
    client.send(OpCode.SET_DATA, SetDataRequest(made, b"x", -1))
    assert client.event() == event(EventType.CHANGED, made)
    assert client.reply().err == Err.OK


def test_whoever_watches_twice_is_told_of_the_end_once(client, root):
    path = create(client, f"{root}/a")
    stat(client, path, watch=True)
    names(client, path, watch=True)
    client.send(OpCode.DELETE, VersionedRequest(path, -1))
    assert client.event() == event(EventType.DELETED, path)
    assert client.reply().err == Err.OK


def test_a_created_node_comes_with_its_stat(client, root):
    made = client.call(OpCode.CREATE2, CreateRequest(f"{root}/n-", b"ab", OPEN, SEQUENCE))
    path, told = made.record(Create2Response)
    assert path == f"{root}/n-0000000000"
    assert told == stat(client, path)
    assert told.czxid == made.zxid
    assert (told.data_length, told.cversion, told.aversion) == (2, 0, 0)


def test_no_data_is_told_from_empty_data(client, root):
    for data in (None, b""):
        client.call(OpCode.SET_DATA, SetDataRequest(root, data, -1)).record(StatResponse)
        answer = client.call(OpCode.GET_DATA, ReadRequest(root, False)).record(GetDataResponse)
        assert answer.data == data
        assert answer.stat.data_length == 0


def test_children_come_with_their_parents_stat(client, root):
    create(client, f"{root}/a")
    found = client.call(OpCode.GET_CHILDREN2, ReadRequest(root, False))
    assert found.record(GetChildren2Response) == (("a",), stat(client, root))
    create(client, f"{root}/a/b")
    number = client.call(OpCode.GET_ALL_CHILDREN_NUMBER, PathRequest(root))
    assert number.record(NumberResponse).number == 2


def test_ephemeral_nodes_are_told_by_prefix(client, root):
    for name in ("b", "a"):
        create(client, f"{root}/{name}", flags=EPHEMERAL)
    found = client.call(OpCode.GET_EPHEMERALS, PathRequest(root)).record(NamesResponse)
    assert sorted(found.names) == [f"{root}/a", f"{root}/b"]
    found = client.call(OpCode.GET_EPHEMERALS, PathRequest("/nowhere")).record(NamesResponse)
    assert found.names == ()


@pytest.mark.parametrize(
    ("kind", "record", "error"),
    [
        (OpCode.CREATE, CreateRequest("{}/x/y", b"", OPEN, 0), Err.NO_NODE),
        (OpCode.CREATE, CreateRequest("{}", b"", OPEN, 0), Err.NODE_EXISTS),
        (OpCode.CREATE, CreateRequest("/", b"", OPEN, 0), Err.NODE_EXISTS),
        (OpCode.CREATE, CreateRequest("{}/a", b"", (), 0), Err.INVALID_ACL),
        (OpCode.CREATE, CreateRequest("{}/a", b"", (AclRecord(31, "auth", ""),), 0), -114),
        (OpCode.CREATE, CreateRequest("{}/a/", b"", OPEN, 0), None),
        (OpCode.CREATE, CreateRequest("relative", b"", OPEN, 0), Err.BAD_ARGUMENTS),
        (OpCode.CREATE, CreateRequest("{}/../a", b"", OPEN, 0), None),
        (OpCode.CREATE_CONTAINER, CreateRequest("{}/a", b"", OPEN, 4), None),
        (OpCode.DELETE, VersionedRequest("{}", 7), Err.BAD_VERSION),
        (OpCode.DELETE, VersionedRequest("{}/x", -1), Err.NO_NODE),
        (OpCode.DELETE, VersionedRequest("/", -1), Err.BAD_ARGUMENTS),
        (OpCode.DELETE, VersionedRequest("/zookeeper/quota", -1), Err.BAD_ARGUMENTS),
        (OpCode.SET_DATA, SetDataRequest("{}", b"", 7), Err.BAD_VERSION),
        (OpCode.SET_DATA, SetDataRequest("{}/x", b"", -1), Err.NO_NODE),
        (OpCode.SET_ACL, SetAclRequest("{}", OPEN, 7), Err.BAD_VERSION),
        (OpCode.SET_ACL, SetAclRequest("{}/x", OPEN, -1), Err.NO_NODE),
        (OpCode.EXISTS, ReadRequest("{}/x", False), Err.NO_NODE),
        (OpCode.GET_DATA, ReadRequest("{}/x", True), Err.NO_NODE),
        (OpCode.GET_CHILDREN, ReadRequest("{}/x", True), Err.NO_NODE),
        (OpCode.GET_CHILDREN2, ReadRequest("{}/x", True), Err.NO_NODE),
        (OpCode.GET_ACL, PathRequest("{}/x"), Err.NO_NODE),
        (OpCode.CHECK_WATCHES, WatchRequest("{}", 3), Err.NO_WATCHER),
        (OpCode.REMOVE_WATCHES, WatchRequest("{}", 3), Err.NO_WATCHER),
    ],
)
def test_what_is_refused_says_why(server, client, root, kind, record, error):
    if error is None and isinstance(server, OwnZooKeeperServer):
        error = Err.UNIMPLEMENTED if kind == OpCode.CREATE_CONTAINER else Err.BAD_ARGUMENTS
    reply = client.call(kind, record._replace(path=record.path.format(root)))
    if error is not None:
        assert reply.err == error
    assert client.ping().err == Err.OK


def test_ttl_nodes_are_refused(client, root):
    client.send(OpCode.CREATE_TTL, CreateRequest(f"{root}/a", b"", OPEN, 5), NumberResponse(0),
                NumberResponse(1000))  # fmt: skip
    assert client.reply().err == Err.UNIMPLEMENTED


def test_a_multi_answers_for_each(client, root):
    ops = operations(
        (OpCode.CREATE, CreateRequest(f"{root}/a", b"1", OPEN, 0)),
        (OpCode.CREATE2, CreateRequest(f"{root}/b-", b"", OPEN, SEQUENCE)),
        (OpCode.SET_DATA, SetDataRequest(f"{root}/a", b"2", 0)),
        (OpCode.CHECK, VersionedRequest(f"{root}/a", 1)),
        (OpCode.DELETE, VersionedRequest(f"{root}/a", 1)),
    )
    reply = client.call(OpCode.MULTI, *ops)
    results = reply.results(t1=PathResponse, t15=Create2Response, t5=StatResponse)
    assert [header for header, _ in results] == [
        MultiHeader(k, False, 0) for k in (1, 15, 5, 13, 2)
    ]
    assert results[0][1] == PathResponse(f"{root}/a")
    assert results[1][1] == (f"{root}/b-0000000001", stat(client, f"{root}/b-0000000001"))
    assert results[2][1].stat.version == 1
    assert names(client, root) == ("b-0000000001",)


def test_a_multi_that_fails_says_where(client, root):
    ops = operations(
        (OpCode.CREATE, CreateRequest(f"{root}/a", b"1", OPEN, 0)),
        (OpCode.CHECK, VersionedRequest(root, 9)),
        (OpCode.CREATE, CreateRequest(f"{root}/b", b"1", OPEN, 0)),
    )
    reply = client.call(OpCode.MULTI, *ops)
    assert reply.err == Err.OK
    codes = [Err.OK, Err.BAD_VERSION, Err.RUNTIME_INCONSISTENCY]
    assert reply.results(t_1=ErrorResponse) == [
        (MultiHeader(OpCode.ERROR, False, code), ErrorResponse(code)) for code in codes
    ]
    assert names(client, root) == ()


def test_a_multi_read_answers_for_each(client, root):
    create(client, f"{root}/a", b"x")
    ops = operations(
        (OpCode.GET_CHILDREN, ReadRequest(root, False)),
        (OpCode.GET_DATA, ReadRequest(f"{root}/a", False)),
        (OpCode.GET_DATA, ReadRequest(f"{root}/b", False)),
    )
    children, data, nothing = client.call(OpCode.MULTI_READ, *ops).results(
        t8=NamesResponse, t4=GetDataResponse, t_1=ErrorResponse
    )
    assert children[1] == NamesResponse(("a",))
    assert data[1].data == b"x"
    assert nothing == (MultiHeader(-1, False, Err.NO_NODE), ErrorResponse(Err.NO_NODE))


def test_a_digest_guards_a_node(connect, client, root):
    def proven(secret):
        client = connect()
        client.send(OpCode.AUTH, AuthPacket(0, "digest", secret), xid=-4)
        assert client.reply()[:3] == (-4, 0, Err.OK)
        return client

    owner, other = proven(b"kafka:secret"), proven(b"kafka:guess")
    grants = (AclRecord(31, "auth", ""), AclRecord(1, "world", "anyone"))
    path = create(owner, f"{root}/a", b"x", grants=grants)
    hashed = acl.digest("kafka:secret").id
    told = owner.call(OpCode.GET_ACL, PathRequest(path)).record(GetAclResponse)
    assert told.acl == (AclRecord(31, "digest", hashed), AclRecord(1, "world", "anyone"))
    assert told.stat.aversion == 0
    hidden = other.call(OpCode.GET_ACL, PathRequest(path)).record(GetAclResponse)
    assert hidden.acl[0] == AclRecord(31, "digest", "kafka:x")

    for stranger in (client, other):
        data = stranger.call(OpCode.GET_DATA, ReadRequest(path, False)).record(GetDataResponse)
        assert data.data == b"x"
        for kind, record in (
            (OpCode.SET_DATA, SetDataRequest(path, b"y", -1)),
            (OpCode.SET_ACL, SetAclRequest(path, OPEN, -1)),
            (OpCode.CREATE, CreateRequest(f"{path}/b", b"", OPEN, 0)),
        ):
            assert stranger.call(kind, record).err == Err.NO_AUTH
    create(owner, f"{path}/b")
    # The right to delete children of the parent is enough to delete the node; the node's own ACL
    # does not matter.
    assert client.call(OpCode.DELETE, VersionedRequest(f"{path}/b", -1)).err == Err.NO_AUTH
    secret = (AclRecord(31, "digest", hashed),)
    changed = owner.call(OpCode.SET_ACL, SetAclRequest(path, secret, 0)).record(StatResponse)
    assert (changed.stat.aversion, changed.stat.version) == (1, 0)
    for kind in (OpCode.GET_DATA, OpCode.EXISTS, OpCode.GET_CHILDREN):
        assert client.call(kind, ReadRequest(path, True)).err == Err.NO_AUTH
    assert client.call(OpCode.GET_ACL, PathRequest(path)).err == Err.NO_AUTH
    assert owner.call(OpCode.SET_ACL, SetAclRequest(path, secret, 0)).err == Err.BAD_VERSION
    told = owner.call(OpCode.WHO_AM_I).record(WhoAmIResponse)
    assert ClientInfo("digest", "kafka") in told.infos


def test_a_scheme_that_is_not_known_ends_the_connection(connect):
    client = connect()
    client.send(OpCode.AUTH, AuthPacket(0, "magic", b"x"), xid=-4)
    assert client.reply()[:3] == (-4, 0, Err.AUTH_FAILED)
    assert client.is_cut_off()


def test_lasting_and_recursive_watches(connect, client, root):
    watcher = connect()
    assert watcher.call(OpCode.ADD_WATCH, WatchRequest(root, 1)).err == Err.OK
    path = create(client, f"{root}/a")
    client.call(OpCode.SET_DATA, SetDataRequest(path, b"", -1))
    client.call(OpCode.SET_DATA, SetDataRequest(path, b"", -1))
    for kind in (EventType.CREATED, EventType.CHANGED, EventType.CHANGED):
        assert watcher.event() == event(kind, path)
    assert watcher.call(OpCode.REMOVE_WATCHES, WatchRequest(root, 3)).err == Err.OK
    assert watcher.call(OpCode.ADD_WATCH, WatchRequest(root, 0)).err == Err.OK
    client.call(OpCode.SET_DATA, SetDataRequest(path, b"", -1))
    client.call(OpCode.DELETE, VersionedRequest(path, -1))
    client.call(OpCode.SET_DATA, SetDataRequest(root, b"", -1))
    assert watcher.event() == event(EventType.CHILDREN, root)
    assert watcher.event() == event(EventType.CHANGED, root)


def test_after_a_lost_connection_the_client_is_told_what_it_missed(connect, client, root):
    for name in ("same", "changed", "gone"):
        create(client, f"{root}/{name}")
    seen = client.ping().zxid
    client.call(OpCode.SET_DATA, SetDataRequest(f"{root}/changed", b"", -1))
    client.call(OpCode.DELETE, VersionedRequest(f"{root}/gone", -1))
    create(client, f"{root}/new")
    again = connect()
    again.send(
        OpCode.SET_WATCHES,
        SetWatches(
            seen,
            data=tuple(f"{root}/{name}" for name in ("same", "changed", "gone")),
            exist=(f"{root}/new", f"{root}/not-yet"),
            child=(root, f"{root}/same"),
        ),
        xid=-8,
    )
    events = [again.event() for _ in range(4)]
    assert events == [
        event(EventType.CHANGED, f"{root}/changed"),
        event(EventType.DELETED, f"{root}/gone"),
        event(EventType.CREATED, f"{root}/new"),
        event(EventType.CHILDREN, root),
    ]
    assert again.reply()[::2] == (-8, Err.OK)
    client.call(OpCode.SET_DATA, SetDataRequest(f"{root}/same", b"", -1))
    assert again.event() == event(EventType.CHANGED, f"{root}/same")
    create(client, f"{root}/not-yet")
    assert again.event() == event(EventType.CREATED, f"{root}/not-yet")
    create(client, f"{root}/same/a")
    assert again.event() == event(EventType.CHILDREN, f"{root}/same")
    lasting = SetWatches2(seen, (), (), (), (root,), (f"{root}/same",))
    assert again.call(OpCode.SET_WATCHES2, lasting).err == Err.OK
    client.call(OpCode.SET_DATA, SetDataRequest(f"{root}/same/a", b"", -1))
    assert again.event() == event(EventType.CHANGED, f"{root}/same/a")


def test_a_client_before_3_4_neither_says_nor_hears_of_read_only(connect):
    assert names(connect(end=b""), "/")


def test_a_multi_of_nothing_is_answered(client):
    reply = client.call(OpCode.MULTI, *operations())
    assert reply.err == Err.OK
    assert reply.results() == []


def test_a_timeout_is_negotiated(connect):
    assert connect(timeout_ms=10).session.timeout_ms == 1_000
    assert connect(timeout_ms=10_000).session.timeout_ms == 10_000
    assert connect(timeout_ms=10**9).session.timeout_ms == 60_000


def test_a_session_moves_to_the_connection_that_comes_last(connect, root, client):
    first = connect()
    path = create(first, f"{root}/a", flags=EPHEMERAL)
    _, _, session, password = first.session
    second = connect(session=session, password=password)
    assert second.session[1:] == first.session[1:]
    assert first.is_cut_off()
    assert stat(second, path).ephemeral_owner == session
    assert second.call(OpCode.CLOSE_SESSION).err == Err.OK
    assert second.is_cut_off()
    assert client.call(OpCode.EXISTS, ReadRequest(path, False)).err == Err.NO_NODE
    third = connect(session=session, password=password)
    assert (third.session.timeout_ms, third.session.session_id) == (0, 0)
    assert third.is_cut_off()


def test_a_session_needs_its_password(connect):
    first = connect()
    thief = connect(session=first.session.session_id, password=b"x" * 16)
    assert thief.session.session_id == 0
    assert thief.is_cut_off()


def test_a_session_of_which_nothing_is_heard_expires(connect, root, client):
    silent = connect(timeout_ms=1_000)
    path = create(silent, f"{root}/a", flags=EPHEMERAL)
    reply = client.call(OpCode.EXISTS, ReadRequest(path, True))
    if reply.err == Err.OK:  # on a slow machine the session may have expired already
        assert client.event() == event(EventType.DELETED, path)
    assert silent.is_cut_off()
    assert names(client, root) == ()


def test_whoever_has_seen_more_is_sent_away(server):
    client = RawClient(server.address)
    with pytest.raises(ConnectionError):
        client.connect(last_zxid=1 << 60)


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 0x100000])
def test_a_length_that_cannot_be_is_cut_off(server, connect, size):
    for client in (RawClient(server.address), connect()):
        client.socket.sendall(struct.pack(">i", size) + b"x")
        assert client.is_cut_off()


def test_a_request_that_cannot_be_read_is_refused_and_the_next_is_answered(client):
    client.send(OpCode.SET_DATA)
    assert client.reply().err == Err.MARSHALLING_ERROR
    client.send(OpCode.GET_DATA, NumberResponse(1000))
    assert client.reply().err == Err.MARSHALLING_ERROR
    assert names(client, "/")


def test_a_four_letter_word_is_answered_without_a_session(server):
    for word, told in (
        (b"ruok", b"imok"),
        (b"isro", b"rw"),
        (b"srvr", b"\nMode: standalone\nNode count: "),
        (b"stat", b"\nClients:\n /127.0.0.1:"),
        (b"mntr", b"\nzk_server_state\tstandalone\n"),
        (b"conf", b"\nmaxSessionTimeout=60000\n"),
        (b"cons", b" /127.0.0.1:"),
        (b"envi", b"Environment:\nzookeeper.version="),
        (b"wchs", b"\nTotal watches:"),
    ):
        client = RawClient(server.address)
        client.socket.sendall(word)
        with client.socket.makefile("rb") as answer:
            assert told in answer.read(), word


def ask(server, word):
    client = RawClient(server.address)
    client.socket.sendall(word)
    with client.socket.makefile("rb") as answer:
        return answer.read().decode()


def test_wchc_and_wchp_list_each_watch_once(server, client, root):
    path = create(client, f"{root}/a")
    for watched in (path, root, path):
        stat(client, watched, watch=True)
    session = f"{client.session.session_id:#x}"
    lines = ask(server, b"wchc").splitlines()
    at = lines.index(session)
    assert sorted(lines[at + 1 : at + 3]) == [f"\t{root}", f"\t{path}"]
    lines = ask(server, b"wchp").splitlines()
    for watched in (root, path):
        assert lines[lines.index(watched) + 1] == f"\t{session}"


def test_dump_lists_sessions_and_their_ephemeral_nodes(server, client, root):
    path = create(client, f"{root}/a", flags=EPHEMERAL)
    session = f"{client.session.session_id:#x}"
    told = ask(server, b"dump")
    sessions, rest = told.split("ephemeral nodes dump:\n")
    ephemerals, connections = rest.split("Connections dump:\n")
    assert sessions.startswith("SessionTracker dump:\nSession Sets (")
    assert re.search(rf"^\d+ expire at \w{{3}} \w{{3}} .*:\n(\t.*\n)*\t{session}\n", sessions, re.M)
    assert ephemerals.startswith("Sessions with Ephemerals (")
    assert f"\n{session}:\n\t{path}\n" in ephemerals
    assert connections.startswith("Connections Sets (")
    host, port = client.socket.getsockname()
    assert f"\tip: /{host}:{port} sessionId: {session}\n" in connections


def test_dirs_tells_the_bytes_on_disk(server):
    found = re.fullmatch("datadir_size: (\\d+)\nlogdir_size: (\\d+)\n", ask(server, b"dirs"))
    assert int(found[1]) > 0
    assert int(found[2]) > 0


def test_crst_resets_the_figures_of_connections(server, client, root):
    port = client.socket.getsockname()[1]
    assert not re.search(rf":{port}\[1\]\(queued=0,recved=0,sent=0,", ask(server, b"cons"))
    assert ask(server, b"crst") == "Connection stats reset.\n"
    assert re.search(rf":{port}\[1\]\(queued=0,recved=0,sent=0,", ask(server, b"cons"))


def test_srst_resets_the_figures_of_the_server(server, client, root):
    for _ in range(100):
        names(client, root)
    assert int(re.search(r"Received: (\d+)", ask(server, b"srvr"))[1]) > 100
    assert ask(server, b"srst") == "Server stats reset.\n"
    assert int(re.search(r"Received: (\d+)", ask(server, b"srvr"))[1]) < 100
