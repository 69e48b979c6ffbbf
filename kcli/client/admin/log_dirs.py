"""Log directories: DescribeLogDirs (key 35) and AlterReplicaLogDirs (key 34), sent to the broker
they concern.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping

from kcli.client import arguments
from kcli.client.admin.descriptions import LogDirDescription, ReplicaInLogDirectory
from kcli.client.cluster import Cluster
from kcli.client.errors import ClientError
from kcli.client.offsets import missing_from_response
from kserver.errors import ErrorCode, KafkaError
from kserver.model import BrokerId, TopicPartition
from kserver.wire import versions
from kserver.wire.api_key import ApiKey


async def describe(
    cluster: Cluster, brokers: Iterable[BrokerId], deadline: float
) -> dict[BrokerId, list[LogDirDescription] | KafkaError]:
    async def ask_again(broker: BrokerId) -> list[LogDirDescription] | KafkaError:
        try:
            return await cluster.retry(
                "describeLogDirs", deadline, lambda: describe_at(cluster, broker)
            )
        except KafkaError as error:
            return error

    ids = list(dict.fromkeys(arguments.all_of(int, "brokers", brokers)))
    responses = await asyncio.gather(*map(ask_again, ids))
    return dict(zip(ids, responses, strict=True))


async def describe_at(cluster: Cluster, broker: BrokerId) -> list[LogDirDescription]:
    """Return the log directories of one broker, without retries. Raises KafkaError if it refuses,
    OSError if it does not respond.
    """
    peer = await cluster.peer(broker)
    new = versions.request(ApiKey.DESCRIBE_LOG_DIRS, peer.version(ApiKey.DESCRIBE_LOG_DIRS))
    response = await peer.call(new(topics=None))
    code = getattr(response, "error_code", ErrorCode.none)
    if code != ErrorCode.none:
        raise KafkaError(code)
    return [
        LogDirDescription(
            result.log_dir,
            None if result.error_code == ErrorCode.none else KafkaError(result.error_code),
            [
                ReplicaInLogDirectory(
                    TopicPartition(topic.name, p.partition_index),
                    p.partition_size,
                    p.offset_lag,
                    p.is_future_key,
                )
                for topic in result.topics
                for p in topic.partitions
            ],
            _size_or_none(getattr(result, "total_bytes", -1)),
            _size_or_none(getattr(result, "usable_bytes", -1)),
            getattr(result, "is_cordoned", False),
        )
        for result in response.results
    ]


async def alter(
    cluster: Cluster, broker: BrokerId, paths: Mapping[TopicPartition, str], deadline: float
) -> dict[TopicPartition, KafkaError | None]:
    if not isinstance(broker, int):
        raise ClientError(f"broker is the id of a broker, an int, not {broker!r}")
    by_path: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for (topic, partition), path in arguments.by_partition("paths", paths).items():
        if not isinstance(path, str):
            raise ClientError(f"the path of {topic}-{partition} is a str, not {path!r}")
        by_path[path][topic].append(partition)

    async def ask() -> dict[TopicPartition, KafkaError | None]:
        peer = await cluster.peer(broker)
        new = versions.request(
            ApiKey.ALTER_REPLICA_LOG_DIRS, peer.version(ApiKey.ALTER_REPLICA_LOG_DIRS)
        )
        response = await peer.call(
            new(
                dirs=[
                    new.dirs(
                        path=path,
                        topics=[
                            new.dirs.topics(name=name, partitions=tuple(partitions))
                            for name, partitions in topics.items()
                        ],
                    )
                    for path, topics in by_path.items()
                ]
            )
        )
        return {
            TopicPartition(topic.topic_name, p.partition_index): None
            if p.error_code == ErrorCode.none
            else KafkaError(p.error_code)
            for topic in response.results
            for p in topic.partitions
        }

    if not paths:
        return {}
    results = await cluster.retry("alterReplicaLogDirs", deadline, ask)
    return {partition: results.get(partition, missing_from_response()) for partition in paths}


def _size_or_none(size: int) -> int | None:
    return None if size < 0 else size
