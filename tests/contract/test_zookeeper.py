"""Test the contract of every ZooKeeper: the embedded and the simulated one, and, through kazoo,
Apache's server and ours."""

from __future__ import annotations

import asyncio
import functools
import itertools

import pytest

from kserver.world.clock import WallClock
from kserver.world.disk import OsDisk
from kserver.world.embedded import EmbeddedZooKeeper
from kserver.world.kazoo import KazooZooKeeper
from kserver.world.zookeeper import (
    ANY_VERSION,
    NO_SESSION,
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    Delete,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionEvent,
    SetData,
    WatchEvent,
    WatchType,
)
from tests.support.clock import SimClock
from tests.support.loop import simulate
from tests.support.zookeeper import SimEnsemble
from tests.support.zookeeper_server import OwnZooKeeperServer, ZooKeeperServer

PATIENCE_S = 30
CHROOTS = itertools.count()


class EmbeddedStore:
    """A store with one client at a time."""

    def __init__(self, path):
        self.path = str(path)

    def run(self, test):
        asyncio.run(test(self))

    def client(self):
        return EmbeddedZooKeeper(OsDisk(), self.path, WallClock())


class SimulatedStore:
    def run(self, test):
        async def main(loop):
            self.ensemble = SimEnsemble(loop, SimClock(loop))
            await test(self)

        simulate(main, seed=0)

    def client(self):
        return self.ensemble.client()

    async def expire(self, zookeeper):
        zookeeper.expire()


class KazooStore:
    def __init__(self, address):
        self.connect = f"{address}/kafka/test-{next(CHROOTS)}"

    def run(self, test):
        asyncio.run(test(self))

    def client(self):
        return KazooZooKeeper(self.connect)

    async def expire(self, zookeeper):
        """End the session with a second connection, which needs only the session's id and
        password."""
        from kazoo.client import KazooClient

        def end():
            twin = KazooClient(zookeeper._hosts, client_id=zookeeper._client.client_id)
            twin.start()
            twin.stop()
            twin.close()

        await asyncio.get_running_loop().run_in_executor(None, end)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(scope="module")
def own_server(tmp_path_factory):
    with OwnZooKeeperServer(tmp_path_factory.mktemp("own_zookeeper")) as server:
        yield server


def store_of(kind, request):
    if kind == "own":
        return KazooStore(request.getfixturevalue("own_server").address)
    if kind == "kazoo":
        return KazooStore(request.getfixturevalue("server").address)
    if kind == "simulated":
        return SimulatedStore()
    return EmbeddedStore(request.getfixturevalue("tmp_path") / "coordination.msgpack")


@pytest.fixture(params=["embedded", "simulated", "kazoo", "own"])
def store(request):
    return store_of(request.param, request)


@pytest.fixture(params=["simulated", "kazoo", "own"])
def shared_store(request):
    """A store that several clients can use at once."""
    return store_of(request.param, request)


def with_client(test):
    """Run `test` with a started client."""

    async def main(store):
        zookeeper = store.client()
        await zookeeper.start()
        try:
            await asyncio.wait_for(test(zookeeper), PATIENCE_S)
        finally:
            await zookeeper.close()

    @functools.wraps(test)
    def run(store):
        store.run(main)

    del run.__wrapped__
    return run


def with_store(test):
    @functools.wraps(test)
    def run(store):
        store.run(lambda store: asyncio.wait_for(test(store), PATIENCE_S))

    return run


def with_shared_store(test):
    def run(shared_store):
        shared_store.run(lambda store: asyncio.wait_for(test(store), PATIENCE_S))

    return run


@with_client
async def test_a_node_is_read_back(zookeeper):
    assert await zookeeper.create("/a", b"data") == "/a"
    data, stat = await zookeeper.get("/a")
    assert data == b"data"
    assert stat.version == stat.cversion == stat.num_children == 0
    assert stat.data_length == 4
    assert stat.ephemeral_owner == 0
    assert stat.czxid == stat.mzxid == stat.pzxid > 0
    assert stat.ctime_ms == stat.mtime_ms > 0
    assert await zookeeper.exists("/a") == stat


@with_client
async def test_data_may_be_empty_or_large(zookeeper):
    large = bytes(500_000)
    await zookeeper.create("/empty")
    await zookeeper.create("/large", large)
    assert (await zookeeper.get("/empty"))[0] == b""
    assert (await zookeeper.get("/large"))[0] == large


@with_client
async def test_what_is_not_there(zookeeper):
    assert await zookeeper.exists("/a") is None
    for asked in (
        zookeeper.get("/a"),
        zookeeper.children("/a"),
        zookeeper.set("/a", b""),
        zookeeper.delete("/a"),
        zookeeper.create("/a/b"),
    ):
        with pytest.raises(NoNode):
            await asked


@with_client
async def test_an_error_names_its_path(zookeeper):
    with pytest.raises(NoNode) as caught:
        await zookeeper.get("/a/b")
    assert caught.value.path == "/a/b"
    assert str(caught.value) == "NoNode for /a/b"


@with_client
async def test_a_node_is_created_once(zookeeper):
    await zookeeper.create("/a", b"1")
    with pytest.raises(NodeExists):
        await zookeeper.create("/a", b"2")
    assert (await zookeeper.get("/a"))[0] == b"1"


@with_client
async def test_parents_are_made_where_asked(zookeeper):
    await zookeeper.create("/a")
    assert await zookeeper.create("/a/b/c/d", b"x", ephemeral=True, make_parents=True) == "/a/b/c/d"
    data, stat = await zookeeper.get("/a/b/c")
    assert data == b""
    assert stat.ephemeral_owner == 0
    with pytest.raises(NodeExists):
        await zookeeper.create("/a/b/c/d", make_parents=True)


@with_client
async def test_setting_counts_versions(zookeeper):
    await zookeeper.create("/a", b"1")
    created = await zookeeper.exists("/a")
    stat = await zookeeper.set("/a", b"22")
    assert await zookeeper.get("/a") == (b"22", stat)
    assert stat.version == 1
    assert stat.data_length == 2
    assert stat.mzxid > stat.czxid == created.czxid == stat.pzxid
    assert stat.mtime_ms >= stat.ctime_ms == created.ctime_ms
    assert (await zookeeper.set("/a", b"333", version=1)).version == 2


@with_client
async def test_a_write_of_another_version_is_refused(zookeeper):
    await zookeeper.create("/a", b"1")
    with pytest.raises(BadVersion):
        await zookeeper.set("/a", b"2", version=1)
    with pytest.raises(BadVersion):
        await zookeeper.delete("/a", version=1)
    assert (await zookeeper.get("/a"))[0] == b"1"
    await zookeeper.delete("/a", version=0)
    assert await zookeeper.exists("/a") is None


@with_client
async def test_a_node_with_children_is_not_deleted(zookeeper):
    await zookeeper.create("/a/b", make_parents=True)
    with pytest.raises(NotEmpty):
        await zookeeper.delete("/a")
    await zookeeper.delete("/a/b")
    await zookeeper.delete("/a")
    assert await zookeeper.exists("/a") is None


@with_client
async def test_children_are_names_in_order(zookeeper):
    await zookeeper.create("/a")
    assert await zookeeper.children("/a") == []
    for name in ("c", "a", "b"):
        await zookeeper.create(f"/a/{name}")
    await zookeeper.create("/a/a/deeper")
    assert await zookeeper.children("/a") == ["a", "b", "c"]


@with_client
async def test_the_root_is_a_node(zookeeper):
    await zookeeper.create("/a")
    assert await zookeeper.children("/") == ["a"]
    assert (await zookeeper.get("/"))[0] == b""
    assert (await zookeeper.exists("/")).num_children == 1
    assert (await zookeeper.set("/", b"x")).version == 1


@with_client
async def test_a_parent_tells_of_its_children(zookeeper):
    await zookeeper.create("/a")
    await zookeeper.create("/a/b")
    await zookeeper.create("/a/c")
    await zookeeper.delete("/a/b")
    await zookeeper.set("/a/c", b"x")
    parent, child = await zookeeper.exists("/a"), await zookeeper.exists("/a/c")
    assert parent.num_children == 1
    assert parent.cversion == 3
    assert parent.version == 0
    assert parent.czxid == parent.mzxid < child.czxid < parent.pzxid < child.mzxid


@with_client
async def test_sequential_names_count_all_children_ever_created(zookeeper):
    await zookeeper.create("/a")
    assert await zookeeper.create("/a/n-", sequence=True) == "/a/n-0000000000"
    await zookeeper.create("/a/other")
    await zookeeper.delete("/a/other")
    assert await zookeeper.create("/a/n-", sequence=True) == "/a/n-0000000002"
    assert await zookeeper.create("/a/m-", sequence=True, ephemeral=True) == "/a/m-0000000003"


@with_client
async def test_an_ephemeral_node_has_an_owner_and_no_children(zookeeper):
    await zookeeper.create("/a", ephemeral=True)
    assert (await zookeeper.exists("/a")).ephemeral_owner == zookeeper.session_id
    assert zookeeper.session_id != NO_SESSION
    with pytest.raises(NoChildrenForEphemerals):
        await zookeeper.create("/a/b")


@with_store
async def test_ephemeral_nodes_go_with_their_session_and_the_others_stay(store):
    zookeeper = store.client()
    await zookeeper.start()
    await zookeeper.create("/lasting", b"data")
    await zookeeper.create("/passing", ephemeral=True)
    before = await zookeeper.exists("/passing")
    await zookeeper.close()
    again = store.client()
    await again.start()
    assert (await again.get("/lasting"))[0] == b"data"
    assert await again.exists("/passing") is None
    assert await again.children("/") == ["lasting"]
    assert again.session_id != zookeeper.session_id
    assert (await again.exists("/")).pzxid > before.czxid
    await again.create("/passing", ephemeral=True)
    assert (await again.exists("/passing")).czxid > before.czxid
    await again.close()


@with_client
async def test_a_multi_does_all_at_once(zookeeper):
    await zookeeper.create("/a", b"1")
    made, child, stat, gone, checked = await zookeeper.multi(
        [
            Create("/b", b"2"),
            Create("/b/n-", sequence=True, ephemeral=True),
            SetData("/a", b"3", 0),
            Delete("/b/n-0000000000", ANY_VERSION),
            Check("/a", 1),
        ]
    )
    assert (made, child) == ("/b", "/b/n-0000000000")
    assert await zookeeper.get("/a") == (b"3", stat)
    assert gone is None
    assert checked is None
    created = await zookeeper.exists("/b")
    assert created.czxid == created.pzxid == stat.mzxid
    assert created.num_children == 0
    assert created.cversion == 2


@pytest.mark.parametrize(
    ("failing", "error"),
    [
        (Create("/b"), NodeExists),
        (Create("/x/y"), NoNode),
        (SetData("/a", b"", 7), BadVersion),
        (SetData("/x", b""), NoNode),
        (Delete("/a", 7), BadVersion),
        (Delete("/x"), NoNode),
        (Delete("/parent"), NotEmpty),
        (Check("/a", 7), BadVersion),
        (Check("/x"), NoNode),
    ],
)
def test_a_multi_that_fails_does_nothing(store, failing, error):
    @with_client
    async def test(zookeeper):
        await zookeeper.create("/a", b"1")
        await zookeeper.create("/parent/child", make_parents=True)
        with pytest.raises(error) as caught:
            await zookeeper.multi([Create("/b"), SetData("/a", b"2"), failing, Create("/c/d")])
        assert caught.value.path == failing.path
        assert await zookeeper.children("/") == ["a", "parent"]
        data, stat = await zookeeper.get("/a")
        assert (data, stat.version) == (b"1", 0)
        assert (await zookeeper.exists("/")).cversion == 2

    test(store)


@with_client
async def test_a_multi_of_nothing_is_nothing(zookeeper):
    assert await zookeeper.multi([]) == []


@with_client
async def test_calls_take_effect_in_the_order_in_which_they_are_made(zookeeper):
    await zookeeper.create("/a", b"0")
    async with asyncio.TaskGroup() as group:
        tasks = []
        for number in range(1, 20):
            tasks.append(group.create_task(zookeeper.set("/a", b"%d" % number, number - 1)))
            tasks.append(group.create_task(zookeeper.get("/a")))
    for number in range(1, 20):
        stat = tasks[2 * number - 2].result()
        assert stat.version == number
        assert tasks[2 * number - 1].result()[1].version >= number


@with_client
async def test_a_cancelled_caller_disturbs_nobody(zookeeper):
    cancelled = asyncio.create_task(zookeeper.create("/a"))
    other = asyncio.create_task(zookeeper.create("/b"))
    await asyncio.sleep(0)
    cancelled.cancel()
    assert await other == "/b"
    await zookeeper.create("/c")
    assert {"b", "c"} <= set(await zookeeper.children("/"))


class Seen:
    """Collects the events that a watch is called with."""

    def __init__(self):
        self.events = asyncio.Queue()

    def __call__(self, event):
        self.events.put_nowait(event)

    async def next(self):
        return await self.events.get()

    def is_empty(self):
        return self.events.empty()


async def all_events_came(zookeeper):
    """Wait until all watches of earlier changes have been called: they are called in order."""
    last = Seen()
    await zookeeper.exists("/last", last)
    await zookeeper.create("/last")
    await last.next()
    await zookeeper.delete("/last")


@with_client
async def test_a_watch_for_data_is_called_once(zookeeper):
    seen = Seen()
    await zookeeper.create("/a")
    await zookeeper.get("/a", seen)
    await zookeeper.create("/a/child")
    await zookeeper.set("/a", b"1")
    assert await seen.next() == WatchEvent(WatchType.CHANGED, "/a")
    await zookeeper.set("/a", b"2")
    await all_events_came(zookeeper)
    assert seen.is_empty()


@with_client
async def test_a_watch_for_data_hears_of_the_end(zookeeper):
    by_get, by_exists = Seen(), Seen()
    await zookeeper.create("/a")
    await zookeeper.get("/a", by_get)
    await zookeeper.exists("/a", by_exists)
    await zookeeper.delete("/a")
    assert await by_get.next() == WatchEvent(WatchType.DELETED, "/a")
    assert await by_exists.next() == WatchEvent(WatchType.DELETED, "/a")


@with_client
async def test_a_watch_waits_for_what_is_not_there_yet(zookeeper):
    created, not_set = Seen(), Seen()
    assert await zookeeper.exists("/a/b", created) is None
    with pytest.raises(NoNode):
        await zookeeper.get("/a/b", not_set)
    with pytest.raises(NoNode):
        await zookeeper.children("/a/b", not_set)
    await zookeeper.create("/a/b", make_parents=True)
    assert await created.next() == WatchEvent(WatchType.CREATED, "/a/b")
    await zookeeper.set("/a/b", b"1")
    await zookeeper.create("/a/b/c")
    await all_events_came(zookeeper)
    assert not_set.is_empty()


@with_client
async def test_a_watch_for_children_is_called_once(zookeeper):
    seen = Seen()
    await zookeeper.create("/a/b", make_parents=True)
    await zookeeper.children("/a", seen)
    await zookeeper.set("/a", b"1")
    await zookeeper.set("/a/b", b"1")
    await zookeeper.create("/a/b/c")
    await zookeeper.create("/a/d")
    assert await seen.next() == WatchEvent(WatchType.CHILDREN, "/a")
    await zookeeper.create("/a/e")
    await all_events_came(zookeeper)
    assert seen.is_empty()
    await zookeeper.children("/a", seen)
    await zookeeper.delete("/a/e")
    assert await seen.next() == WatchEvent(WatchType.CHILDREN, "/a")


@with_client
async def test_a_watch_for_children_hears_of_the_end(zookeeper):
    seen = Seen()
    await zookeeper.create("/a")
    await zookeeper.children("/a", seen)
    await zookeeper.delete("/a")
    assert await seen.next() == WatchEvent(WatchType.DELETED, "/a")


@with_client
async def test_the_same_watch_left_twice_is_called_once(zookeeper):
    seen = Seen()
    await zookeeper.create("/a")
    await zookeeper.get("/a", seen)
    await zookeeper.exists("/a", seen)
    await zookeeper.set("/a", b"1")
    await seen.next()
    await all_events_came(zookeeper)
    assert seen.is_empty()


@with_client
async def test_what_a_watch_tells_of_can_be_read(zookeeper):
    def watch(event):
        read.set_result(asyncio.ensure_future(zookeeper.get("/a")))

    read = asyncio.get_running_loop().create_future()
    await zookeeper.exists("/a", watch)
    await zookeeper.create("/a", b"data")
    assert (await (await read))[0] == b"data"


@with_client
async def test_a_multi_that_fails_calls_no_watch(zookeeper):
    seen = Seen()
    await zookeeper.exists("/a", seen)
    with pytest.raises(NoNode):
        await zookeeper.multi([Create("/a"), Delete("/b")])
    await all_events_came(zookeeper)
    assert seen.is_empty()


@with_store
async def test_there_is_a_connection_between_start_and_close(store):
    zookeeper, events = store.client(), Seen()
    zookeeper.on_session(events)
    with pytest.raises(ConnectionLost):
        await zookeeper.get("/")
    assert zookeeper.session_id == NO_SESSION
    await zookeeper.start()
    assert await events.next() is SessionEvent.CONNECTED
    assert zookeeper.session_id != NO_SESSION
    await zookeeper.close()
    await zookeeper.close()
    for asked in (zookeeper.get("/"), zookeeper.create("/a"), zookeeper.multi([Check("/")])):
        with pytest.raises(ConnectionLost):
            await asked
    assert events.is_empty()


@with_shared_store
async def test_a_client_hears_of_what_another_does(store):
    one, other, seen = store.client(), store.client(), Seen()
    await one.start()
    await other.start()
    assert one.session_id != other.session_id
    await one.exists("/a", seen)
    await other.create("/a", b"data", ephemeral=True)
    assert await seen.next() == WatchEvent(WatchType.CREATED, "/a")
    data, stat = await one.get("/a", seen)
    assert (data, stat.ephemeral_owner) == (b"data", other.session_id)
    await other.close()
    assert await seen.next() == WatchEvent(WatchType.DELETED, "/a")
    await one.close()


@with_shared_store
async def test_an_expired_session_is_followed_by_a_new_one(store):
    one, other = store.client(), store.client()
    events, forgotten, gone = Seen(), Seen(), Seen()
    await one.start()
    await other.start()
    session = one.session_id
    one.on_session(events)
    await one.create("/passing", ephemeral=True)
    await one.create("/lasting")
    await one.get("/lasting", forgotten)
    await other.exists("/passing", gone)
    await store.expire(one)
    assert await gone.next() == WatchEvent(WatchType.DELETED, "/passing")
    while (event := await events.next()) is not SessionEvent.EXPIRED:
        assert event in (SessionEvent.DISCONNECTED, SessionEvent.CONNECTED)
    assert await events.next() is SessionEvent.CONNECTED
    assert one.session_id not in (session, NO_SESSION)
    assert await one.children("/") == ["lasting"]
    await one.set("/lasting", b"1")
    await all_events_came(one)
    assert forgotten.is_empty()
    await one.create("/passing", ephemeral=True)
    await one.close()
    await other.close()
