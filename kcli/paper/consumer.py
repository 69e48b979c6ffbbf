"""PaperConsumer: reads its share of topics' partitions, found and agreed on through ZooKeeper.

    async with PaperConsumer(properties, ["orders"], zookeeper, name="host-1-ab") as consumer:
        while batches := await consumer.poll_batches(1000):
            ...

Brokers are found below /brokers/ids, partitions below /brokers/topics.  `member.py` has the states
of a rebalance; here they are carried out, one task going from one to the next.  A watch on the
members, the brokers and each topic makes it look again.

Records are read at least once.  Offsets are written after their records were handed out and the
next were asked for: each auto.commit.interval.ms, before partitions are let go, and at the end.
Where a partition has no offset, it is read only once that is written where its reading starts; else
what comes between two members' reading of it could be passed over by both ("latest").

A zombie, whose session expired while it did not run, may hand out what another reads as well, but
does not write: an offset goes in one transaction with a check that this member's registration and
its owner node are there.  The check is of their existence (ZooKeeper checks nothing else); they are
this member's own, since they are ephemeral, none else makes its registration, and it registers
anew only after it forgot what it owned.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from types import TracebackType
from typing import Self

from kcli.client.config import ConsumerConfig
from kcli.client.consumer import Consumer, FetchedBatch
from kcli.client.errors import ClientError, TimedOut
from kcli.client.serialization import BYTES_IN
from kcli.paper.config import split
from kcli.paper.member import GroupView, PaperMember, PaperProgress, PaperState, threads
from kserver import znodes
from kserver.errors import KafkaError, ProtocolError
from kserver.model import TopicPartition
from kserver.world.zookeeper import (
    Check,
    ConnectionLost,
    Create,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    SessionEvent,
    SessionExpired,
    SetData,
    WatchEvent,
    ZooKeeper,
    ZooKeeperError,
)

_PAUSE_S = 0.1
"""Before ZooKeeper is asked again what it could not be asked."""
_SLICE_MS = 500.0
"""How long a poll may not notice that the rebalance failed."""
_PARTING_S = 5.0
"""How long the last offsets may take."""


class Disowned(Exception):
    """The registration or an owner node is gone: nothing was written."""


class PaperConsumer:
    """`name` tells this member from all others of its group, of today and before.

    A group that is not `lasting` leaves nothing in ZooKeeper.  ConfigError for `properties`.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        topics: Iterable[str],
        zookeeper: ZooKeeper,
        *,
        name: str,
        now_ms: Callable[[], int],
        lasting: bool = True,
        random: Random | None = None,
    ) -> None:
        self._config, self._properties = split(properties)
        self._reading = ConsumerConfig.of(self._properties)
        self._topics = sorted(set(topics))
        self._zookeeper = zookeeper
        self._group = self._config.group_id
        self.id = f"{self._group}_{self._config.consumer_id or name}"
        self._now_ms = now_ms
        self._lasting = lasting
        self._random = random
        self._member = PaperMember(f"{self.id}-0", self._config.rebalance_max_retries)
        self._progress = PaperProgress()
        self._connected = asyncio.Event()
        self._changed = asyncio.Event()
        self._brokers: list[str] = []
        self._consumer: Consumer | None = None
        self._bootstrap: list[str] = []
        self._has_consumer = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._starting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """TimedOut where there is no ZooKeeper.  The rebalance goes on in the background."""
        self._zookeeper.on_session(self._session_changed)
        try:
            await self._zookeeper.start()
        except ConnectionLost as error:
            where = self._config.zookeeper_connect
            raise TimedOut(f"no ZooKeeper answers at {where}") from error
        self._tasks.append(asyncio.create_task(self._run()))
        if self._config.enable_auto_commit:
            self._tasks.append(asyncio.create_task(self._commit_regularly()))

    async def close(self) -> None:
        """Write how far was read, let go, leave.  What is not done within seconds ends with the
        session."""
        await self._end_tasks()
        with contextlib.suppress(ZooKeeperError, Disowned, TimeoutError):
            async with asyncio.timeout(_PARTING_S):
                await self._connected.wait()
                await self._part()
        await self._zookeeper.close()
        if self._consumer is not None:
            await self._consumer.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self._progress.settle()
        await self.close()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was given and is not known, or has another name today, a line each."""
        return self._config.warnings + self._reading.warnings

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """What it owns and reads now."""
        return self._member.owned

    async def poll_batches(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> list[FetchedBatch]:
        """Does what `Consumer.poll_batches` does.  The call says that all given before is done
        with.

        Raises RebalanceFailed, and StorageError for znodes that are not Kafka's, besides.
        """
        self._progress.settle()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        while True:
            for task in (*self._tasks, self._starting):
                if task is not None and task.done():
                    task.result()
            left_ms = min(max(0.0, (deadline - loop.time()) * 1000), _SLICE_MS)
            found = await self._poll_once(left_ms, max_records)
            for batch in found:
                partition = TopicPartition(batch.topic, batch.partition)
                self._progress.hand_out(partition, batch.next_offset)
            if found or loop.time() >= deadline:
                return found

    async def _poll_once(self, timeout_ms: float, max_records: int | None) -> list[FetchedBatch]:
        if self._consumer is not None:
            return await self._consumer.poll_batches(timeout_ms, max_records)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_ms / 1000):
                await self._has_consumer.wait()
        return []

    # The rebalance

    async def _run(self) -> None:
        while True:
            try:
                await self._step()
            except (ConnectionLost, SessionExpired):
                self._member.answer_lost()
                if self._member.state is not PaperState.OWNING:
                    self._stop_reading()
                self._changed.set()
                await asyncio.sleep(_PAUSE_S)
                await self._connected.wait()
            self._member.check()
            self._progress.check()

    async def _step(self) -> None:
        match self._member.state:
            case PaperState.OUTSIDE:
                await self._register()
            case PaperState.RELEASING:
                await self._release()
            case PaperState.CLAIMING:
                await self._claim()
            case PaperState.WAITING:
                await self._wait()
            case PaperState.OWNING:
                await self._look()

    async def _register(self) -> None:
        session = self._member.session
        me = znodes.MemberRegistration(dict.fromkeys(self._topics, 1), self._now_ms())
        path = znodes.member_path(self._group, self.id)
        try:
            await self._zookeeper.create(
                path, znodes.encode_member(me), ephemeral=True, make_parents=True
            )
        except NodeExists:
            there = await self._zookeeper.exists(path)
            if there is None or there.ephemeral_owner != self._zookeeper.session_id:
                # One of this name from a session that is not over yet.
                await asyncio.sleep(_PAUSE_S)
                return
        self._same(session)
        self._member.registered()

    async def _release(self) -> None:
        session = self._member.session
        self._stop_reading()
        if self._config.enable_auto_commit:
            with contextlib.suppress(Disowned):
                await self._write_offsets()
        await self._let_go()
        self._same(session)
        self._progress.clear()
        self._member.released()

    async def _let_go(self) -> None:
        """Gives up what is this member's; another's may stand where a claim's answer was lost."""
        await asyncio.gather(*(self._delete_owner(p) for p in self._member.held))

    async def _delete_owner(self, partition: TopicPartition) -> None:
        path = self._owner_path(partition)
        there = await self._zookeeper.exists(path)
        if there is not None and there.ephemeral_owner == self._zookeeper.session_id:
            with contextlib.suppress(NoNode):
                await self._zookeeper.delete(path)

    async def _claim(self) -> None:
        session = self._member.session
        await self._make_parents()
        view = await self._view()
        self._same(session)
        wanted = self._member.claim(view)
        if wanted is None:
            return
        thread = self._member.thread.encode()
        try:
            await self._zookeeper.multi(
                [
                    Check(znodes.member_path(self._group, self.id)),
                    *(Create(self._owner_path(p), thread, ephemeral=True) for p in wanted),
                ]
            )
        except (NodeExists, NoNode) as error:
            self._same(session)
            self._member.refused()
            if not await self._zookeeper.exists(error.path, self._look_again):
                self._changed.set()
            return
        await self._start_reading(wanted, session)
        self._member.claimed()

    async def _wait(self) -> None:
        session = self._member.session
        in_vain = False
        try:
            async with asyncio.timeout(self._config.rebalance_backoff_ms / 1000):
                await self._changed.wait()
        except TimeoutError:
            in_vain = True
        self._same(session)
        self._member.again(in_vain=in_vain)

    async def _look(self) -> None:
        session = self._member.session
        await self._changed.wait()
        if self._member.state is PaperState.OWNING:
            view = await self._view()
            self._same(session)
            if self._member.state is PaperState.OWNING:
                self._member.looked(view)

    def _same(self, session: int) -> None:
        """To be asked after each wait: what was begun in another session is void."""
        if session != self._member.session:
            raise SessionExpired

    async def _view(self) -> GroupView:
        """The group as it is now; `_changed` is set once it is so no more."""
        self._changed.clear()
        zookeeper = self._zookeeper
        found: dict[str, list[str]] = {topic: [] for topic in self._topics}
        for member in await zookeeper.children(znodes.members_path(self._group), self._look_again):
            with contextlib.suppress(NoNode):
                data, _ = await zookeeper.get(znodes.member_path(self._group, member))
                told = znodes.decode_member(self._group, member, data)
                for topic in self._topics:
                    found[topic] += threads(member, told, topic)
        partitions = {topic: await self._partitions(topic) for topic in self._topics}
        self._brokers = await self._addresses()
        return GroupView(
            {topic: tuple(sorted(those)) for topic, those in found.items()},
            partitions,
            bool(self._brokers),
        )

    async def _partitions(self, topic: str) -> tuple[int, ...]:
        path = znodes.topic_path(topic)
        if await self._zookeeper.exists(path, self._look_again):
            with contextlib.suppress(NoNode):
                data, _ = await self._zookeeper.get(path)
                return tuple(sorted(znodes.decode_topic(topic, data).replicas))
        return ()

    async def _addresses(self) -> list[str]:
        """The addresses of the brokers that speak this client's security protocol."""
        found: list[str] = []
        for broker in await self._children(znodes.BROKER_IDS):
            with contextlib.suppress(NoNode):
                data, _ = await self._zookeeper.get(znodes.broker_path(int(broker)))
                found += (
                    f"[{e.host}]:{e.port}" if ":" in e.host else f"{e.host}:{e.port}"
                    for e in znodes.decode_broker(int(broker), data).endpoints
                    if e.protocol == self._reading.security_protocol
                )
        return found

    async def _children(self, path: str) -> Sequence[str]:
        try:
            return await self._zookeeper.children(path, self._look_again)
        except NoNode:
            if await self._zookeeper.exists(path, self._look_again):
                self._changed.set()
            return ()

    async def _make_parents(self) -> None:
        """Make those of the nodes of owners and offsets, which are made in transactions."""
        for topic in self._topics:
            for path in (
                znodes.owner_path(self._group, topic, 0),
                znodes.offset_path(self._group, topic, 0),
            ):
                with contextlib.suppress(NodeExists):
                    await self._zookeeper.create(path.rpartition("/")[0], make_parents=True)

    # What is read, and how far

    async def _start_reading(self, partitions: Sequence[TopicPartition], session: int) -> None:
        stored = await asyncio.gather(*(self._stored(p) for p in partitions))
        self._same(session)
        if not partitions:
            return
        consumer = await self._reader()
        self._same(session)
        consumer.assign(partitions)
        fresh = []
        for partition, offset in zip(partitions, stored, strict=True):
            if offset is None:
                consumer.pause([partition])
                fresh.append(partition)
            else:
                self._progress.start(partition, offset, is_written=True)
                await consumer.seek(partition, offset)
        if fresh:
            self._starting = asyncio.create_task(self._start_anew(consumer, fresh))

    async def _stored(self, partition: TopicPartition) -> int | None:
        try:
            data, _ = await self._zookeeper.get(self._offset_path(partition))
        except NoNode:
            return None
        return znodes.decode_offset(self._group, partition, data)

    async def _reader(self) -> Consumer:
        """Another one where none of the brokers is there that the last one began with."""
        if self._consumer is not None and not set(self._brokers).isdisjoint(self._bootstrap):
            return self._consumer
        if self._consumer is not None:
            await self._consumer.close()
        self._bootstrap = self._brokers
        given = self._properties | {"bootstrap.servers": ",".join(self._brokers)}
        self._consumer = Consumer(
            ConsumerConfig.of(given), **BYTES_IN, now_ms=self._now_ms, random=self._random
        )
        await self._consumer.start()
        self._has_consumer.set()
        return self._consumer

    async def _start_anew(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        """Partitions that nobody of the group has read: their first offset, and then they are."""
        for partition in partitions:
            try:
                while True:
                    with contextlib.suppress(TimedOut):
                        offset = await consumer.position(partition)
                        self._progress.start(partition, offset, is_written=False)
                        break
            except (ClientError, KafkaError, ProtocolError):
                pass  # It stands at the partition, for poll to raise it.
        while True:
            try:
                await self._write_offsets()
                break
            except ZooKeeperError:
                await asyncio.sleep(_PAUSE_S)
            except Disowned:
                self._noticed_disowned()
                return
        consumer.resume(partitions)

    def _stop_reading(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
            self._starting = None
        if self._consumer is not None:
            self._consumer.assign(())

    async def _commit_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._config.auto_commit_interval_ms / 1000)
            try:
                await self._write_offsets()
            except Disowned:
                self._noticed_disowned()
            except ZooKeeperError:
                pass  # The next time, or after it was read again.

    def _noticed_disowned(self) -> None:
        self._member.give_up()
        self._changed.set()

    async def _write_offsets(self) -> None:
        """What is done, all or nothing; Disowned."""
        while offsets := self._progress.unwritten():
            ops: list[Op] = [Check(znodes.member_path(self._group, self.id))]
            for partition, offset in offsets.items():
                path, data = self._offset_path(partition), znodes.encode_offset(offset)
                is_there = self._progress.is_written(partition)
                ops.append(Check(self._owner_path(partition)))
                ops.append(SetData(path, data) if is_there else Create(path, data))
            try:
                await self._zookeeper.multi(ops)
            except (NoNode, NodeExists) as error:
                await self._mend(error, offsets)
                continue
            self._progress.wrote(offsets)
            return

    async def _mend(self, error: ZooKeeperError, offsets: Mapping[TopicPartition, int]) -> None:
        """The node of an offset was deleted or made by another's hand; for others' Disowned."""
        mine = [p for p in offsets if self._offset_path(p) == error.path]
        if not mine:
            raise Disowned from error
        if isinstance(error, NoNode):
            self._progress.forget_written(mine)
            await self._make_parents()
        else:
            self._progress.wrote(dict.fromkeys(mine, -1))

    async def _part(self) -> None:
        self._member.give_up()
        self._stop_reading()
        if self._config.enable_auto_commit:
            with contextlib.suppress(Disowned):
                await self._write_offsets()
        await self._let_go()
        if not self._lasting:
            await self._delete_tree(znodes.group_path(self._group))

    async def _delete_tree(self, path: str) -> None:
        with contextlib.suppress(NoNode, NotEmpty):
            for name in await self._zookeeper.children(path):
                await self._delete_tree(f"{path}/{name}")
            await self._zookeeper.delete(path)

    async def _end_tasks(self) -> None:
        tasks = [task for task in (*self._tasks, self._starting) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # What happens

    def _session_changed(self, event: SessionEvent) -> None:
        match event:
            case SessionEvent.CONNECTED:
                self._connected.set()
            case SessionEvent.DISCONNECTED:
                self._connected.clear()
            case SessionEvent.EXPIRED:
                self._stop_reading()
                self._progress.clear()
                self._member.expired()
        # Watches are lost with a connection.
        self._changed.set()

    def _look_again(self, _: WatchEvent) -> None:
        self._changed.set()

    def _owner_path(self, partition: TopicPartition) -> str:
        return znodes.owner_path(self._group, *partition)

    def _offset_path(self, partition: TopicPartition) -> str:
        return znodes.offset_path(self._group, *partition)
