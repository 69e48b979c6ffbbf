"""Plans of compaction: which small files go together, and the journal of a swap.

Pure: names, sizes and times in, plans and texts out.

    date=2026-11-21                  --partitions: directories with this value,
    date=2026-11-*,hour=0?           or matching these patterns,
    date=2026-11-01..2026-11-20      or from the first to the last
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from urllib.parse import unquote

from kcli.spark.jobs.store import StoreEntry

ENOUGH = 0.75
"""A file of at least this share of the target size stays as it is."""
NAME = "compact-"
"""Prefix of the names of compacted files."""

Selects = Callable[[Mapping[str, str]], bool]


def selection(text: str | None) -> Selects:
    """Return a predicate of a directory's values. Raises ValueError if the text is invalid."""
    if text is None:
        return lambda _: True
    terms = [term.partition("=") for term in text.split(",")]
    for name, equals, pattern in terms:
        if not name.strip() or not equals or not pattern.strip():
            raise ValueError(f"'{text}' is not like date=2026-11-21 or date=2026-11-*,hour=0?")
    matchers = [(name.strip(), _matcher(pattern.strip())) for name, _, pattern in terms]
    return lambda values: all(name in values and meant(values[name]) for name, meant in matchers)


def _matcher(pattern: str) -> Callable[[str], bool]:
    first, dots, last = pattern.partition("..")
    if dots:
        return lambda value: first <= value <= last
    return lambda value: fnmatchcase(value, pattern)


def values_of(directory: str) -> dict[str, str]:
    """Parse `date=2026-11-21/hour=05`."""
    parts = (part.partition("=") for part in directory.split("/"))
    return {unquote(name): unquote(value) for name, equals, value in parts if equals}


@dataclass(frozen=True)
class Unit:
    """Files of one directory to be compacted into `into` files."""

    directory: str
    files: tuple[StoreEntry, ...]
    into: int

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def units(
    files: Iterable[StoreEntry], *, selects: Selects, target_bytes: int, before_ms: int
) -> list[Unit]:
    """Return the units that are worth compacting, of files that are not younger than
    `before_ms`.
    """
    of_directory: dict[str, list[StoreEntry]] = {}
    for file in files:
        if file.size < ENOUGH * target_bytes and file.modified_ms <= before_ms:
            of_directory.setdefault(file.path.rpartition("/")[0], []).append(file)
    result = []
    for directory, small in sorted(of_directory.items()):
        into = max(1, math.ceil(sum(file.size for file in small) / target_bytes))
        if selects(values_of(directory)) and into < len(small):
            result.append(Unit(directory, tuple(sorted(small, key=lambda f: f.path)), into))
    return result


@dataclass(frozen=True)
class SwapJournal:
    """A swap that has been decided on: it is carried out, however often it is resumed.

    `new` pairs the place where a file was written with its destination.
    """

    id: str
    old: list[str]
    new: list[tuple[str, str]]

    def text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> SwapJournal:
        fields = json.loads(text)
        return cls(fields["id"], fields["old"], [(begin, end) for begin, end in fields["new"]])


def landed_name(directory: str, id: str, number: int, suffix: str) -> str:
    """Return the path of a compacted file."""
    slash = "/" if directory else ""
    return f"{directory}{slash}{NAME}{id}-{number}{suffix}"
