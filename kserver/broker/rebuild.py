"""Rebuilds a lost metadata store from the logs of a broker with an embedded store.

    data                               source
    cluster, broker                    meta.properties
    topics, partitions, topic ids      the directories' names, partition.metadata
    leader epochs                      leader-epoch-checkpoint
    whether a topic is compacted       cleaner-offset-checkpoint
    producer ids in use                producer snapshots

Everything else is lost: configs of topics and brokers, quotas, feature levels.  To avoid deleting
records, a topic that is not compacted keeps all of them (retention.ms=-1) until its config is
changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from kserver import znodes
from kserver.cluster_config.znode_store import make_persistent
from kserver.config.broker import BrokerConfig
from kserver.coordinator.topics import coordinator_topic
from kserver.errors import StorageError
from kserver.log import checkpoint
from kserver.log.directory import LogDirectory
from kserver.log.leftovers import snapshot_offsets
from kserver.log.producer_state import ProducerStateManager
from kserver.log.segment import SNAPSHOT, segment_path
from kserver.model import INTERNAL_TOPICS, BrokerId, LeaderAndIsr
from kserver.world import World
from kserver.world.disk import Disk
from kserver.world.embedded import EmbeddedZooKeeper
from kserver.world.zookeeper import Create

SPARED_PRODUCER_IDS = 1_000_000
"""Gap above the largest producer id in a snapshot, as later ones may appear in batches only."""
FOREVER_MS = 1 << 62


@dataclass
class FoundTopic:
    """A topic as found in the log directories."""

    name: str
    id: UUID | None = None
    directory: str = ""
    """Directory of the log that has the id."""
    leader_epochs: dict[int, int] = field(default_factory=dict)
    """Newest leader epoch in the log of each partition."""
    is_compacted: bool = False

    @property
    def partitions(self) -> int:
        """Number of partitions, including missing ones."""
        return max(self.leader_epochs) + 1

    @property
    def missing(self) -> list[int]:
        """Partitions without a log, below others that have one: they will be empty."""
        return [p for p in range(self.partitions) if p not in self.leader_epochs]


class Rebuild:
    """`await run()` writes the store, and returns the topics in it."""

    def __init__(self, world: World, config: BrokerConfig, store: EmbeddedZooKeeper) -> None:
        self._world = world
        self._disk: Disk = world.disk
        self._config = config
        self._store = store
        self._topics: dict[str, FoundTopic] = {}
        self._largest_producer_id = -1

    async def run(self) -> Sequence[FoundTopic]:
        """Raises StorageError if a store exists, a broker runs, or logs belong to several
        clusters."""
        if self._disk.exists(self._store.path):
            raise StorageError(f"{self._store.path} already exists: move it away first")
        with contextlib.ExitStack() as stack:
            cluster, broker = None, None
            for path in self._config.log_directories:
                directory = LogDirectory(self._disk, path)
                stored = self._locked(directory)
                stack.callback(directory.unlock)
                if stored is not None:
                    if cluster not in (None, stored.cluster_id):
                        raise StorageError(
                            f"{path} belongs to cluster {stored.cluster_id}, other log.dirs to"
                            f" cluster {cluster}: leave out those that do not belong to this broker"
                        )
                    cluster, broker = stored.cluster_id or cluster, stored.broker_id
                self._look_through(directory)
            if cluster is None:
                where = ", ".join(self._config.log_directories)
                raise StorageError(f"{where}: no meta.properties with a cluster.id found")
            await self._write(cluster, 0 if broker is None else broker)
        return [topic for _, topic in sorted(self._topics.items())]

    def _locked(self, directory: LogDirectory) -> checkpoint.MetaProperties | None:
        if not self._disk.exists(directory.path):
            raise StorageError(f"{directory.path} does not exist: name the log.dirs of the broker")
        try:
            return directory.lock()
        except OSError as error:
            raise StorageError(f"{directory.path}: {error}") from error

    def _look_through(self, directory: LogDirectory) -> None:
        compacted = checkpoint.read_offsets(self._disk, f"{directory.path}/{checkpoint.CLEANED}")
        for topic_partition in directory.topic_partitions():
            path = directory.log_path(topic_partition)
            topic = self._topics.setdefault(
                topic_partition.topic, FoundTopic(topic_partition.topic)
            )
            topic_id = checkpoint.read_topic_id(
                self._disk, f"{path}/{checkpoint.PARTITION_METADATA}"
            )
            if topic_id is not None:
                if topic.id not in (None, topic_id):
                    raise StorageError(
                        f"{path} is of topic id {znodes.uuid_to_text(topic_id)}, {topic.directory}"
                        f" of {znodes.uuid_to_text(topic.id)}: move the one away that is not wanted"
                    )
                topic.id, topic.directory = topic_id, path
            topic.is_compacted |= topic_partition in compacted
            topic.leader_epochs[topic_partition.partition] = self._latest_epoch(path)
            for producer_id in self._producer_ids(path):
                self._largest_producer_id = max(self._largest_producer_id, producer_id)

    def _latest_epoch(self, path: str) -> int:
        path = f"{path}/{checkpoint.LEADER_EPOCHS}"
        epochs = checkpoint.read_epochs(self._disk, path) if self._disk.exists(path) else ()
        return max((entry.epoch for entry in epochs), default=0)

    def _producer_ids(self, path: str) -> Iterator[int]:
        for offset in snapshot_offsets(self._disk, path):
            snapshot = segment_path(path, offset, SNAPSHOT)
            producers = ProducerStateManager(FOREVER_MS)
            with contextlib.suppress(StorageError):  # truncated: an older snapshot exists
                producers.restore(self._disk.read_file(snapshot), snapshot, 0)
            yield from producers.producers

    async def _write(self, cluster: str, broker: BrokerId) -> None:
        store = self._store
        await store.start()
        try:
            await make_persistent(store)
            await store.create(
                znodes.CLUSTER_ID, znodes.encode_cluster_id(cluster), make_parents=True
            )
            first = self._largest_producer_id + 1 + SPARED_PRODUCER_IDS
            block = znodes.ProducerIdBlock(broker, first, first)
            data = znodes.encode_producer_id_block(block)
            if self._largest_producer_id >= 0:
                await store.create(znodes.PRODUCER_ID_BLOCK, data, make_parents=True)
            for topic in self._topics.values():
                await store.multi(self._writes_of(topic, broker))
        except BaseException:
            await store.close()
            # An incomplete store would block the next attempt.
            with contextlib.suppress(OSError):
                self._disk.remove(store.path)
            raise
        await store.close()

    def _writes_of(self, topic: FoundTopic, broker: BrokerId) -> list[Create]:
        replicas = dict.fromkeys(range(topic.partitions), (broker,))
        topic_id = topic.id or UUID(int=self._world.random.getrandbits(128), version=4)
        assignment = znodes.TopicAssignment(topic_id, replicas)
        if topic.name in INTERNAL_TOPICS:
            settings = coordinator_topic(topic.name, self._config).config
        elif topic.is_compacted:
            settings = {"cleanup.policy": "compact"}
        else:
            settings = {"retention.ms": "-1"}
        writes = [
            Create(znodes.topic_path(topic.name), znodes.encode_topic(assignment)),
            Create(
                znodes.config_path(znodes.TOPIC_CONFIGS, topic.name), znodes.encode_config(settings)
            ),
            Create(znodes.partitions_path(topic.name)),
        ]
        for partition in range(topic.partitions):
            epoch = topic.leader_epochs.get(partition, 0)
            state = znodes.encode_state(LeaderAndIsr(broker, epoch, (broker,)))
            writes += [
                Create(znodes.partition_path(topic.name, partition)),
                Create(znodes.state_path(topic.name, partition), state),
            ]
        return writes
