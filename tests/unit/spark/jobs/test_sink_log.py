"""The list of Spark's file sink."""

from __future__ import annotations

import json

import pytest

from kcli.spark.jobs import sink_log

NAMES = ["8", "9.compact", "10", ".9.compact.crc", "7", ".10.crc", "x", "11.tmp"]


def line(path: str, **more: object) -> dict[str, object]:
    told = {"path": f"file://{path}", "size": 1, "isDir": False, "modificationTime": 2}
    return told | {"blockReplication": 1, "blockSize": 3, "action": "add"} | more


def log(*entries: dict[str, object]) -> str:
    return "\n".join(["v1", *map(json.dumps, entries)])


def test_what_is_read_is_the_newest_list_and_what_follows():
    assert sink_log.read_by(NAMES) == ["9.compact", "10"]
    assert sink_log.newest_compact(NAMES) == 9
    assert sink_log.read_by(["0", "1", "2"]) == ["0", "1", "2"]
    assert sink_log.newest_compact(["0", "1"]) is None
    assert sink_log.read_by([]) == []


@pytest.mark.parametrize(
    ("latest", "may"), [(0, False), (7, False), (8, True), (9, False), (17, False), (18, True)]
)
def test_every_tenth_batch_makes_a_list(latest, may):
    names = [str(n) for n in range(latest + 1) if n % 10 != 9]
    names += [f"{n}.compact" for n in range(9, latest + 1, 10)]
    assert sink_log.may_be_compacting(names) == may


def test_another_interval_is_seen_in_the_lists_there_are():
    names = ["2.compact", "3", "4", "5.compact", "6"]
    assert not sink_log.may_be_compacting(names)
    assert sink_log.may_be_compacting([*names, "7"])


def test_files_take_the_place_of_others_in_a_list():
    text = log(line("/l/a"), line("/l/x%20y/b"), line("/l/c"))
    assert [one.path for one in sink_log.parse(text)] == ["/l/a", "/l/x y/b", "/l/c"]
    like = sink_log.parse(text)[0].entry
    new = sink_log.entry(like, "/l/x y/new", 7, 8)
    assert new == line("/l/x%20y/new", size=7, modificationTime=8)
    found = sink_log.replaced(text, ["/l/a", "/l/x y/b"], [new])
    assert found.splitlines()[0] == "v1"
    assert [one.entry for one in sink_log.parse(found)] == [line("/l/c"), new]


def test_a_store_keeps_its_name_in_the_list():
    like = line("/l/a") | {"path": "hdfs://h:9000/l/a"}
    assert sink_log.entry(like, "/l/b", 1, 1)["path"] == "hdfs://h:9000/l/b"


def test_a_list_of_another_version_is_not_read():
    with pytest.raises(ValueError, match="'v2', but only v1 is supported"):
        sink_log.parse("v2\n{}")


def test_what_the_sink_wrote_and_does_not_list_is_left_over():
    uuid = "6b5c343a-dc8e-41ac-8c8d-49efe6669979"
    ours = [f"/l/d=1/part-0000{n}-{uuid}.c000.zstd.parquet" for n in range(3)]
    others = ["/l/d=1/compact-1-0.c000.zstd.parquet", "/l/mine.parquet", "/l/part-1.parquet"]
    assert sink_log.leftovers([*ours, *others], [ours[1]]) == [ours[0], ours[2]]
