"""Input comes as it is written, from a pipe or a file, and never holds up the loop."""

import asyncio
import os

from kcli.console import input


def read_all(fd: int) -> list[bytes]:
    async def collect():
        return [chunk async for chunk in input.chunks(fd)]

    return asyncio.run(collect())


def test_a_pipe_is_read_to_its_end():
    reader, writer = os.pipe()
    os.write(writer, b"abc")
    os.close(writer)
    assert b"".join(read_all(reader)) == b"abc"
    os.close(reader)


def test_a_file_is_read_to_its_end(tmp_path):
    path = tmp_path / "input"
    path.write_bytes(b"x" * (2 * input.READ_BYTES + 1))
    with open(path, "rb") as file:
        assert [len(chunk) for chunk in read_all(file.fileno())] == [
            input.READ_BYTES,
            input.READ_BYTES,
            1,
        ]


def test_nothing_is_the_end():
    with open(os.devnull, "rb") as file:
        assert read_all(file.fileno()) == []


def test_what_is_written_is_given_at_once_and_others_run_meanwhile():
    reader, writer = os.pipe()
    given = []

    async def read():
        async for chunk in input.chunks(reader):
            given.append(chunk)
            if chunk == b"two":
                os.close(writer)

    async def write():
        os.write(writer, b"one")
        while not given:
            await asyncio.sleep(0)
        os.write(writer, b"two")

    async def both():
        await asyncio.gather(read(), write())

    asyncio.run(both())
    assert given == [b"one", b"two"]
    os.close(reader)


def test_what_a_file_has_left_is_known_and_what_comes_through_a_pipe_is_not(tmp_path):
    (tmp_path / "input").write_bytes(b"abcdef")
    with open(tmp_path / "input", "rb", buffering=0) as file:
        file.read(2)
        assert input.bytes_left(file.fileno()) == 4
        file.seek(10)
        assert input.bytes_left(file.fileno()) == 0
    reader, writer = os.pipe()
    os.write(writer, b"abc")
    assert input.bytes_left(reader) == 0
    os.close(reader)
    os.close(writer)
