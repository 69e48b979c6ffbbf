"""Functions that the group APIs share: requests to the coordinator, and topics by name or id."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable, Iterable
from typing import Any

from kserver.api.context import Context, Parts
from kserver.errors import ErrorCode, KafkaError
from kserver.group.requests import NO_TOPIC_ID, Commit
from kserver.metadata import ClusterMetadata, TopicInfo
from kserver.network.conversation import Pending, Response

MILLISECOND = datetime.timedelta(milliseconds=1)

TOO_LARGE = (ErrorCode.message_too_large, ErrorCode.record_list_too_large)


async def ask(group_id: str, request: Any, context: Context) -> Any:
    """Return the coordinator's response for the group; raises KafkaError."""
    try:
        return await context.parts.groups.ask(group_id, request)
    except KafkaError as error:
        raise _client_error(error) from error


def respond(group_id: str, request: Any, parts: Parts, write: Callable[[Any], bytes]) -> Response:
    """Do the same without a task: respond at once if there is a result, else when there is one.

    `write` encodes the frame from the result or a KafkaError.
    """
    ticket = ask_now(group_id, request, parts)
    if isinstance(ticket, KafkaError) or ticket.done():
        return write(result_of(ticket))
    pending = Pending(exclusive=True)

    def done(_: asyncio.Future[Any]) -> None:
        if not ticket.cancelled():
            pending.complete(write(result_of(ticket)))

    def abandoned() -> None:
        ticket.cancel()

    ticket.add_done_callback(done)
    pending.on_abandoned = abandoned
    return pending


def ask_now(group_id: str, request: Any, parts: Parts) -> asyncio.Future[Any] | KafkaError:
    """Return the future response, or the error if there will be none."""
    try:
        return parts.groups.ask(group_id, request)
    except KafkaError as error:
        return error


def result_of(outcome: asyncio.Future[Any] | KafkaError) -> Any:
    """Return the result, or a KafkaError."""
    if isinstance(outcome, KafkaError):
        return _client_error(outcome)
    error = outcome.exception()
    if error is None:
        return outcome.result()
    assert isinstance(error, KafkaError)
    return _client_error(error)


def _client_error(error: KafkaError) -> KafkaError:
    if error.code in TOO_LARGE:
        # The client sent no record, so this error would confuse it (Kafka maps it to this one too).
        return KafkaError(ErrorCode.unknown_server_error, error.message)
    return error


def resolve_topic(topic: Any, image: ClusterMetadata) -> tuple[TopicInfo | None, ErrorCode]:
    """Return the topic that a client names or identifies, and the error to use if it is None."""
    if hasattr(topic, "topic_id"):
        info = None if topic.topic_id is None else image.topic_by_id(topic.topic_id)
        return info, ErrorCode.unknown_topic_id
    return image.topics.get(topic.name), ErrorCode.unknown_topic_or_partition


def commits(topics: Iterable[tuple[Any, TopicInfo | None, ErrorCode]]) -> list[Commit]:
    """Return the commits of existing partitions, for topics with their `resolve_topic` results."""
    return [
        Commit(
            info.name,
            info.id or NO_TOPIC_ID,
            partition.partition_index,
            partition.committed_offset,
            getattr(partition, "committed_leader_epoch", -1),
            partition.committed_metadata,
        )
        for topic, info, _ in topics
        if info is not None
        for partition in topic.partitions
        if exists(partition, info)
    ]


def exists(partition: Any, info: TopicInfo) -> bool:
    index: int = partition.partition_index
    return 0 <= index < len(info.partitions)
