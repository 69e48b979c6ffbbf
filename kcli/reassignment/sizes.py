"""Sizes of replicas, as their brokers report them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kserver.errors import KafkaError
from kserver.model import BrokerId, TopicPartition

if TYPE_CHECKING:
    from kcli.client.admin.admin import Admin


async def bytes_of_replicas(
    admin: Admin, brokers: Iterable[BrokerId]
) -> dict[tuple[BrokerId, TopicPartition], int]:
    """Return the sizes of the replicas that these brokers report."""
    return {
        (broker, replica.partition): replica.size
        for broker, directories in (await admin.describe_log_dirs(brokers)).items()
        if not isinstance(directories, KafkaError)
        for directory in directories
        for replica in directory.replicas
        if not replica.is_future
    }
