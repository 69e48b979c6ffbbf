"""`k console-consumer --zookeeper`: the console's reading as a member of a ZooKeeper group."""

from __future__ import annotations

import logging
import random
import socket
import time
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kcli.command.options import Refused
from kcli.command.output import complain
from kcli.zookeeper_consumer.config import split
from kcli.zookeeper_consumer.consumer import ZookeeperConsumer
from kserver.errors import StorageError
from kserver.world.kazoo import KazooZooKeeper
from kserver.world.zookeeper import ZooKeeperError

if TYPE_CHECKING:
    from kcli.console.reading import Reading

_MADE_UP_GROUPS = 100_000


async def read(reading: Reading, topic: str, properties: Mapping[str, str]) -> None:
    """Read until the reading ends. Without group.id a group is generated that leaves nothing
    behind, as in Kafka's old script. Raises errors of the consumer's poll, and Refused.
    """
    lasting = "group.id" in properties
    made_up = {"group.id": f"console-consumer-{random.randrange(_MADE_UP_GROUPS)}"}
    # It logs every attempt to connect.
    logging.getLogger("kazoo").setLevel(logging.ERROR)
    properties = made_up | dict(properties)
    config, _ = split(properties)
    timeout_ms = config.zookeeper_session_timeout_ms
    zookeeper = KazooZooKeeper(
        config.zookeeper_connect,
        session_timeout_ms=timeout_ms,
        connection_timeout_ms=config.zookeeper_connection_timeout_ms or timeout_ms,
    )
    consumer = ZookeeperConsumer(
        properties,
        [topic],
        zookeeper,
        name=f"{socket.gethostname()}-{_now_ms()}-{uuid.uuid4().hex[:8]}",
        now_ms=_now_ms,
        lasting=lasting,
    )
    for warning in consumer.warnings:
        complain(warning)
    try:
        async with consumer:
            await reading.print_all(consumer.poll_batches)
    except (StorageError, ZooKeeperError) as error:
        raise Refused(str(error)) from error


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
