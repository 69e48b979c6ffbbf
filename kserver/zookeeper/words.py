"""The four-letter words, with which monitors and scripts ask a ZooKeeper how it is.

Pure: figures in, text out.

    ruok   imok                          conf   the settings
    srvr   figures of the server         cons   the connections
    stat   srvr, and the connections     wchs   how many watches
    mntr   figures, a line each          envi   the environment
    isro   rw

`4lw.commands.whitelist` names those that are answered; srvr always is.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

KNOWN = frozenset(
    (
        *("conf", "cons", "crst", "dirs", "dump", "envi", "gtmk", "hash", "isro", "mntr"),
        *("ruok", "srst", "srvr", "stat", "stmk", "wchc", "wchp", "wchs"),
    )
)
"""Those of ZooKeeper; what of them is not answered here says so."""
ALWAYS = "srvr"
EVERY = "*"


class Client(NamedTuple):
    host: str
    port: int
    session: int
    timeout_ms: int
    waiting: int
    requests: int
    answers: int


class Report(NamedTuple):
    version: str
    zxid: int
    nodes: int
    data_bytes: int
    ephemerals: int
    sessions: int
    watchers: int
    watched_paths: int
    watches: int
    latency_ms: tuple[int, float, int]
    """Least, mean, most."""
    requests: int
    answers: int
    clients: Sequence[Client]
    settings: Mapping[str, object]
    environment: Mapping[str, str]

    @property
    def outstanding(self) -> int:
        return sum(client.waiting for client in self.clients)


def word(first: int) -> str | None:
    """The word that a connection opens with instead of a frame, of which this is the length."""
    try:
        letters = struct.pack(">i", first).decode("ascii")
    except UnicodeDecodeError:
        return None
    return letters if letters in KNOWN else None


def answer(word: str, report: Report, allowed: Collection[str]) -> str:
    if word != ALWAYS and word not in allowed and EVERY not in allowed:
        return f"{word} is not executed because it is not in the whitelist.\n"
    match word:
        case "ruok":
            return "imok"
        case "isro":
            return "rw"
        case "srvr":
            return _server(report)
        case "stat":
            clients = "".join(f" {_client(client)})\n" for client in report.clients)
            version, _, rest = _server(report).partition("\n")
            return f"{version}\nClients:\n{clients}\n{rest}"
        case "cons":
            lines = (f" {_client(client)}{_session(client)})\n" for client in report.clients)
            return "".join(lines) + "\n"
        case "conf":
            return "".join(f"{key}={value}\n" for key, value in report.settings.items())
        case "envi":
            rows = (f"{key}={value}\n" for key, value in report.environment.items())
            return "Environment:\n" + "".join(rows)
        case "mntr":
            return "".join(f"zk_{key}\t{value}\n" for key, value in _figures(report).items())
        case "wchs":
            return (
                f"{report.watchers} connections watching {report.watched_paths} paths\n"
                f"Total watches:{report.watches}\n"
            )
    return f"{word} is not answered by this server.\n"


def _server(report: Report) -> str:
    least, mean, most = report.latency_ms
    return (
        f"Zookeeper version: {report.version}\n"
        f"Latency min/avg/max: {least}/{mean:.4g}/{most}\n"
        f"Received: {report.requests}\n"
        f"Sent: {report.answers}\n"
        f"Connections: {len(report.clients)}\n"
        f"Outstanding: {report.outstanding}\n"
        f"Zxid: {report.zxid:#x}\n"
        "Mode: standalone\n"
        f"Node count: {report.nodes}\n"
    )


def _figures(report: Report) -> dict[str, object]:
    least, mean, most = report.latency_ms
    return {
        "version": report.version,
        "server_state": "standalone",
        "min_latency": least,
        "avg_latency": f"{mean:.4g}",
        "max_latency": most,
        "packets_received": report.requests,
        "packets_sent": report.answers,
        "num_alive_connections": len(report.clients),
        "outstanding_requests": report.outstanding,
        "znode_count": report.nodes,
        "watch_count": report.watches,
        "ephemerals_count": report.ephemerals,
        "approximate_data_size": report.data_bytes,
        "global_sessions": report.sessions,
    }


def _client(client: Client) -> str:
    return (
        f"/{client.host}:{client.port}[1](queued={client.waiting},recved={client.requests},"
        f"sent={client.answers}"
    )


def _session(client: Client) -> str:
    return f",sid={client.session:#x},to={client.timeout_ms}" if client.session else ""
