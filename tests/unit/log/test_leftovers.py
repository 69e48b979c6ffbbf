from __future__ import annotations

import random
from collections.abc import Iterable

from kserver.log.leftovers import base_offset, snapshot_offsets, tidy
from tests.support.clock import StillClock
from tests.support.disk import SimDisk
from tests.support.logs import batch


def a(base: int, suffix: str) -> str:
    return f"{base:020d}{suffix}"


def make_disk(names: Iterable[str], records: dict[str, tuple[int, int]] | None = None) -> SimDisk:
    """Files with their own names as content; `records` are .log files with a first offset and a
    count of records."""
    disk = SimDisk(random.Random(0), StillClock())
    disk.make_directories("/t-0")
    for name in names:
        disk.open(f"/t-0/{name}", create=True).write_at(0, name.encode())
    for name, (first, count) in (records or {}).items():
        data = batch(count)
        data[0:8] = first.to_bytes(8)
        disk.open(f"/t-0/{name}", create=True).write_at(0, data)
    return disk


def test_what_was_to_be_removed_or_never_got_its_name_goes() -> None:
    kept = [a(0, ".log"), a(0, ".index"), "leader-epoch-checkpoint", "partition.metadata"]
    disk = make_disk(
        [
            *kept,
            a(5, ".log.deleted"),
            a(5, ".snapshot.deleted"),
            a(0, ".log.cleaned"),
            a(0, ".index.cleaned"),
            "leader-epoch-checkpoint.tmp",
        ]
    )
    assert tidy(disk, "/t-0") == [0]
    assert disk.list("/t-0") == sorted(kept)


def test_indexes_without_a_log_go() -> None:
    disk = make_disk([a(0, ".log"), a(3, ".index"), a(3, ".timeindex"), a(3, ".txnindex")])
    assert tidy(disk, "/t-0") == [0]
    assert disk.list("/t-0") == [a(0, ".log")]


def test_a_compaction_that_had_ended_takes_the_place_of_what_it_covers() -> None:
    old = [a(base, suffix) for base in (0, 10, 20) for suffix in (".log", ".index", ".timeindex")]
    disk = make_disk(
        [*old, a(0, ".index.swap"), a(0, ".timeindex.swap")], {a(0, ".log.swap"): (0, 20)}
    )
    assert tidy(disk, "/t-0") == [0, 20]
    assert disk.read_file(f"/t-0/{a(0, '.index')}") == a(0, ".index.swap").encode()
    assert disk.read_file(f"/t-0/{a(20, '.index')}") == a(20, ".index").encode()
    assert len(disk.list("/t-0")) == 6


def test_of_a_compaction_that_was_half_renamed_nothing_is_used() -> None:
    disk = make_disk(
        [a(0, ".log"), a(10, ".log"), a(0, ".log.cleaned")], {a(10, ".log.swap"): (10, 3)}
    )
    assert tidy(disk, "/t-0") == [0, 10]
    assert disk.read_file(f"/t-0/{a(10, '.log')}") == a(10, ".log").encode()
    assert disk.list("/t-0") == [a(0, ".log"), a(10, ".log")]


def test_a_swap_that_was_half_done_is_ended() -> None:
    disk = make_disk([a(0, ".log"), a(0, ".index.swap")])
    assert tidy(disk, "/t-0") == [0]
    assert disk.list("/t-0") == [a(0, ".index"), a(0, ".log")]


def test_names_are_told_apart() -> None:
    assert base_offset(a(4711, ".log"), ".log") == 4711
    for name in ("4711.log", a(4711, ".index"), a(4711, ".log.swap"), "x" * 20 + ".log"):
        assert base_offset(name, ".log") is None
    disk = make_disk([a(7, ".snapshot"), a(3, ".snapshot"), a(3, ".log"), "x.snapshot"])
    assert snapshot_offsets(disk, "/t-0") == [3, 7]
