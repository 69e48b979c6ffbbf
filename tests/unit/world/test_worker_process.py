"""Work in a process of its own, over real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kserver.errors import StorageError
from kserver.world.disk import OsDisk


def square(number: int) -> int:
    return number * number


def refuse(text: str) -> None:
    raise StorageError(text)


def process_id() -> int:
    return os.getpid()


def say_and_wait(path: str) -> None:
    Path(path).write_text(str(os.getpid()))
    time.sleep(600)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def appears(path: Path) -> int:
    async with asyncio.timeout(60):
        while not path.exists() or not path.read_text():
            await asyncio.sleep(0.01)
    return int(path.read_text())


def is_running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def test_the_result_comes_back_from_another_process():
    assert asyncio.run(OsDisk().compute(square, 7)) == 49
    assert asyncio.run(OsDisk().compute(process_id)) != os.getpid()


def test_what_it_raises_is_raised_here():
    with pytest.raises(StorageError, match="no such thing"):
        asyncio.run(OsDisk().compute(refuse, "no such thing"))


def test_a_process_that_dies_is_an_os_error():
    with pytest.raises(OSError, match="ended early, with status -9"):
        asyncio.run(OsDisk().compute(die))


def test_who_no_longer_waits_ends_it(tmp_path):
    async def main() -> int:
        work = asyncio.ensure_future(OsDisk().compute(say_and_wait, str(tmp_path / "pid")))
        pid = await appears(tmp_path / "pid")
        work.cancel()
        await asyncio.wait([work])
        assert work.cancelled()
        return pid

    assert not is_running(asyncio.run(main()))


PARENT = """
import asyncio, sys
from kserver.world.disk import OsDisk
from tests.unit.world.test_worker_process import say_and_wait
asyncio.run(OsDisk().compute(say_and_wait, sys.argv[1]))
"""


def test_it_ends_with_a_parent_that_is_killed(tmp_path):
    root = Path(__file__).parents[3]
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path / "pid")], cwd=root)
    pid = asyncio.run(appears(tmp_path / "pid"))
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 60
    while is_running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)
