"""The real disk beyond the contract: limits of the system, other processes' locks."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import subprocess
import sys

import pytest

from kserver.world.disk import OsDisk


@contextlib.contextmanager
def largest_file(size: int):
    """No file may grow beyond `size` bytes: a write over the limit is cut short at it.

    Around the write alone: what the test runner itself writes is under the limit as well.
    """
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_write_cut_short_goes_on_until_it_fails(tmp_path):
    file = OsDisk().open(str(tmp_path / "file"), create=True)
    file.write_at(0, bytes(900))
    with largest_file(1000), pytest.raises(OSError) as caught:
        file.write_at(900, b"x" * 200)
    assert caught.value.errno == errno.EFBIG
    assert file.read_at(900, 200) == b"x" * 100


def test_a_replacement_that_fails_leaves_the_old_content_alone(tmp_path):
    disk, path = OsDisk(), str(tmp_path / "state")
    disk.replace_file(path, b"old")
    with largest_file(1000), pytest.raises(OSError):
        disk.replace_file(path, bytes(2000))
    assert disk.read_file(path) == b"old"
    assert disk.list(str(tmp_path)) == ["state"]


def test_what_a_crash_left_of_a_replacement_is_written_over(tmp_path):
    disk, path = OsDisk(), str(tmp_path / "state")
    (tmp_path / "state.tmp").write_bytes(b"longer than the new content")
    disk.replace_file(path, b"new")
    assert disk.read_file(path) == b"new"
    assert disk.list(str(tmp_path)) == ["state"]


def lock_elsewhere(path: str) -> str:
    """What another process is told that wants the POSIX lock, as Java's FileLock is."""
    program = (
        "import fcntl, sys\n"
        "file = open(sys.argv[1], 'r+')\n"
        "try: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except BlockingIOError: print('held')\n"
        "else: print('free')"
    )
    command = [sys.executable, "-S", "-c", program, path]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_other_processes_see_the_lock(tmp_path):
    path = str(tmp_path / ".lock")
    lock = OsDisk().lock(path)
    assert lock_elsewhere(path) == "held"
    lock.release()
    assert lock_elsewhere(path) == "free"


def test_reading_the_locked_file_does_not_release_it(tmp_path):
    """As it would with POSIX's locks."""
    path = str(tmp_path / ".lock")
    lock = OsDisk().lock(path)
    OsDisk().read_file(path)
    assert lock_elsewhere(path) == "held"
    lock.release()


def test_a_dropped_file_gives_its_descriptor_back(tmp_path):
    file = OsDisk().open(str(tmp_path / "file"), create=True)
    descriptor = file.fileno()
    os.fstat(descriptor)
    del file
    with pytest.raises(OSError):
        os.fstat(descriptor)


def test_where_nobody_may_look_nothing_is_said_to_be_missing(tmp_path):
    closed = tmp_path / "closed"
    (closed / "there").mkdir(parents=True)
    closed.chmod(0)
    look = (
        "import os, sys; from kserver.world.disk import OsDisk\n"
        "if os.geteuid() == 0: os.seteuid(65534)\n"
        "try: print(OsDisk().exists(sys.argv[1]))\n"
        "except PermissionError as error: print(error.filename)"
    )
    command = [sys.executable, "-c", look, closed / "there"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    finally:
        closed.chmod(0o700)
    assert done.stdout == f"{closed}/there\n", done.stderr
    assert not OsDisk().exists(str(tmp_path / "missing"))
    assert not OsDisk().exists(f"{__file__}/missing")
