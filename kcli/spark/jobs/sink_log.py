"""The list of files that Spark's file sink keeps in _spark_metadata, and that Spark reads.

    0  1  ...  8  9.compact  10  11        a file for each batch

A reader uses the newest .compact, which lists all files before it, and the files after it. Each has
a line "v1" and a line of JSON for each file that was added.

Pure: names and texts in, values and texts out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit

DIRECTORY = "_spark_metadata"
VERSION = "v1"
COMPACT = ".compact"
INTERVAL = 10
"""Spark's default: every tenth batch writes a .compact."""

_NUMBER = re.compile(r"([0-9]+)(\.compact)?")
_OURS = re.compile(r"part-[0-9]{5}-[0-9a-f-]{36}[.-].+")
"""Names of the sink's files."""


@dataclass(frozen=True)
class Listed:
    path: str
    """Path without scheme and host."""
    entry: Mapping[str, object]


def parse(text: str) -> list[Listed]:
    """Parse a file of the log. Raises ValueError if Spark could not read it either."""
    version, *lines = text.splitlines()
    if version != VERSION:
        raise ValueError(f"its version is {version[:20]!r}, but only {VERSION} is supported")
    entries = [json.loads(line) for line in lines if line]
    return [Listed(path_of(entry["path"]), entry) for entry in entries]


def path_of(uri: str) -> str:
    return unquote(urlsplit(uri).path)


def batches(names: Iterable[str]) -> dict[int, str]:
    """Return the log's files by batch number."""
    return {int(match[1]): name for name in names if (match := _NUMBER.fullmatch(name))}


def newest_compact(names: Iterable[str]) -> int | None:
    return max((n for n, name in batches(names).items() if name.endswith(COMPACT)), default=None)


def read_by(names: Iterable[str]) -> list[str]:
    """Return the log's files that a reader uses."""
    of_batch = batches(names)
    first = newest_compact(of_batch.values()) or 0
    return [name for number, name in sorted(of_batch.items()) if number >= first]


def may_be_compacting(names: Iterable[str], interval: int = INTERVAL) -> bool:
    """Whether the next batch writes a new .compact from the old files, and may have read them
    already.
    """
    of_batch = batches(names)
    compacts = sorted(n for n, name in of_batch.items() if name.endswith(COMPACT))
    if len(compacts) > 1:
        interval = compacts[-1] - compacts[-2]
    following = max(of_batch, default=-1) + 2
    return following % interval == 0


def replaced(text: str, old: Iterable[str], new: Sequence[Mapping[str, object]]) -> str:
    """Return the list with `new` in place of the entries with these paths."""
    gone = set(old)
    entries = [line.entry for line in parse(text) if line.path not in gone]
    lines = [json.dumps(entry, separators=(",", ":")) for entry in (*entries, *new)]
    return "\n".join([VERSION, *lines])


def entry(like: Mapping[str, object], path: str, size: int, modified_ms: int) -> dict[str, object]:
    """Return the entry of a file at this path, in a store whose files are listed like another."""
    prefix = str(like["path"])[: -len(urlsplit(str(like["path"])).path)]
    changes = {"path": prefix + quote(path, safe="/=:@!$&'()*+,;"), "size": size}
    return {**like, **changes, "modificationTime": modified_ms}


def leftovers(names: Iterable[str], listed: Iterable[str]) -> list[str]:
    """Return the paths of files that the sink wrote for a batch that never ended."""
    listed_names = set(listed)
    return [
        name
        for name in names
        if _OURS.fullmatch(name.rpartition("/")[2]) and name not in listed_names
    ]
