"""A swap of files that is killed at any place loses nothing, and doubles nothing in the end."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest

from kcli.command.options import Refused
from kcli.spark.jobs import compact, leftovers, sink_log, swap
from kcli.spark.jobs.compact_plan import SwapJournal
from kcli.spark.jobs.store import LocalStore, data_files

OLD = [f"d=1/part-{n}" for n in range(3)]
NEW = "d=1/compact-1-0"
KEPT, LATER = "d=2/part-3", "d=1/part-4"
LONG_AFTER_MS = 1 << 50
ANY = re.compile("part-")


class Killed(LocalStore):
    """Dies before the change of that number, or within it."""

    def __init__(self, path: Path, at: int) -> None:
        super().__init__(str(path))
        self.left = at

    def _one_more(self) -> None:
        self.left -= 1
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def replace(self, path: str, by: str) -> None:
        self._one_more()  # of write, between its halves
        super().replace(path, by)
        self._one_more()

    def delete(self, path: str) -> None:
        self._one_more()
        super().delete(path)

    def write(self, path: str, text: str) -> None:
        self._one_more()
        super().write(path, text)


def lake(path: Path, latest: int | None) -> SwapJournal:
    """Records are lines; the three old files hold two each, and one new file all six.  With a log
    of so many batches, the tenth of which is a list."""
    for number, name in enumerate([*OLD, KEPT, LATER]):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(f"{2 * number}\n{2 * number + 1}\n")
    staged = f"{swap.staging('1')}/part-0"
    (path / staged).parent.mkdir(parents=True)
    (path / staged).write_text("".join((path / name).read_text() for name in OLD))
    if latest is not None:
        (path / sink_log.DIRECTORY).mkdir()
        put_list(path, "9.compact", [*OLD, KEPT])
        for batch in range(10, latest + 1):
            put_list(path, str(batch), [LATER] if batch == 10 else [])
    return SwapJournal("1", OLD, [(staged, NEW)])


def put_list(path: Path, name: str, files: list[str]) -> None:
    like = {"path": "", "size": 4, "isDir": False, "modificationTime": 0, "action": "add"}
    lines = [json.dumps(like | {"path": (path / file).as_uri()}) for file in files]
    (path / sink_log.DIRECTORY / name).write_text("\n".join(["v1", *lines]))


def listed(path: Path) -> list[int]:
    """The records, as one reads them who goes by the list."""
    log = path / sink_log.DIRECTORY
    names = sink_log.read_by(os.listdir(log))
    files = [one.path for name in names for one in sink_log.parse((log / name).read_text())]
    return sorted(int(line) for file in files for line in Path(file).read_text().split())


def seen(path: Path) -> list[int]:
    """As one who goes by the files."""
    files = data_files(LocalStore(str(path)))
    return sorted(int(line) for one in files for line in (path / one.path).read_text().split())


def swap_files(store: LocalStore, journal: SwapJournal) -> None:
    swap.decide(store, journal)
    swap.resume_swap(store, journal, 0)


def recover(store: LocalStore, now_ms: int = 0) -> list[bool]:
    done = [swap.resume_swap(store, one, now_ms) for one in list(swap.pending_swaps(store))]
    swap.clean(store)
    return done


def dies(work, *given) -> bool:
    """Whether it is killed, rather than ending well."""
    pid = os.fork()
    if not pid:
        try:
            work(*given)
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitpid(pid, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize("latest", [None, 11], ids=["files", "list"])
def test_a_swap_that_is_killed_anywhere_is_carried_on(tmp_path, latest):
    ALL = list(range(10))
    kills = menders_killed = 0
    while True:
        path = tmp_path / str(kills)
        journal = lake(path, latest)
        was_killed = dies(swap_files, Killed(path, kills), journal)
        # At once, with nobody to mend it: nothing is lost, and by the list nothing comes twice.
        assert set(seen(path)) == set(ALL)
        if latest is not None:
            assert listed(path) == ALL
        # The one that mends it is killed as well, wherever that is.
        menders_killed += dies(recover, Killed(path, kills % 5))
        recover(LocalStore(str(path)))
        assert seen(path) == ALL
        if latest is not None:
            assert listed(path) == ALL
        assert LocalStore(str(path)).entries(swap.DIRECTORY) == []
        if not was_killed:
            break
        kills += 1
    # The journal, the move, three old files, the journal's end; the list where there is one.
    assert kills >= (14 if latest is not None else 10)
    assert menders_killed
    assert not [name for name in OLD if (path / name).exists()]


def test_beside_a_sink_that_may_be_making_a_list_the_old_files_stay(tmp_path):
    journal = lake(tmp_path, 18)
    store = LocalStore(str(tmp_path))
    swap.decide(store, journal)
    assert not swap.resume_swap(store, journal, LONG_AFTER_MS)
    assert listed(tmp_path) == list(range(10))
    assert all((tmp_path / name).exists() for name in OLD)
    # It had read the old list, and makes the next one of it.
    put_list(tmp_path, "19.compact", [*OLD, KEPT, LATER])
    assert listed(tmp_path) == list(range(10))
    assert recover(store) == [True]
    assert listed(tmp_path) == seen(tmp_path) == list(range(10))


def test_a_sink_that_has_long_ended_is_not_waited_for(tmp_path):
    journal = lake(tmp_path, 18)
    store = LocalStore(str(tmp_path))
    swap_files(store, journal)
    assert recover(store, 0) == [False]
    assert recover(store, LONG_AFTER_MS) == [True]
    assert listed(tmp_path) == seen(tmp_path) == list(range(10))


def test_what_lies_in_two_lists_is_not_swapped(tmp_path):
    journal = lake(tmp_path, 11)
    put_list(tmp_path, "9.compact", [OLD[0], KEPT])
    put_list(tmp_path, "10", [*OLD[1:], LATER])
    with pytest.raises(swap.UnexpectedState, match="not all of them in one list"):
        swap_files(LocalStore(str(tmp_path)), journal)
    assert listed(tmp_path) == list(range(10))


def test_nothing_goes_where_the_new_files_are_not(tmp_path):
    journal = lake(tmp_path, None)
    (tmp_path / journal.new[0][0]).unlink()
    with pytest.raises(swap.UnexpectedState, match="nothing was removed"):
        swap_files(LocalStore(str(tmp_path)), journal)
    assert seen(tmp_path) == list(range(10))


def test_only_what_the_newest_list_holds_may_go(tmp_path):
    store = LocalStore(str(tmp_path))
    lake(tmp_path, 11)
    (tmp_path / "d=1/part-9").write_text("of a run that was killed\n")
    assert sorted(one.path for one in swap.candidates(store, ANY)) == [*OLD, KEPT]
    assert "2 files are not in the newest full list" in swap.skip_reason(store, ANY)
    (tmp_path / sink_log.DIRECTORY / "9.compact").unlink()
    assert swap.candidates(store, ANY) == []


@pytest.mark.parametrize("format", compact.FILES)
def test_what_is_not_named_as_data_is_stays_as_it_is(tmp_path, format):
    names = {
        "parquet": ["part-1.c000.zstd.parquet", "x.parquet"],
        "json": ["part-1.json", "part-1.json.gz", "x.jsonl", "x.ndjson.bz2"],
    }
    checkpoint = ["offsets/0", "commits/0", "metadata", "state/0/0/1.delta", "x.json.txt"]
    for name in (*names["parquet"], *names["json"], *checkpoint):
        path = tmp_path / "d=1" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("v1\n")
    found = swap.candidates(LocalStore(str(tmp_path)), compact.FILES[format])
    assert sorted(one.name for one in found) == names[format]
    told = swap.skip_reason(LocalStore(str(tmp_path)), compact.FILES[format])
    assert f"the names of {11 - len(found)} files do not match this format" in told


def test_one_works_at_a_time(tmp_path):
    store = LocalStore(str(tmp_path))
    with store.locked(swap.LOCK):
        with (
            pytest.raises(Refused, match="another run holds the lock"),
            store.locked(swap.LOCK),
        ):
            pass
        swap.clean(store)
        with (
            pytest.raises(Refused, match="another run holds the lock"),
            store.locked(swap.LOCK),
        ):
            pass
    with store.locked(swap.LOCK):
        pass


def test_what_is_another_tables_is_neither_made_fewer_nor_left_over(tmp_path):
    lake(tmp_path, 11)
    late = tmp_path / "late" / "d=1" / f"part-00000-{'a' * 36}.parquet"
    late.parent.mkdir(parents=True)
    late.write_text("99\n")
    for list_of_files in ("_spark_metadata", "_delta_log"):
        rules = tmp_path / "late" / list_of_files
        rules.mkdir()
        assert seen(tmp_path) == list(range(10))
        assert (
            leftovers.remove_leftovers(LocalStore(str(tmp_path)), LocalStore(str(tmp_path / "at")))
            == 0
        )
        assert late.exists()
        rules.rmdir()
    assert seen(tmp_path) == [*range(10), 99]
    assert (
        leftovers.remove_leftovers(LocalStore(str(tmp_path)), LocalStore(str(tmp_path / "at"))) == 1
    )


def test_beside_a_first_batch_that_is_not_listed_yet_nothing_is_made_fewer(tmp_path):
    lake(tmp_path, None)
    store = LocalStore(str(tmp_path))
    assert len(swap.candidates(store, ANY)) == 5
    (tmp_path / sink_log.DIRECTORY).mkdir()
    assert swap.candidates(store, ANY) == []


def test_what_goes_while_a_directory_is_looked_at_hides_nothing_else(tmp_path):
    lake(tmp_path, 11)
    # Listed, and gone when it is asked how large it is.
    (tmp_path / sink_log.DIRECTORY / ".12.tmp").symlink_to("nowhere")
    (tmp_path / "d=1" / ".part.crc").symlink_to("nowhere")
    assert [one.path for one in swap.candidates(LocalStore(str(tmp_path)), ANY)] != []
    assert seen(tmp_path) == list(range(10))


def test_a_directory_of_another_query_is_refused(tmp_path):
    lake(tmp_path, 11)
    checkpoint = LocalStore(str(tmp_path / "at"))
    with pytest.raises(Refused, match="was written by a query with another checkpoint"):
        leftovers.check_own(LocalStore(str(tmp_path)), checkpoint)
    checkpoint.write("offsets/0", "v1")
    leftovers.check_own(LocalStore(str(tmp_path)), checkpoint)
