import asyncio

import pytest

from kserver.errors import StorageError
from kserver.world.clock import WallClock
from kserver.world.disk import OsDisk
from kserver.world.journal import StoredSession
from kserver.world.znode_tree import Refused
from kserver.world.zookeeper import Create, Delete, NodeExists, SessionExpired, SetData, WatchType
from kserver.zookeeper_server.store import FILE, ChangeNodes, CloseSession, OpenSession, Store

SESSION = 7


class Life:
    """One start of a store, with a session; what it tells, in order."""

    def __init__(self, path):
        self.path = path
        self.told = []

    def run(self, test):
        async def main():
            self.store = Store(OsDisk(), str(self.path), WallClock())
            await self.store.open()
            running = asyncio.create_task(self.store.run(self.told.append))
            if SESSION not in self.store.sessions:
                await self.done(OpenSession, SESSION, StoredSession(500, b"secret"))
            try:
                return await test(self)
            finally:
                self.store.stop()
                await running

        return asyncio.run(main())

    async def done(self, kind, *arguments):
        return await self.submitted(kind, *arguments)

    def submitted(self, kind, *arguments):
        answer = asyncio.get_running_loop().create_future()

        def answered(done):
            self.told.append(done)
            answer.set_result(done)

        self.store.submit(kind(*arguments, answered))
        return answer

    def change(self, *ops, session=SESSION):
        return self.submitted(ChangeNodes, session, list(ops))


@pytest.fixture
def life(tmp_path):
    return Life(tmp_path)


def test_changes_that_come_together_are_one_write_and_keep_their_order(life):
    async def test(life):
        before = (life.path / FILE).stat().st_size
        life.told.clear()
        answers = [life.change(Create(f"/{n}")) for n in range(100)]
        await asyncio.gather(*answers)
        zxids = [answer.result().zxid for answer in answers]
        assert zxids == list(range(zxids[0], zxids[0] + 100))
        events, done = life.told[:200], life.told[200:]
        assert [e.path for e in events if e.type is WatchType.CREATED] == [
            f"/{n}" for n in range(100)
        ]
        assert done == [answer.result() for answer in answers]
        data = (life.path / FILE).read_bytes()
        size = int.from_bytes(data[before : before + 4], "big")
        assert before + 8 + size == len(data), "one frame"

    life.run(test)


def test_each_sees_those_before_it_and_a_refusal_changes_nothing(life):
    async def test(life):
        made = life.change(Create("/a", b"1"))
        again = life.change(Create("/b"), Create("/a"))
        changed = life.change(SetData("/a", b"2", 0))
        await changed
        assert isinstance(again.result().error, NodeExists)
        assert again.result().error.op == 1
        assert again.result().zxid == made.result().zxid == changed.result().zxid - 1
        refused = await life.change(Refused("/a", NodeExists("/a")))
        assert isinstance(refused.error, NodeExists)
        assert life.store.tree.children("/") == ["a", "zookeeper"]

    life.run(test)


def test_a_session_takes_its_nodes_with_it_even_those_on_their_way(life):
    async def test(life):
        await life.change(Create("/before", ephemeral=True))
        life.change(Create("/with", ephemeral=True))
        closed = life.submitted(CloseSession, SESSION)
        late = life.change(Create("/after", ephemeral=True))
        await late
        assert closed.result().error is None
        assert isinstance(late.result().error, SessionExpired)
        assert life.store.tree.children("/") == ["zookeeper"]
        assert life.store.ephemerals_count == 0
        assert life.store.sessions == {}

    life.run(test)


def test_a_session_leaves_what_others_make_of_its_nodes(life):
    """Deleted, or deleted and made again by another, in the write that closes it."""

    async def test(life):
        await life.done(OpenSession, SESSION + 1, StoredSession(500, b"other"))
        await life.change(Create("/gone", ephemeral=True), Create("/another-s", ephemeral=True))
        life.change(Delete("/gone"), Delete("/another-s"))
        life.change(Create("/another-s", ephemeral=True), session=SESSION + 1)
        closed = await life.submitted(CloseSession, SESSION)
        assert closed.error is None
        assert life.store.tree.children("/") == ["another-s", "zookeeper"]
        assert life.store.ephemerals(SESSION + 1) == ["/another-s"]
        assert SESSION not in life.store.sessions

    life.run(test)


def test_all_is_there_after_a_start(life):
    async def make(life):
        await life.change(Create("/a", None), Create("/a/n-", b"x", ephemeral=True, sequence=True))
        return life.store.zxid

    async def look(life):
        assert life.store.ephemerals(SESSION) == ["/a/n-0000000000"]
        assert life.store.tree.node("/a").is_null
        assert life.store.sessions == {SESSION: StoredSession(500, b"secret")}
        return life.store.zxid

    assert Life(life.path).run(make) == Life(life.path).run(look)


def test_a_damaged_file_is_refused(life):
    (life.path / FILE).write_bytes(b"nonsense, and more of it")
    with pytest.raises(StorageError, match="damaged at byte 0: restore it from a copy"):
        life.run(None)
