"""A cluster's brokers restarted one by one, each once every partition is in sync again.

    waiting      nothing begins while a partition lacks a leader or a replica
    restarting   the command has been run; the connection that was open to the broker must break
    returning    the broker answers again, and then every partition is in sync

What does not come about in its time ends it all, with the brokers that follow untouched.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kcli.client.descriptions import TopicDescription
from kcli.client.errors import ClientError
from kcli.options import Refused
from kcli.reach import Silent, versions_at
from kserver.errors import KafkaError, ProtocolError
from kserver.model import BrokerId

if TYPE_CHECKING:
    from kcli.client.admin import Admin
    from kcli.client.cluster import Node

LOOK_AGAIN_S = 0.2
NAMED = 5
"""How many partitions are named of those that are not in sync."""
NOT_NOW = (ClientError, KafkaError, ProtocolError, OSError)
"""What a broker that restarts makes of questions."""


class Restarted(NamedTuple):
    broker: BrokerId
    away_s: float
    """From the command's start until it answered again."""
    in_sync_s: float
    """And until every partition was in sync."""


async def order(admin: Admin, wanted: Collection[BrokerId]) -> list[Node]:
    """These brokers, or all, the controller last: it moves once.  Refused for one that is not
    there."""
    described = await admin.describe_cluster()
    there = {node.id: node for node in described.brokers}
    missing = sorted(set(wanted) - there.keys())
    if missing:
        raise Refused(
            f"broker {missing[0]} does not exist; brokers are {', '.join(map(str, there))}"
        )
    chosen = [there[broker] for broker in sorted(set(wanted) or there)]
    return sorted(chosen, key=lambda node: node.id == described.controller_id)


def command_for(template: str, node: Node) -> str:
    """For a shell, to which a host's name is never more than a word."""
    return template.format(broker=node.id, host=shlex.quote(node.host), port=node.port)


async def restart(
    admin: Admin, nodes: Sequence[Node], template: str, wait_s: float
) -> AsyncIterator[Restarted]:
    """One after the other.  Refused where one cannot be restarted, or does not come back within
    `wait_s`, or where a partition is not in sync before."""
    loop = asyncio.get_running_loop()
    for node in nodes:
        await _until(partial(_in_sync, admin), wait_s, f"broker {node.id} was not restarted: ")
        reader, writer = await asyncio.open_connection(node.host, node.port)
        began = loop.time()
        try:
            await _run(command_for(template, node), node)
            await _broken(reader, wait_s, node)
        finally:
            writer.close()
        await _until(
            partial(_answers, admin, node),
            wait_s,
            f"broker {node.id} did not come back: ",
        )
        away_s = loop.time() - began
        await _until(partial(_in_sync, admin), wait_s, f"broker {node.id} is back, but ")
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
    """The broker has ended: nobody else closes a connection on which nothing was asked."""
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
    """Until nothing is left that `look` would tell; what counts is a look that began after the
    time was up, for one may take as long."""
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


async def _answers(admin: Admin, node: Node) -> str:
    """Why it does not."""
    try:
        await versions_at(admin, node)
    except Silent as error:
        return str(error)
    return ""


async def _in_sync(admin: Admin) -> str:
    """Which partitions are not led, or lack a replica in sync."""
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
    more = f" and {len(lacking) - NAMED} more" if len(lacking) > NAMED else ""
    return f"not in sync: {', '.join(lacking[:NAMED])}{more}"
