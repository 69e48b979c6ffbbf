"""The shell of ZooKeeper: a line is a command; results are printed as by ZooKeeper's own shell.

Results go to standard output; errors, "Created" and usages to standard error. The status is that of
the last command: 0, 1 if it failed, 127 if there is no such command. (ZooKeeper 3.8: ZooKeeperMain
and its package cli.)
"""

from __future__ import annotations

import re
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from kazoo import exceptions, security
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

from kcli.command.options import Refused
from kcli.command.output import complain, print_output

NOT_FOUND = 127
NOBODY = "no ZooKeeper answers at {}: start it, or correct the address"

_WORD = re.compile(r"\s*([^\"']\S*|\"[^\"]*\"|'[^']*')\s*")
_QUOTED = re.compile(r"(['\"])(.*)\1")
_PERMISSIONS = {"c": 4, "d": 8, "r": 1, "w": 2, "a": 16}
"""In the order in which ZooKeeper prints them."""
_EVENTS = {
    "CREATED": "NodeCreated",
    "DELETED": "NodeDeleted",
    "CHANGED": "NodeDataChanged",
    "CHILD": "NodeChildrenChanged",
}

USAGES = {
    "addWatch": "[-m mode] path # optional mode is one of [PERSISTENT, PERSISTENT_RECURSIVE] - "
    "default is PERSISTENT_RECURSIVE",
    "addauth": "scheme auth",
    "close": "",
    "config": "[-c] [-w] [-s]",
    "connect": "host:port",
    "create": "[-s] [-e] [-c] [-t ttl] path [data] [acl]",
    "delete": "[-v version] path",
    "deleteall": "path [-b batch size]",
    "delquota": "[-n|-b|-N|-B] path",
    "get": "[-s] [-w] path",
    "getAcl": "[-s] path",
    "getAllChildrenNumber": "path",
    "getEphemerals": "path",
    "history": "",
    "listquota": "path",
    "ls": "[-s] [-w] [-R] path",
    "printwatches": "on|off",
    "quit": "",
    "reconfig": "[-s] [-v version] [[-file path] | [-members serverID=host:port1:port2;port3[,...]*"
    "]] | [-add serverId=host:port1:port2;port3[,...]]* [-remove serverId[,...]*]",
    "redo": "cmdno",
    "removewatches": "path [-c|-d|-a] [-l]",
    "set": "[-s] [-v version] path data",
    "setAcl": "[-s] [-v version] [-R] path acl",
    "setquota": "-n|-b|-N|-B val path",
    "stat": "[-w] path",
    "sync": "path",
    "version": "",
    "whoami": "",
}
"""Arguments of each command, in ZooKeeper's words."""
REFUSED = {
    "addWatch", "delquota", "getEphemerals", "listquota", "reconfig", "removewatches", "setquota",
    "whoami",
}  # fmt: skip


class Failed(Exception):
    """A command failed; the text has the reason."""

    def __init__(self, text: str, status: int = 1) -> None:
        super().__init__(text)
        self.status = status


class Ended(Exception):
    """The user entered quit."""


class Words(NamedTuple):
    """A command's options with their values, and the words after them."""

    options: dict[str, str]
    rest: list[str]


class ZooKeeperShell:
    """`connect` opens a session, or raises KazooTimeoutError."""

    def __init__(self, hosts: str, timeout_s: float, *, read_only: bool = False) -> None:
        self.status = 0
        self._hosts = hosts
        self._timeout_s = timeout_s
        self._read_only = read_only
        self._prints_watches = True
        self._history: list[str] = []
        self._client: KazooClient | None = None
        self._commands: dict[str, tuple[str, int, Callable[[Words], None]]] = {
            # Options, those with a value marked by a colon, and the number of required words.
            "ls": ("swR", 1, self._ls),
            "get": ("sw", 1, self._get),
            "set": ("sv:", 2, self._set),
            "create": ("sect:", 1, self._create),
            "delete": ("v:", 1, self._delete),
            "deleteall": ("b:", 1, self._delete_all),
            "stat": ("w", 1, self._stat),
            "getAcl": ("s", 1, self._get_acl),
            "setAcl": ("sv:R", 2, self._set_acl),
            "addauth": ("", 1, self._add_auth),
            "sync": ("", 1, self._sync),
            "getAllChildrenNumber": ("", 1, self._count),
            "config": ("cws", 0, self._config),
            "version": ("", 0, self._version),
            "close": ("", 0, lambda _: self.close()),
        }

    @property
    def prompt(self) -> str:
        state = "CLOSED" if self._client is None else "CONNECTED"
        return f"[zk: {self._hosts}({state}) {len(self._history)}] "

    def connect(self) -> None:
        self.close()
        client = KazooClient(self._hosts, timeout=self._timeout_s, read_only=self._read_only)
        client.start(self._timeout_s)
        self._client = client
        self._event("state:SyncConnected type:None path:null")

    def leave(self) -> None:
        """End the session, if there is one."""
        client, self._client = self._client, None
        if client is not None:
            client.stop()
            client.close()

    def close(self) -> None:
        if self._client is not None:
            self.leave()
            self._event("state:Closed type:None path:null")

    def line(self, line: str) -> None:
        """Run a line that was entered. Raises Ended."""
        if line:
            self._history.append(line)
            self.run([_unquote(word) for word in _WORD.findall(line)])

    def run(self, words: list[str]) -> None:
        """Run one command. Raises Ended."""
        try:
            self._run(words)
            self.status = 0
        except Failed as failed:
            self.status = failed.status
            complain(str(failed))

    def _run(self, words: list[str]) -> None:
        name = words[0] if words else ""
        if name not in USAGES:
            complain("ZooKeeper -server host:port [-zk-tls-config-file <file>] cmd args")
            for command, usage in USAGES.items():
                complain(f"\t{command} {usage}")
            raise Failed(f"Command not found: Command not found {name}", NOT_FOUND)
        if name in REFUSED:
            raise Failed(f"{name} is not supported by k zookeeper-shell")
        match name:
            case "quit":
                raise Ended
            case "history":
                last = len(self._history)
                for number in range(max(last - 11, 0), last):
                    print_output(f"{number} - {self._history[number]}")
            case "redo" if len(words) > 1:
                self._redo(words[1])
            case "printwatches" if len(words) == 1:
                print_output(f"printwatches is {'on' if self._prints_watches else 'off'}")
            case "printwatches":
                self._prints_watches = words[1] == "on"
            case "connect":
                self._hosts = words[1] if len(words) > 1 else self._hosts
                try:
                    self.connect()
                except (KazooTimeoutError, ValueError) as error:
                    raise Failed(f"no ZooKeeper answers at {self._hosts}") from error
            case _:
                self._ask(name, words)

    def _redo(self, word: str) -> None:
        number = int(word) if word.isdigit() else -1
        if not 0 <= number < len(self._history) - 1:
            raise Failed("Command index out of range")
        again = self._history[number]
        if again.split()[0] == "redo":
            raise Failed("No redoing redos")
        self._history[-1] = again
        self._run([_unquote(word) for word in _WORD.findall(again)])

    def _ask(self, name: str, words: list[str]) -> None:
        if self._client is None:
            print_output("Not connected")
            return
        if name not in self._commands:
            return  # redo of an empty line
        options, needed, ask = self._commands[name]
        arguments = _parse(words[1:], options)
        if len(arguments.rest) < needed:
            raise Failed(f"{name} {USAGES[name]}")
        path = arguments.rest[0] if arguments.rest else ""
        try:
            ask(arguments)
        except exceptions.KazooException as error:
            raise Failed(_reason(error, path)) from error
        except ValueError as error:
            raise Failed(str(error)) from error

    @property
    def _zk(self) -> KazooClient:
        assert self._client is not None
        return self._client

    def _event(self, event: str) -> None:
        if self._prints_watches:
            print_output(f"\nWATCHER::\n\nWatchedEvent {event}")
            sys.stdout.flush()

    def _watch(self, arguments: Words) -> Callable[[Any], None] | None:
        def on_event(event: Any) -> None:
            kind = _EVENTS.get(event.type, event.type)
            self._event(f"state:SyncConnected type:{kind} path:{event.path}")

        return on_event if "w" in arguments.options else None

    def _ls(self, arguments: Words) -> None:
        path = _check_path(arguments.rest[0])
        if "R" in arguments.options:
            for below in self._tree(path):
                print_output(below)
            return
        result = self._zk.get_children(path, watch=self._watch(arguments), include_data=True)
        print_output(f"[{', '.join(sorted(result[0]))}]")
        if "s" in arguments.options:
            _print(result[1])

    def _tree(self, path: str) -> Iterator[str]:
        """Yield a path and all paths below it, each before its children."""
        children = sorted(self._zk.get_children(path))
        yield path
        for name in children:
            yield from self._tree(f"{path.rstrip('/')}/{name}")

    def _get(self, arguments: Words) -> None:
        data, stat = self._zk.get(_check_path(arguments.rest[0]), watch=self._watch(arguments))
        print_output("null" if data is None else data.decode(errors="replace"))
        if "s" in arguments.options:
            _print(stat)

    def _set(self, arguments: Words) -> None:
        path, data, *_ = arguments.rest
        stat = self._zk.set(_check_path(path), _data(data), _version(arguments))
        if "s" in arguments.options:
            _print(stat)

    def _create(self, arguments: Words) -> None:
        if arguments.options.keys() & {"c", "t"}:
            raise Failed("containers (-c) and TTL nodes (-t) are not supported")
        path, *more = arguments.rest
        data = _data(more[0]) if more else None
        acl = _acl(more[1]) if len(more) > 1 else None
        # kazoo's create does not accept null, which Java's client sends here.
        path_created = self._zk.create_async(
            _check_path(path),
            data,
            acl,
            ephemeral="e" in arguments.options,
            sequence="s" in arguments.options,
        ).get()
        complain(f"Created {path_created}")

    def _delete(self, arguments: Words) -> None:
        self._zk.delete(_check_path(arguments.rest[0]), _version(arguments))

    def _delete_all(self, arguments: Words) -> None:
        for path in reversed(list(self._tree(_check_path(arguments.rest[0])))):
            self._zk.delete(path)

    def _stat(self, arguments: Words) -> None:
        stat = self._zk.exists(_check_path(arguments.rest[0]), watch=self._watch(arguments))
        if stat is None:
            raise exceptions.NoNodeError
        _print(stat)

    def _get_acl(self, arguments: Words) -> None:
        acls, stat = self._zk.get_acls(_check_path(arguments.rest[0]))
        for acl in acls:
            letters = "".join(name for name, bit in _PERMISSIONS.items() if acl.perms & bit)
            print_output(f"'{acl.id.scheme},'{acl.id.id}\n: {letters}")
        if "s" in arguments.options:
            _print(stat)

    def _set_acl(self, arguments: Words) -> None:
        path, acl = _check_path(arguments.rest[0]), _acl(arguments.rest[1])
        if "R" in arguments.options:
            for below in list(self._tree(path)):
                try:
                    self._zk.set_acls(below, acl, _version(arguments))
                except exceptions.KazooException as error:
                    print_output(_code(error, below), end="")
            return
        stat = self._zk.set_acls(path, acl, _version(arguments))
        if "s" in arguments.options:
            _print(stat)

    def _add_auth(self, arguments: Words) -> None:
        scheme, *credential = arguments.rest
        self._zk.add_auth(scheme, credential[0] if credential else "")

    def _sync(self, arguments: Words) -> None:
        self._zk.sync(_check_path(arguments.rest[0]))
        print_output("Sync is OK")

    def _count(self, arguments: Words) -> None:
        print_output(str(sum(1 for _ in self._tree(_check_path(arguments.rest[0]))) - 1))

    def _config(self, arguments: Words) -> None:
        data, stat = self._zk.get("/zookeeper/config", watch=self._watch(arguments))
        print_output((data or b"").decode(errors="replace"))
        if "s" in arguments.options:
            _print(stat)

    def _version(self, _arguments: Words) -> None:
        from kserver import __version__

        print_output(f"ZooKeeper CLI version: k {__version__}")


def _unquote(word: str) -> str:
    match = _QUOTED.fullmatch(word)
    return match[2] if match else word


def _parse(words: Iterable[str], letters: str) -> Words:
    """Parse options, which may stand anywhere, and several in one word."""
    arguments = Words({}, [])
    rest = iter(words)
    for word in rest:
        if not word.startswith("-") or word == "-":
            arguments.rest.append(word)
            continue
        for at, letter in enumerate(word[1:], 1):
            where = letters.find(letter)
            if where < 0 or letter == ":":
                raise Failed(
                    "org.apache.commons.cli.UnrecognizedOptionException: "
                    f"Unrecognized option: {word}"
                )
            if letters[where + 1 : where + 2] != ":":
                arguments.options[letter] = ""
                continue
            value = word[at + 1 :] or next(rest, None)
            if value is None:
                raise Failed(
                    "org.apache.commons.cli.MissingArgumentException: "
                    f"Missing argument for option: {letter}"
                )
            arguments.options[letter] = value
            break
    return arguments


def _data(text: str) -> bytes:
    """Encode data; bytes that are not UTF-8 are passed as they were typed."""
    return text.encode(errors="surrogateescape")


def _version(arguments: Words) -> int:
    text = arguments.options.get("v", "-1")
    try:
        return int(text)
    except ValueError:
        raise Failed(f"the version {text} is not a number") from None


def _check_path(path: str) -> str:
    """Return the path. Raises Failed if it is invalid, in ZooKeeper's words (PathUtils)."""
    if not path.startswith("/"):
        raise Failed("Path must start with / character" if path else "Path length must be > 0")
    if path != "/" and path.endswith("/"):
        raise Failed("Path must not end with / character")
    at = 0
    for name in path[1:].split("/") if path != "/" else ():
        at += 1
        reason = None
        if not name:
            reason = f"empty node name specified @{at}"
        elif name in (".", ".."):
            reason = f"relative paths not allowed @{at + len(name) - 1}"
        elif (match := _INVALID.search(name)) is not None:
            wrong = "null character not allowed" if match[0] == "\0" else "invalid character"
            reason = f"{wrong} @{at + match.start()}"
        if reason is not None:
            raise Failed(f'Invalid path string "{path}" caused by {reason}')
        at += len(name)
    return path


_INVALID = re.compile("[\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")


def _acl(text: str) -> list[Any]:
    """Parse scheme:id:permissions, several separated by commas."""
    acls = []
    for acl in text.split(","):
        scheme, _, rest = acl.partition(":")
        id_, colon, letters = rest.rpartition(":")
        if not colon:
            complain(f"{acl} does not have the form scheme:id:perm")
            continue
        for letter in letters:
            if letter not in _PERMISSIONS:
                complain(f"Unknown perm type: {letter}")
        bits = sum({_PERMISSIONS.get(letter, 0) for letter in letters})
        acls.append(security.ACL(bits, security.Id(scheme, id_)))
    return acls


def _print(stat: Any) -> None:
    def when(ms: int) -> str:
        return time.strftime("%a %b %d %H:%M:%S %Z %Y", time.localtime(ms // 1000))

    print_output(
        f"cZxid = {stat.czxid:#x}\nctime = {when(stat.ctime)}\n"
        f"mZxid = {stat.mzxid:#x}\nmtime = {when(stat.mtime)}\n"
        f"pZxid = {stat.pzxid:#x}\ncversion = {stat.cversion}\ndataVersion = {stat.version}\n"
        f"aclVersion = {stat.aversion}\nephemeralOwner = {stat.ephemeralOwner & _UNSIGNED:#x}\n"
        f"dataLength = {stat.dataLength}\nnumChildren = {stat.numChildren}"
    )


_UNSIGNED = (1 << 64) - 1
_REASONS = (
    (exceptions.NoNodeError, "Node does not exist: {}"),
    (exceptions.NoChildrenForEphemeralsError, "Ephemerals cannot have children: {}"),
    (exceptions.NodeExistsError, "Node already exists: {}"),
    (exceptions.NotEmptyError, "Node not empty: {}"),
    (exceptions.NotReadOnlyCallError, "Not a read-only call: {}"),
    (exceptions.InvalidACLError, "Acl is not valid : {}"),
    (exceptions.NoAuthError, "Insufficient permission : {}"),
    (exceptions.BadArgumentsError, "Arguments are not valid : {}"),
    (exceptions.BadVersionError, "version No is not valid : {}"),
)


def _reason(error: exceptions.KazooException, path: str) -> str:
    for kind, text in _REASONS:
        if isinstance(error, kind):
            return text.format(path)
    return _code(error, path)


def _code(error: exceptions.KazooException, path: str) -> str:
    return f"KeeperErrorCode = {type(error).__name__.removesuffix('Error')} for {path}"


def look(hosts: str) -> None:
    """Raises Refused if nothing listens at any of the addresses: a session would be attempted for
    long.
    """
    for address in hosts.partition("/")[0].split(","):
        host, colon, port = address.rpartition(":")
        if not (colon and port.isdigit()):
            host, port = address, "2181"
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        except (OSError, UnicodeError, OverflowError):
            continue  # nothing listens there, or the address is invalid
        return
    raise Refused(NOBODY.format(hosts))
