"""ZookeeperConsumer: reads its share of topics' partitions, assigned through ZooKeeper.

    async with ZookeeperConsumer(properties, ["orders"], zookeeper, name="host-1-ab") as consumer:
        while batches := await consumer.poll_batches(1000):
            ...

Brokers are found below /brokers/ids, partitions below /brokers/topics. `member.py` has the states
of a rebalance; here they are carried out by one task. Watches on the members, the brokers and each
topic make it check again.

Records are read at least once. Offsets are written after their records were returned and the next
ones were requested: every auto.commit.interval.ms, before partitions are released, and at the end.
A partition without an offset is read only once its starting offset is written; else records that
arrive between two members' reading could be skipped by both ("latest").

A zombie, whose session expired while it did not run, may return records that another member reads
too, but does not write: an offset is written in one transaction with a check that this member's
registration and its owner node exist. (ZooKeeper only checks existence here.) They are this
member's own, since they are ephemeral, no other member creates its registration, and it registers
again only after it has forgotten its partitions.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from types import TracebackType
from typing import Self

from kcli.client.config import ConsumerConfig
from kcli.client.consumer.consumer import Consumer, FetchedBatch
from kcli.client.errors import ClientError, TimedOut
from kcli.client.serialization import BYTES_IN
from kcli.zookeeper_consumer.config import split
from kcli.zookeeper_consumer.member import (
    GroupView,
    PaperMember,
    PaperProgress,
    PaperState,
    threads,
)
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
"""Seconds before a failed ZooKeeper request is retried."""
_SLICE_MS = 500.0
"""How long a poll may not notice that the rebalance failed."""
_PARTING_S = 5.0
"""Seconds for the last offsets."""


class OwnershipLost(Exception):
    """The registration or an owner node no longer exists: nothing was written."""


class ZookeeperConsumer:
    """`name` identifies this member among all of its group, past ones included.

    A group that is not `lasting` leaves nothing in ZooKeeper. Raises ConfigError if `properties`
    are invalid.
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
        """Connect; the rebalance runs in the background. Raises TimedOut if ZooKeeper cannot be
        reached.
        """
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
        """Write offsets, release partitions, and leave. Whatever takes too long ends with the
        session.
        """
        await self._end_tasks()
        with contextlib.suppress(ZooKeeperError, OwnershipLost, TimeoutError):
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
        """A line for each unknown or renamed key."""
        return self._config.warnings + self._reading.warnings

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that it owns and reads now."""
        return self._member.owned

    async def poll_batches(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> list[FetchedBatch]:
        """Return batches like `Consumer.poll_batches`. The call marks all records returned before
        as processed.

        Raises RebalanceFailed, and StorageError if znodes are not Kafka's, in addition.
        """
        self._progress.settle()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        while True:
            for task in (*self._tasks, self._starting):
                if task is not None and task.done():
                    task.result()
            left_ms = min(max(0.0, (deadline - loop.time()) * 1000), _SLICE_MS)
            batches = await self._poll_once(left_ms, max_records)
            for batch in batches:
                partition = TopicPartition(batch.topic, batch.partition)
                self._progress.hand_out(partition, batch.next_offset)
            if batches or loop.time() >= deadline:
                return batches

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
                self._member.on_connection_loss()
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
                # An earlier session with this name has not ended yet.
                await asyncio.sleep(_PAUSE_S)
                return
        self._same(session)
        self._member.registered()

    async def _release(self) -> None:
        session = self._member.session
        self._stop_reading()
        if self._config.enable_auto_commit:
            with contextlib.suppress(OwnershipLost):
                await self._write_offsets()
        await self._delete_owner_nodes()
        self._same(session)
        self._progress.clear()
        self._member.released()

    async def _delete_owner_nodes(self) -> None:
        """Delete this member's owner nodes; others' nodes may be there if a claim's response was
        lost.
        """
        await asyncio.gather(*(self._delete_owner(p) for p in self._member.claims))

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
        claim = self._member.claim(view)
        if claim is None:
            return
        thread = self._member.thread.encode()
        try:
            await self._zookeeper.multi(
                [
                    Check(znodes.member_path(self._group, self.id)),
                    *(Create(self._owner_path(p), thread, ephemeral=True) for p in claim),
                ]
            )
        except (NodeExists, NoNode) as error:
            self._same(session)
            self._member.refused()
            if not await self._zookeeper.exists(error.path, self._look_again):
                self._changed.set()
            return
        await self._start_reading(claim, session)
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
        """Raises SessionExpired if the session has changed. To be called after each wait: work of
        another session is void.
        """
        if session != self._member.session:
            raise SessionExpired

    async def _view(self) -> GroupView:
        """Return the group as it is now; `_changed` is set once it changes."""
        self._changed.clear()
        zookeeper = self._zookeeper
        all_threads: dict[str, list[str]] = {topic: [] for topic in self._topics}
        for member in await zookeeper.children(znodes.members_path(self._group), self._look_again):
            with contextlib.suppress(NoNode):
                data, _ = await zookeeper.get(znodes.member_path(self._group, member))
                registration = znodes.decode_member(self._group, member, data)
                for topic in self._topics:
                    all_threads[topic] += threads(member, registration, topic)
        partitions = {topic: await self._partitions(topic) for topic in self._topics}
        self._brokers = await self._addresses()
        return GroupView(
            {topic: tuple(sorted(those)) for topic, those in all_threads.items()},
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
        """Return the addresses of the brokers with this client's security protocol."""
        addresses: list[str] = []
        for broker in await self._children(znodes.BROKER_IDS):
            with contextlib.suppress(NoNode):
                data, _ = await self._zookeeper.get(znodes.broker_path(int(broker)))
                addresses += (
                    f"[{e.host}]:{e.port}" if ":" in e.host else f"{e.host}:{e.port}"
                    for e in znodes.decode_broker(int(broker), data).endpoints
                    if e.protocol == self._reading.security_protocol
                )
        return addresses

    async def _children(self, path: str) -> Sequence[str]:
        try:
            return await self._zookeeper.children(path, self._look_again)
        except NoNode:
            if await self._zookeeper.exists(path, self._look_again):
                self._changed.set()
            return ()

    async def _make_parents(self) -> None:
        """Create the parents of owner and offset nodes, which are created in transactions."""
        for topic in self._topics:
            for path in (
                znodes.owner_path(self._group, topic, 0),
                znodes.offset_path(self._group, topic, 0),
            ):
                with contextlib.suppress(NodeExists):
                    await self._zookeeper.create(path.rpartition("/")[0], make_parents=True)

    # Reading and offsets

    async def _start_reading(self, partitions: Sequence[TopicPartition], session: int) -> None:
        stored = await asyncio.gather(*(self._read_stored_offset(p) for p in partitions))
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
            self._starting = asyncio.create_task(self._initialize_offsets(consumer, fresh))

    async def _read_stored_offset(self, partition: TopicPartition) -> int | None:
        try:
            data, _ = await self._zookeeper.get(self._offset_path(partition))
        except NoNode:
            return None
        return znodes.decode_offset(self._group, partition, data)

    async def _reader(self) -> Consumer:
        """Return the inner consumer; a new one if none of its bootstrap brokers exists any more."""
        if self._consumer is not None and not set(self._brokers).isdisjoint(self._bootstrap):
            return self._consumer
        if self._consumer is not None:
            await self._consumer.close()
        self._bootstrap = self._brokers
        properties = self._properties | {"bootstrap.servers": ",".join(self._brokers)}
        self._consumer = Consumer(
            ConsumerConfig.of(properties), **BYTES_IN, now_ms=self._now_ms, random=self._random
        )
        await self._consumer.start()
        self._has_consumer.set()
        return self._consumer

    async def _initialize_offsets(
        self, consumer: Consumer, partitions: Sequence[TopicPartition]
    ) -> None:
        """Determine and write the first offsets of partitions that the group has never read, and
        resume them.
        """
        for partition in partitions:
            try:
                while True:
                    with contextlib.suppress(TimedOut):
                        offset = await consumer.position(partition)
                        self._progress.start(partition, offset, is_written=False)
                        break
            except (ClientError, KafkaError, ProtocolError):
                pass  # The error is stored at the partition, for poll to raise it.
        while True:
            try:
                await self._write_offsets()
                break
            except ZooKeeperError:
                await asyncio.sleep(_PAUSE_S)
            except OwnershipLost:
                self._give_up_partitions()
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
            except OwnershipLost:
                self._give_up_partitions()
            except ZooKeeperError:
                pass  # Retried at the next interval.

    def _give_up_partitions(self) -> None:
        self._member.give_up()
        self._changed.set()

    async def _write_offsets(self) -> None:
        """Write processed offsets, all or none. Raises OwnershipLost."""
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
                await self._handle_changed_nodes(error, offsets)
                continue
            self._progress.wrote(offsets)
            return

    async def _handle_changed_nodes(
        self, error: ZooKeeperError, offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Handle offset nodes that were deleted or created by another client. Raises OwnershipLost
        for other nodes.
        """
        mine = [p for p in offsets if self._offset_path(p) == error.path]
        if not mine:
            raise OwnershipLost from error
        if isinstance(error, NoNode):
            self._progress.forget_written(mine)
            await self._make_parents()
        else:
            self._progress.wrote(dict.fromkeys(mine, -1))

    async def _part(self) -> None:
        self._member.give_up()
        self._stop_reading()
        if self._config.enable_auto_commit:
            with contextlib.suppress(OwnershipLost):
                await self._write_offsets()
        await self._delete_owner_nodes()
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

    # Events

    def _session_changed(self, event: SessionEvent) -> None:
        match event:
            case SessionEvent.CONNECTED:
                self._connected.set()
            case SessionEvent.DISCONNECTED:
                self._connected.clear()
            case SessionEvent.EXPIRED:
                self._stop_reading()
                self._progress.clear()
                self._member.on_session_expiry()
        # Watches are lost with a connection.
        self._changed.set()

    def _look_again(self, _: WatchEvent) -> None:
        self._changed.set()

    def _owner_path(self, partition: TopicPartition) -> str:
        return znodes.owner_path(self._group, *partition)

    def _offset_path(self, partition: TopicPartition) -> str:
        return znodes.offset_path(self._group, *partition)
