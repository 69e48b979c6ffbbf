"""Restarts a cluster's brokers one by one, each once every partition is in sync again.

    waiting      nothing begins while a partition lacks a leader or a replica
    restarting   the command has been run; the open connection to the broker has to break
    returning    the broker responds again, and then every partition is in sync

A step that exceeds its time ends the whole run; the following brokers are not touched.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kcli.client.admin.descriptions import TopicDescription
from kcli.client.errors import ClientError
from kcli.command.options import Refused
from kcli.servers.reachability import BrokerUnreachable, versions_at
from kserver.errors import KafkaError, ProtocolError
from kserver.model import BrokerId

if TYPE_CHECKING:
    from kcli.client.admin.admin import Admin
    from kcli.client.cluster import Node

LOOK_AGAIN_S = 0.2
MAX_NAMES = 5
"""Maximum number of out-of-sync partitions that are named."""
NOT_NOW = (ClientError, KafkaError, ProtocolError, OSError)
"""Errors of requests to a broker that restarts."""


class Restarted(NamedTuple):
    broker: BrokerId
    away_s: float
    """Seconds from the command's start until it responded again."""
    in_sync_s: float
    """Seconds until every partition was in sync."""


async def order(admin: Admin, brokers: Collection[BrokerId]) -> list[Node]:
    """Return these brokers, or all, the controller last, so that it moves only once. Raises Refused
    if one does not exist.
    """
    described = await admin.describe_cluster()
    there = {node.id: node for node in described.brokers}
    missing = sorted(set(brokers) - there.keys())
    if missing:
        raise Refused(
            f"broker {missing[0]} does not exist; brokers are {', '.join(map(str, there))}"
        )
    nodes = [there[broker] for broker in sorted(set(brokers) or there)]
    return sorted(nodes, key=lambda node: node.id == described.controller_id)


def command_for(template: str, node: Node) -> str:
    """Return the command for a shell, with the host quoted as one word."""
    return template.format(broker=node.id, host=shlex.quote(node.host), port=node.port)


async def restart(
    admin: Admin, nodes: Sequence[Node], template: str, wait_s: float
) -> AsyncIterator[Restarted]:
    """Restart brokers one after the other. Raises Refused if one cannot be restarted, does not
    return within `wait_s`, or a partition is not in sync before.
    """
    loop = asyncio.get_running_loop()
    for node in nodes:
        await _until(
            partial(_out_of_sync_reason, admin), wait_s, f"broker {node.id} was not restarted: "
        )
        reader, writer = await asyncio.open_connection(node.host, node.port)
        began = loop.time()
        try:
            await _run(command_for(template, node), node)
            await _broken(reader, wait_s, node)
        finally:
            writer.close()
        await _until(
            partial(_unreachable_reason, admin, node),
            wait_s,
            f"broker {node.id} did not come back: ",
        )
        away_s = loop.time() - began
        await _until(partial(_out_of_sync_reason, admin), wait_s, f"broker {node.id} is back, but ")
        yield Restarted(node.id, away_s, loop.time() - began)


async def _run(command: str, node: Node) -> None:
    process = await asyncio.create_subprocess_shell(command, stdin=subprocess.DEVNULL)
    try:
        status = await process.wait()
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        raise
    if status != 0:
        raise Refused(f"broker {node.id} was not restarted: status {status} of {command}")


async def _broken(reader: asyncio.StreamReader, wait_s: float, node: Node) -> None:
    """Wait until the broker has ended: only then is an idle connection closed."""
    try:
        async with asyncio.timeout(wait_s):
            with contextlib.suppress(ConnectionError):
                await reader.read()
    except TimeoutError:
        raise Refused(
            f"broker {node.id} is still running: its connections are open {wait_s:g} s after the "
            "command"
        ) from None


async def _until(look: Callable[[], Awaitable[str]], wait_s: float, otherwise: str) -> None:
    """Wait until `look` returns no reason. After the deadline one more complete look decides, since
    a look may take as long.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_s
    while True:
        is_late = loop.time() > deadline
        why = await look()
        if not why:
            return
        if is_late:
            raise Refused(otherwise + why)
        await asyncio.sleep(LOOK_AGAIN_S)


async def _unreachable_reason(admin: Admin, node: Node) -> str:
    """Return why the broker does not respond, or ""."""
    try:
        await versions_at(admin, node)
    except BrokerUnreachable as error:
        return str(error)
    return ""


async def _out_of_sync_reason(admin: Admin) -> str:
    """Return which partitions have no leader or lack a replica in sync, or ""."""
    try:
        topics = await admin.describe_topics([topic.name for topic in await admin.list_topics()])
    except NOT_NOW as error:
        return f"partitions cannot be described: {error}"
    lacking = [
        f"{topic.name}-{partition.partition}"
        for _, topic in sorted(topics.items())
        if isinstance(topic, TopicDescription)
        for partition in topic.partitions
        if partition.leader is None or set(partition.isr) != set(partition.replicas)
    ]
    if not lacking:
        return ""
    more = f" and {len(lacking) - MAX_NAMES} more" if len(lacking) > MAX_NAMES else ""
    return f"not in sync: {', '.join(lacking[:MAX_NAMES])}{more}"
