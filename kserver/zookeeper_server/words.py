"""The four-letter words, with which monitors and scripts query a ZooKeeper server.

Pure: figures in, text out.

    ruok   imok                          conf   the settings
    srvr   figures of the server         cons   the connections
    stat   srvr, and the connections     wchs   number of watches
    mntr   figures, a line each          envi   the environment
    isro   rw                            wchc   the paths that each session watches
    dirs   bytes on disk                 wchp   the sessions that watch each path
    crst   reset connections' figures    dump   the sessions, and their ephemeral nodes
    srst   reset the server's figures

wchc and wchp list every watch that wchs counts; Apache's server lists only those on data.

`4lw.commands.whitelist` names the words that are answered; srvr always is.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

KNOWN = frozenset(
    (
        *("conf", "cons", "crst", "dirs", "dump", "envi", "gtmk", "hash", "isro", "mntr"),
        *("ruok", "srst", "srvr", "stat", "stmk", "wchc", "wchp", "wchs"),
    )
)
"""ZooKeeper's words; the response to one that is not implemented here is a line that says so."""
ALWAYS = "srvr"
EVERY = "*"


class Client(NamedTuple):
    host: str
    port: int
    session: int
    timeout_ms: int
    waiting: int
    requests: int
    responses: int


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
    """Minimum, mean, maximum."""
    requests: int
    responses: int
    clients: Sequence[Client]
    settings: Mapping[str, object]
    environment: Mapping[str, str]
    due_ms: Mapping[int, int]
    """When each session expires, in milliseconds since 1970."""
    owners: Mapping[int, Sequence[str]]
    """Paths of the ephemeral nodes of each session that has some."""
    watched: Sequence[tuple[int, str]]
    """Each session with each path that it watches."""
    disk_bytes: int

    @property
    def outstanding(self) -> int:
        return sum(client.waiting for client in self.clients)


def word(first: int) -> str | None:
    """Return the word that a connection began with instead of a frame length, or None."""
    try:
        letters = struct.pack(">i", first).decode("ascii")
    except UnicodeDecodeError:
        return None
    return letters if letters in KNOWN else None


def is_allowed(word: str, allowed: Collection[str]) -> bool:
    return word == ALWAYS or word in allowed or EVERY in allowed


def response(word: str, report: Report, allowed: Collection[str]) -> str:
    if not is_allowed(word, allowed):
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
        case "wchc":
            return _grouped((f"{session:#x}", path) for session, path in report.watched) + "\n"
        case "wchp":
            return _grouped((path, f"{session:#x}") for session, path in report.watched) + "\n"
        case "dump":
            return _dump(report)
        case "dirs":
            # The snapshot and the log of changes are one file.
            return f"datadir_size: {report.disk_bytes}\nlogdir_size: {report.disk_bytes}\n"
        case "crst":
            return "Connection stats reset.\n"
        case "srst":
            return "Server stats reset.\n"
    return f"{word} is not answered by this server.\n"


def _server(report: Report) -> str:
    least, mean, most = report.latency_ms
    return (
        f"Zookeeper version: {report.version}\n"
        f"Latency min/avg/max: {least}/{mean:.4g}/{most}\n"
        f"Received: {report.requests}\n"
        f"Sent: {report.responses}\n"
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
        "packets_sent": report.responses,
        "num_alive_connections": len(report.clients),
        "outstanding_requests": report.outstanding,
        "znode_count": report.nodes,
        "watch_count": report.watches,
        "ephemerals_count": report.ephemerals,
        "approximate_data_size": report.data_bytes,
        "global_sessions": report.sessions,
    }


def _grouped(pairs: Iterable[tuple[str, str]]) -> str:
    """Print each first value on a line, and its second values below it."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for first, second in pairs:
        groups[first].append(second)
    return "".join(
        f"{first}\n" + "".join(f"\t{second}\n" for second in seconds)
        for first, seconds in groups.items()
    )


def _dump(report: Report) -> str:
    sessions = {session: f"{session:#x}" for session in report.due_ms}
    connections = {
        client.session: f"ip: /{client.host}:{client.port} sessionId: {client.session:#x}"
        for client in report.clients
        if client.session in report.due_ms
    }
    owned = "".join(
        f"{session:#x}:\n" + "".join(f"\t{path}\n" for path in paths)
        for session, paths in report.owners.items()
    )
    return (
        f"SessionTracker dump:\nSession {_by_deadline(sessions, report.due_ms)}"
        f"ephemeral nodes dump:\nSessions with Ephemerals ({len(report.owners)}):\n{owned}"
        f"Connections dump:\nConnections {_by_deadline(connections, report.due_ms)}"
    )


def _by_deadline(lines: Mapping[int, str], due_ms: Mapping[int, int]) -> str:
    """Print the line of each session, below the second at which the session expires."""
    sets: defaultdict[int, list[str]] = defaultdict(list)
    for session, line in lines.items():
        sets[due_ms[session] // 1000].append(line)
    texts = [f"Sets ({len(sets)})/({len(lines)}):\n"]
    for due_s in sorted(sets):
        moment = datetime.fromtimestamp(due_s, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")
        texts.append(f"{len(sets[due_s])} expire at {moment}:\n")
        texts += (f"\t{line}\n" for line in sets[due_s])
    return "".join(texts)


def _client(client: Client) -> str:
    return (
        f"/{client.host}:{client.port}[1](queued={client.waiting},recved={client.requests},"
        f"sent={client.responses}"
    )


def _session(client: Client) -> str:
    return f",sid={client.session:#x},to={client.timeout_ms}" if client.session else ""
