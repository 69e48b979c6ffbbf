"""Files and directories of a simulated disk, as processes see them and as a power cut leaves them.

Pure: chance comes in as `random`, time as `modified_ms`.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

Change = tuple[str, int, bytes]
"""("write", position, data) or ("truncate", size, b"")."""


class Inode:
    """A file: its bytes as processes see them, its bytes on the platters, and the changes in
    between.
    """

    def __init__(self, modified_ms: int, data: Bytes | None = None) -> None:
        self.data = data or Bytes()
        self.pending: list[Change] = []
        self.modified_ms = modified_ms
        self.used_bytes = len(self.data)
        """End of the written bytes: zeros beyond it take no space."""
        self._durable = self.data.copy()

    def change(self, change: Change) -> None:
        kind, position, data = change
        if kind == "write" and not data:
            return
        self.data.apply(change)
        if kind == "write":
            self.used_bytes = max(self.used_bytes, position + len(data))
        self.used_bytes = min(self.used_bytes, len(self.data))
        self.pending.append(change)

    def sync(self) -> None:
        for change in self.pending:
            self._durable.apply(change)
        self.pending.clear()

    def after_crash(self, random: Random, keep: float | None) -> Inode:
        data = self._durable.copy()
        for kind, position, written in self.pending:
            kept = random.choice((0.0, random.random(), 1.0)) if keep is None else keep
            if kind == "write":
                written = written[: round(len(written) * kept)]
            elif kept < 1.0:
                continue
            if written or kind == "truncate":
                data.apply((kind, position, written))
        return Inode(self.modified_ms, data)


class Bytes:
    """Bytes of a file. Zeros at its end are not stored: an index is 10 MB long from its first entry
    on, and zeros took nine tenths of the time of a test that hosts many logs.
    """

    __slots__ = ("_size", "_stored")

    def __init__(self, stored: bytes = b"", size: int = 0) -> None:
        self._stored = bytearray(stored)
        self._size = size

    def __len__(self) -> int:
        return self._size

    def copy(self) -> Bytes:
        return Bytes(self._stored, self._size)

    def read(self, position: int, size: int) -> bytes:
        end = min(position + size, self._size)
        stored = bytes(self._stored[position:end])
        return stored + bytes(max(0, end - position - len(stored)))

    def apply(self, change: Change) -> None:
        kind, position, written = change
        if kind == "truncate":
            del self._stored[position:]
            self._size = position
            return
        if len(self._stored) < position:
            self._stored.extend(bytes(position - len(self._stored)))
        self._stored[position : position + len(written)] = written
        self._size = max(self._size, position + len(written))


class Directory:
    def __init__(self) -> None:
        self.entries: dict[str, Inode | Directory] = {}
        self._durable: dict[str, Inode | Directory] = {}
        self._pending: list[dict[str, Inode | Directory | None]] = []

    def change(self, changes: dict[str, Inode | Directory | None]) -> None:
        """Set these entries, and remove those that are None, at once."""
        _enter(self.entries, changes)
        self._pending.append(changes)

    def sync(self) -> None:
        for changes in self._pending:
            _enter(self._durable, changes)
        self._pending.clear()

    def inodes(self) -> Iterator[Inode]:
        for node in self.entries.values():
            if isinstance(node, Inode):
                yield node
            else:
                yield from node.inodes()

    def after_crash(self, random: Random, keep: float | None) -> Directory:
        entries = dict(self._durable)
        count = len(self._pending)
        kept = random.randint(0, count) if keep is None else round(count * keep)
        for changes in self._pending[:kept]:
            _enter(entries, changes)
        after = Directory()
        after.entries = {name: node.after_crash(random, keep) for name, node in entries.items()}
        after._durable = dict(after.entries)
        return after


def _enter(entries: dict[str, Any], changes: dict[str, Any]) -> None:
    for name, node in changes.items():
        if node is None:
            del entries[name]
        else:
            entries[name] = node
