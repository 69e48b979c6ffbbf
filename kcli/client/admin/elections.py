"""Leader elections on request: ElectLeaders (key 43), at the controller."""

from __future__ import annotations

import asyncio
import datetime
from collections import defaultdict
from collections.abc import Iterable

from kcli.client.cluster import Cluster, To
from kcli.client.controller import forget_if_not_controller
from kcli.client.errors import refusal_of
from kcli.client.offsets import missing_from_response
from kserver.errors import ErrorCode, KafkaError
from kserver.model import ElectionType, TopicPartition
from kserver.wire import versions
from kserver.wire.api_key import ApiKey

# First version with unclean elections, and with one error for the whole response (KIP-460).
FIRST_WITH_TYPES = 1


async def elect(
    cluster: Cluster,
    election: ElectionType,
    partitions: Iterable[TopicPartition] | None,
    deadline: float,
) -> dict[TopicPartition, KafkaError | None]:
    """Return the outcome of each partition: None if a leader was elected, ELECTION_NOT_NEEDED if
    the right one leads. With None for all partitions the result has only those that needed an
    election.

    Raises KafkaError if the whole request is refused: CLUSTER_AUTHORIZATION_FAILED, or
    UNSUPPORTED_VERSION for an unclean election by a broker that is too old.
    """
    selection = None if partitions is None else list(dict.fromkeys(partitions))
    results: dict[TopicPartition, KafkaError | None] = {}

    async def attempt() -> None:
        peer = await cluster.peer(To.CONTROLLER)
        version = peer.version(ApiKey.ELECT_LEADERS)
        if version < FIRST_WITH_TYPES and election is not ElectionType.PREFERRED:
            raise KafkaError(ErrorCode.unsupported_version, f"{peer} elects preferred leaders only")
        new = versions.request(ApiKey.ELECT_LEADERS, version)
        by_topic: dict[str, list[int]] = defaultdict(list)
        for topic, number in selection or ():
            if (topic, number) not in results:
                by_topic[topic].append(number)
        topic_partitions = [
            new.topic_partitions(topic=topic, partitions=tuple(numbers))
            for topic, numbers in by_topic.items()
        ]
        # The controller waits for new leaders as long as the caller does.
        remaining_s = max(deadline - asyncio.get_running_loop().time(), 0)
        response = await peer.call(
            new(
                election_type=election,
                topic_partitions=None if selection is None else topic_partitions,
                timeout=datetime.timedelta(milliseconds=int(remaining_s * 1000)),
            )
        )
        code = getattr(response, "error_code", ErrorCode.none)
        if code is not ErrorCode.none:
            raise forget_if_not_controller(cluster, KafkaError(code))
        again: KafkaError | None = None
        for topic in response.replica_election_results:
            for result in topic.partition_result:
                refusal = refusal_of(result)
                # Only these are requested from the next controller; other results are final.
                if refusal is not None and refusal.code is ErrorCode.not_controller:
                    again = refusal
                else:
                    results[TopicPartition(topic.topic, result.partition_id)] = refusal
        if again is not None:
            raise forget_if_not_controller(cluster, again)

    if selection != []:
        await cluster.retry("electLeaders", deadline, attempt)
    if selection is None:
        return results
    return {partition: results.get(partition, missing_from_response()) for partition in selection}
