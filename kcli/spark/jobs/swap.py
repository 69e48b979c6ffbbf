"""Replaces files by others, such that it can be interrupted at any moment and resumed.

    _k_compact/ID/...        the new files, written and counted; nothing refers to them yet
    _k_compact/ID.json       the journal: from here on the swap is carried out
    .../compact-ID-0...      the new files are moved to their directories
    _spark_metadata/9.compact, if there is a log: one list is replaced by the other, atomically
                             the old files are deleted, then the journal

Without a log, a reader between the moves and the end sees records twice. With one, readers that use
it see the old files or the new ones. A sink that writes meanwhile may have read the old list for
its next one. So if the next batch would make one, the old files stay until a later run finds out
which list was used: both lists are complete, and both sets of files exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kcli.spark.jobs import sink_log
from kcli.spark.jobs.compact_plan import SwapJournal
from kcli.spark.jobs.store import Store, StoreEntry, data_files

DIRECTORY = "_k_compact"
SUFFIX = ".json"
LOCK = f"{DIRECTORY}/lock"
SETTLED_MS = 600_000
"""By then, a sink that had read a list has written the next one."""


class UnexpectedState(Exception):
    """The directory is not in the expected state; the text has the reason."""


def candidates(store: Store, name: re.Pattern[str]) -> list[StoreEntry]:
    """Return the files of such names that may be compacted: all, or if there is a log those of its
    newest full list. So files of a checkpoint and others are excluded.
    """
    names = _log(store)
    files = [file for file in data_files(store) if name.search(file.name)]
    if not names and not _entries(store, sink_log.DIRECTORY):
        return files
    newest = sink_log.newest_compact(names)
    if newest is None:
        return []
    listed = {entry.path for entry in _parse_list(store, f"{newest}{sink_log.COMPACT}")}
    return [file for file in files if f"{store.root}/{file.path}" in listed]


def skip_reason(store: Store, name: re.Pattern[str]) -> str | None:
    """Return why some data files are not candidates, never or not yet; None if all are."""
    files = list(data_files(store))
    others = sum(name.search(file.name) is None for file in files)
    unlisted = len(files) - others - len(candidates(store, name))
    reasons = []
    if others:
        reasons.append(f"the names of {others:,} files do not match this format")
    if unlisted:
        reasons.append(
            f"{unlisted:,} files are not in the newest full list in {sink_log.DIRECTORY}, which"
            " Spark uses to read this directory; files of a streaming query are added to it"
            " within ten batches, move any others to a separate directory"
        )
    return f"not compacted: {'; '.join(reasons)}" if reasons else None


def pending_swaps(store: Store) -> Iterator[SwapJournal]:
    """Return the swaps that were not completed."""
    for entry in store.entries(DIRECTORY):
        if entry.name.endswith(SUFFIX) and not entry.name.startswith("."):
            yield SwapJournal.of(store.read(entry.path))


def clean(store: Store) -> None:
    """Remove files that belong to no swap: written, but never decided on."""
    journals = {journal.id for journal in pending_swaps(store)}
    for entry in store.entries(DIRECTORY):
        if entry.path != LOCK and entry.name.removesuffix(SUFFIX) not in journals:
            store.delete(entry.path)


def staging(id: str) -> str:
    return f"{DIRECTORY}/{id}"


def decide(store: Store, journal: SwapJournal) -> None:
    store.write(f"{DIRECTORY}/{journal.id}{SUFFIX}", journal.text())


def resume_swap(
    store: Store, journal: SwapJournal, now_ms: int, interval: int = sink_log.INTERVAL
) -> bool:
    """Resume a swap; return whether the old files were deleted, or wait for a later run.

    `interval`: interval of the sink's full lists, if they do not show it.
    """
    staged = {entry.path for entry in _under(store, staging(journal.id))}
    for written, path in journal.new:
        if written in staged:
            store.replace(path, written)
        elif not _entries(store, path):
            raise UnexpectedState(
                f"swap {journal.id} lacks {store.root}/{path}: nothing was removed"
            )
    if not _list(store, journal, now_ms, interval):
        return False
    for path in journal.old:
        store.delete(path)
    store.delete(f"{DIRECTORY}/{journal.id}{SUFFIX}")
    store.delete(staging(journal.id))
    return True


def _list(store: Store, journal: SwapJournal, now_ms: int, interval: int) -> bool:
    """Put the new files into the log's list; return whether no future list can have the old
    ones.
    """
    names = _log(store)
    if not names:
        return True
    old = {f"{store.root}/{path}" for path in journal.old}
    holders = []
    for name in sink_log.read_by(names):
        listed = {entry.path for entry in _parse_list(store, name)} & old
        if listed:
            holders.append((name, listed))
    if holders:
        ((name, listed), *more) = holders
        if more or listed != old:
            raise UnexpectedState(
                f"{store.root}/{sink_log.DIRECTORY} lists files that swap {journal.id} replaces,"
                " but not all of them in one list"
            )
        before = store.read(f"{sink_log.DIRECTORY}/{name}")
        like = next(entry.entry for entry in sink_log.parse(before) if entry.path in old)
        new = [_entry(store, path, like) for _, path in journal.new]
        store.write(f"{sink_log.DIRECTORY}/{name}", sink_log.replaced(before, old, new))
        decide(store, journal)  # rewritten for its modification time
    after = _log(store)
    if sink_log.newest_compact(after) != sink_log.newest_compact(names):
        return False
    (decided,) = _entries(store, f"{DIRECTORY}/{journal.id}{SUFFIX}")
    is_settled = not holders and now_ms - decided.modified_ms >= SETTLED_MS
    return is_settled or not sink_log.may_be_compacting(after, interval)


def _entry(store: Store, path: str, like: object) -> dict[str, object]:
    assert isinstance(like, dict)
    (entry,) = _entries(store, path)
    return sink_log.entry(like, f"{store.root}/{path}", entry.size, entry.modified_ms)


def _entries(store: Store, path: str) -> list[StoreEntry]:
    """Return the entry at this path, if any."""
    return [entry for entry in store.entries(path.rpartition("/")[0]) if entry.path == path]


def _log(store: Store) -> list[str]:
    return list(sink_log.batches(e.name for e in store.entries(sink_log.DIRECTORY)).values())


def _parse_list(store: Store, name: str) -> list[sink_log.Listed]:
    try:
        return sink_log.parse(store.read(f"{sink_log.DIRECTORY}/{name}"))
    except (ValueError, KeyError) as error:
        raise UnexpectedState(
            f"{store.root}/{sink_log.DIRECTORY}/{name} cannot be read: {error}"
        ) from error


def _under(store: Store, directory: str) -> Iterator[StoreEntry]:
    for entry in store.entries(directory):
        if entry.is_directory:
            yield from _under(store, entry.path)
        else:
            yield entry
