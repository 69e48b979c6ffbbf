"""What a broker hosts, as the cluster's metadata changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from kserver.metadata import ClusterMetadata, MetadataCache, PartitionInfo, TopicInfo
from kserver.model import BrokerId, TopicPartition
from kserver.replica.manager import ReplicaManager
from kserver.replica.purgatory import Purgatory
from tests.unit.log.test_manager import Host, run

ME: BrokerId = 0
PLACES: Sequence[tuple[BrokerId, ...]] = [(ME,), (ME, 1), (1, ME), (1,), (1, 2)]


def placed(image: ClusterMetadata) -> dict[TopicPartition, tuple[UUID, bool, int]]:
    """What `image` places here: topic id, whether this broker leads, leader epoch."""
    return {
        TopicPartition(topic.name, p.partition): (topic.id, p.leader == ME, p.leader_epoch)
        for topic in image.topics.values()
        for p in topic.partitions
        if ME in p.replicas
    }


def test_a_change_told_by_its_topics_leads_where_the_whole_image_would() -> None:
    async def scenario(host: Host) -> None:
        random = host.loop.random
        logs = await host.start()
        metadata = MetadataCache(ClusterMetadata("cluster", ME))
        replicas = ReplicaManager(
            ME, lambda: host.config, logs, metadata, Purgatory(host.loop), host.loop
        )
        await replicas.settle()
        most = 0
        for step in range(80):
            image = metadata.current
            changed: dict[str, TopicInfo] = {}
            deleted: set[str] = set()
            for name in random.sample("abcde", random.randint(1, 3)):
                before = image.topics.get(name)
                if before is not None and random.random() < 0.3:
                    deleted.add(name)
                    continue
                if before is None or random.random() < 0.2:
                    # Of a name that was there already: deleted and made again since.
                    before = TopicInfo(name, UUID(int=1000 * step + ord(name)), ())
                old = [replace(p, leader_epoch=p.leader_epoch + 1) for p in before.partitions]
                number = len(old)
                replica_ids = random.choice(PLACES)
                new = PartitionInfo(number, replica_ids[0], 0, replica_ids, replica_ids)
                changed[name] = replace(before, partitions=(*old, new))
            metadata.update(image.with_topics(changed, frozenset(deleted)))
            image = metadata.current
            assert image.topic_names == {topic.id: name for name, topic in image.topics.items()}
            replicas.apply(image, changed.keys() | deleted)
            hosted = {p.topic_partition: p for p in replicas.partitions.values()}
            assert {key: (p.topic_id, p.is_leader, p.epoch) for key, p in hosted.items()} == placed(
                image
            )
            assert logs.logs.keys() == hosted.keys()
            replicas.apply(image)
            assert list(replicas.partitions.values()) == list(hosted.values())
            most = max(most, len(hosted))
        assert most > 5

    for seed in range(5):
        run(scenario, seed=seed)
