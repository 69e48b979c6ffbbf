"""The quorum of controllers: DescribeQuorum (key 55), which only KRaft clusters support."""

from __future__ import annotations

from kserver.errors import ErrorCode, KafkaError
from kserver.model import BrokerId
from kserver.peer import Peer
from kserver.wire import versions
from kserver.wire.api_key import ApiKey

_TOPIC = "__cluster_metadata"


async def leader(peer: Peer) -> BrokerId | None:
    """Return the active controller, or None. Raises KafkaError, for example without authorization.

    Metadata names any broker instead, because clients are not to connect to a controller.
    """
    new = versions.request(ApiKey.DESCRIBE_QUORUM, peer.version(ApiKey.DESCRIBE_QUORUM))
    partitions = [new.topics.partitions(partition_index=0)]
    response = await peer.call(new(topics=[new.topics(topic_name=_TOPIC, partitions=partitions)]))
    if response.error_code != ErrorCode.none:
        raise KafkaError(response.error_code)
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code != ErrorCode.none:
                raise KafkaError(partition.error_code)
            return partition.leader_id if partition.leader_id >= 0 else None
    return None
