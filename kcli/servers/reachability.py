"""Checks whether an address can be reached from this machine, and whether a broker responds
there.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kcli.client.errors import ClientError
from kcli.command.command_runner import reason
from kserver.errors import KafkaError, ProtocolError

if TYPE_CHECKING:
    from kcli.client.admin.admin import Admin
    from kcli.client.cluster import Node

ANSWER_S = 5.0
"""Seconds for an address to respond."""


async def unreachable(host: str, port: int) -> str:
    """Return why no connection can be made there, or ""."""
    try:
        async with asyncio.timeout(ANSWER_S):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return f"nothing answers at {host}:{port}"
    except socket.gaierror:
        return f"the name {host} is not known here"
    except OSError as error:
        return f"{host}:{port}: {os_reason(error)}"
    writer.close()
    return ""


def os_reason(error: OSError) -> str:
    """Return the reason alone: asyncio's own text contains the address."""
    return os.strerror(error.errno) if error.errno else str(error)


class BrokerUnreachable(Exception):
    """No broker responds; the text has the reason."""


async def versions_at(admin: Admin, node: Node) -> Mapping[int, tuple[int, int]]:
    """Return the versions of each API key that the broker supports. Raises BrokerUnreachable,
    also for a process that is ending, which accepts connections for a moment more.
    """
    if why := await unreachable(node.host, node.port):
        raise BrokerUnreachable(why)
    try:
        async with asyncio.timeout(ANSWER_S):
            return await admin.api_versions(node)
    except (TimeoutError, ClientError, KafkaError, ProtocolError, OSError) as error:
        why = reason(error) or "it does not answer"
        raise BrokerUnreachable(f"{node.host}:{node.port} does not speak Kafka: {why}") from error


def is_resolvable(host: str) -> bool:
    """Whether this is an IP address, or a name that resolves to one."""
    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        return False
    return True
