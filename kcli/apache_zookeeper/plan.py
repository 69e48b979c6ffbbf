"""The settings of a zookeeper.properties that are needed to start Apache's ZooKeeper.

Pure: the file's text in, values out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kserver.config import properties
from kserver.errors import ConfigError

_SERVER = re.compile(r"server\.(\d+)")
_CLIENTS = re.compile(r";\s*(?:(?P<host>\S+):)?(?P<port>\d+)\s*$")
"""The end of a server's line: the address for clients."""


@dataclass(frozen=True, slots=True)
class ApacheServer:
    """`members` has the line of each server of the ensemble by its number; empty for a single
    server.
    """

    data_dir: str
    address: str
    """Where clients connect, "" for every address."""
    port: int | None
    members: Mapping[int, str]

    def listens_as(self, number: int) -> tuple[str, int] | None:
        """Return where clients of this server of the ensemble connect; None if the file does not
        specify it.
        """
        if self.port is not None:
            return self.address, self.port
        if match := _CLIENTS.search(self.members.get(number, "")):
            return match["host"] or "", int(match["port"])
        return None


def read(text: str, path: str) -> ApacheServer:
    """Parse the file. Raises ConfigError, which names the file, if its syntax is invalid."""
    try:
        values = {entry.key: entry.value.strip() for entry in properties.parse(text)}
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    port = values.get("clientPort", "")
    members = {
        int(match[1]): value
        for key, value in values.items()
        if (match := _SERVER.fullmatch(key)) is not None
    }
    return ApacheServer(
        data_dir=values.get("dataDir", ""),
        address=values.get("clientPortAddress", ""),
        port=int(port) if port.isdecimal() else None,
        members=members,
    )


def member_number(server: ApacheServer, myid: str | None, path: str) -> int:
    """Return the number of the ensemble's server that starts; `myid` is the text of its file, None
    if there is none.

    Raises ConfigError, with the remedy, if no server has that number.
    """
    where = f"{server.data_dir}/myid"
    numbers = ", ".join(map(str, sorted(server.members)))
    if not server.data_dir:
        raise ConfigError(f"{path}: dataDir is missing: the directory of this server's data")
    if myid is None:
        raise ConfigError(
            f"{where} is missing: it holds the number of this server, one of those that {path}"
            f" names with server.N: {numbers}"
        )
    text = myid.strip()
    if not text.isdecimal() or int(text) not in server.members:
        raise ConfigError(
            f"{where} says {text or 'nothing'}, which {path} does not name with server.N: there"
            f" {'is' if len(server.members) == 1 else 'are'} {numbers}"
        )
    return int(text)
