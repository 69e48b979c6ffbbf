"""Leader elections on request: ElectLeaders (key 43), at the controller."""

from __future__ import annotations

import asyncio
import datetime
from collections import defaultdict
from collections.abc import Iterable

from kcli.client.cluster import Cluster, To
from kcli.client.controller import was_refused
from kcli.client.errors import refusal_of
from kcli.client.offsets import left_out
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
    done: dict[TopicPartition, KafkaError | None] = {}

    async def attempt() -> None:
        peer = await cluster.peer(To.CONTROLLER)
        version = peer.version(ApiKey.ELECT_LEADERS)
        if version < FIRST_WITH_TYPES and election is not ElectionType.PREFERRED:
            raise KafkaError(ErrorCode.unsupported_version, f"{peer} elects preferred leaders only")
        new = versions.request(ApiKey.ELECT_LEADERS, version)
        by_topic: dict[str, list[int]] = defaultdict(list)
        for topic, number in selection or ():
            if (topic, number) not in done:
                by_topic[topic].append(number)
        topic_partitions = [
            new.topic_partitions(topic=topic, partitions=tuple(numbers))
            for topic, numbers in by_topic.items()
        ]
        # The controller waits for new leaders as long as the caller does.
        left_s = max(deadline - asyncio.get_running_loop().time(), 0)
        answer = await peer.call(
            new(
                election_type=election,
                topic_partitions=None if selection is None else topic_partitions,
                timeout=datetime.timedelta(milliseconds=int(left_s * 1000)),
            )
        )
        code = getattr(answer, "error_code", ErrorCode.none)
        if code is not ErrorCode.none:
            raise was_refused(cluster, KafkaError(code))
        again: KafkaError | None = None
        for topic in answer.replica_election_results:
            for result in topic.partition_result:
                refused = refusal_of(result)
                # Only these are requested from the next controller; other results are final.
                if refused is not None and refused.code is ErrorCode.not_controller:
                    again = refused
                else:
                    done[TopicPartition(topic.topic, result.partition_id)] = refused
        if again is not None:
            raise was_refused(cluster, again)

    if selection != []:
        await cluster.retry("electLeaders", deadline, attempt)
    if selection is None:
        return done
    return {partition: done.get(partition, left_out()) for partition in selection}
