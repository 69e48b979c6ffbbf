"""The watches of all connections.

Pure: no I/O, no clock, no await.

    set by                   events                               removed
    getData, exists          created, changed, deleted            after one event
    getChildren              a child came or went, deleted        after one event
    addWatch, persistent     all of these                         by the client
    addWatch, recursive      created, changed, deleted, of all    by the client
                             nodes from there on down

A watcher gets one event only once, however many of its watches match (ZooKeeper: DataTree,
WatchManager).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from kserver.world.znode_tree import parent_of
from kserver.world.zookeeper import WatchEvent, WatchType

W = TypeVar("W")


class WatchKind(enum.Enum):
    DATA = "data"
    CHILDREN = "children"
    PERSISTENT = "persistent"
    RECURSIVE = "recursive"


ONE_SHOT = (WatchKind.DATA, WatchKind.CHILDREN)


class WatchTable(Generic[W]):
    def __init__(self) -> None:
        self._watchers: dict[tuple[WatchKind, str], dict[W, None]] = {}
        self._places_of: dict[W, dict[tuple[WatchKind, str], None]] = {}

    def add(self, watcher: W, kind: WatchKind, path: str) -> None:
        self._watchers.setdefault((kind, path), {})[watcher] = None
        self._places_of.setdefault(watcher, {})[kind, path] = None

    def has(self, watcher: W, kinds: Iterable[WatchKind], path: str) -> bool:
        places = self._places_of.get(watcher, {})
        return any((kind, path) in places for kind in kinds)

    def remove(self, watcher: W, kinds: Iterable[WatchKind], path: str) -> bool:
        """Remove watches; return whether there was one."""
        existing_kinds = [kind for kind in kinds if self.has(watcher, (kind,), path)]
        for kind in existing_kinds:
            self._drop(watcher, kind, path)
        return bool(existing_kinds)

    def forget(self, watcher: W) -> None:
        for kind, path in list(self._places_of.get(watcher, ())):
            self._drop(watcher, kind, path)

    def trigger(self, event: WatchEvent) -> list[W]:
        """Return the watchers that get the event, and remove their one-shot watches."""
        watchers: dict[W, None] = {}
        for kind, path in self._places(event):
            here = self._watchers.get((kind, path), {})
            watchers |= here
            if kind in ONE_SHOT:
                for watcher in list(here):
                    self._drop(watcher, kind, path)
        return list(watchers)

    def counts(self) -> tuple[int, int, int]:
        """Return the numbers of watchers, paths and watches."""
        paths = {path for _, path in self._watchers}
        return len(self._places_of), len(paths), sum(map(len, self._watchers.values()))

    def places(self) -> list[tuple[W, str]]:
        """Return each watcher with each path that it watches, whatever the kinds, sorted by
        path.
        """
        pairs = {
            (watcher, path) for watcher, places in self._places_of.items() for _, path in places
        }
        return sorted(pairs, key=lambda pair: pair[1])

    def check(self) -> None:
        assert all(self._watchers.values())
        assert all(self._places_of.values())
        there = {(w, place) for place, them in self._watchers.items() for w in them}
        assert there == {(w, place) for w, places in self._places_of.items() for place in places}

    def _places(self, event: WatchEvent) -> Iterator[tuple[WatchKind, str]]:
        if event.type is not WatchType.CHILDREN:
            yield WatchKind.DATA, event.path
        if event.type in (WatchType.CHILDREN, WatchType.DELETED):
            yield WatchKind.CHILDREN, event.path
        yield WatchKind.PERSISTENT, event.path
        if event.type is not WatchType.CHILDREN:
            path = event.path
            yield WatchKind.RECURSIVE, path
            while path != "/":
                path = parent_of(path)
                yield WatchKind.RECURSIVE, path

    def _drop(self, watcher: W, kind: WatchKind, path: str) -> None:
        watchers, places = self._watchers[kind, path], self._places_of[watcher]
        del watchers[watcher], places[kind, path]
        if not watchers:
            del self._watchers[kind, path]
        if not places:
            del self._places_of[watcher]
