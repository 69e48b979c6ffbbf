"""Whether an address can be reached from this machine, and the broker there answers."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kcli.client.errors import ClientError
from kcli.running import reason
from kserver.errors import KafkaError, ProtocolError

if TYPE_CHECKING:
    from kcli.client.admin import Admin
    from kcli.client.cluster import Node

ANSWER_S = 5.0
"""How long an address may take to answer."""


async def unreachable(host: str, port: int) -> str:
    """Why no connection can be made there; "" where one can."""
    try:
        async with asyncio.timeout(ANSWER_S):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return f"nothing answers at {host}:{port}"
    except socket.gaierror:
        return f"the name {host} is not known here"
    except OSError as error:
        return f"{host}:{port}: {told(error)}"
    writer.close()
    return ""


def told(error: OSError) -> str:
    """What is wrong: asyncio's own text has the address in its place."""
    return os.strerror(error.errno) if error.errno else str(error)


class Silent(Exception):
    """Nobody answers as a broker does; the text says why."""


async def versions_at(admin: Admin, node: Node) -> Mapping[int, tuple[int, int]]:
    """The versions of each API key that the broker tells.  Raises Silent: also of a process that
    dies, which takes connections for a moment more."""
    if why := await unreachable(node.host, node.port):
        raise Silent(why)
    try:
        async with asyncio.timeout(ANSWER_S):
            return await admin.api_versions(node)
    except (TimeoutError, ClientError, KafkaError, ProtocolError, OSError) as error:
        why = reason(error) or "it does not answer"
        raise Silent(f"{node.host}:{node.port} does not speak Kafka: {why}") from error
