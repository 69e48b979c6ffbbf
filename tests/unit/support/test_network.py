"""The simulated network: what asyncio's programs meet in it."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.loop import SimLoop, host, simulate


def in_simulation(test):
    def run():
        for seed in range(3):
            simulate(test, seed)

    return run


class Collector(asyncio.Protocol):
    """Keeps what arrives, and how the connection ended."""

    def __init__(self):
        self.data = b""
        self.ended = asyncio.get_running_loop().create_future()
        self.is_full = False

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.data += data

    def pause_writing(self):
        self.is_full = True

    def resume_writing(self):
        self.is_full = False

    def connection_lost(self, error):
        self.ended.set_result(error)


async def connected(loop: SimLoop, protocol=Collector):
    """A client on host a, and what a server on host b made of it."""
    accepted = []
    with host("b"):
        await loop.create_server(lambda: accepted.append(protocol()) or accepted[-1], port=1)
    with host("a"):
        _, client = await loop.create_connection(Collector, "b", 1)
    return client, accepted[0]


@in_simulation
async def test_bytes_arrive_in_order_and_late(loop):
    client, server = await connected(loop)
    for number in range(100):
        client.transport.write(b"%03d" % number)
    assert server.data == b""
    client.transport.close()
    assert await client.ended is None
    assert await server.ended is None
    assert server.data == b"".join(b"%03d" % number for number in range(100))


@in_simulation
async def test_each_end_knows_both_addresses(loop):
    client, server = await connected(loop)
    assert client.transport.get_extra_info("peername") == ("b", 1)
    assert server.transport.get_extra_info("sockname") == ("b", 1)
    name, port = client.transport.get_extra_info("sockname")
    assert name == "a"
    assert server.transport.get_extra_info("peername") == ("a", port)


@in_simulation
async def test_a_cut_holds_bytes_back_until_it_is_healed(loop):
    client, server = await connected(loop)
    loop.network.cut("a", "b")
    client.transport.write(b"hello")
    await asyncio.sleep(100)
    assert server.data == b""
    loop.network.heal("b", "a")
    await asyncio.sleep(1)
    assert server.data == b"hello"


@in_simulation
async def test_a_connection_over_a_cut_waits_and_gives_up(loop):
    await connected(loop)
    loop.network.cut("a", "b")
    with host("a"):
        started = loop.time()
        with pytest.raises(TimeoutError):
            await loop.create_connection(Collector, "b", 1)
        assert 100 < loop.time() - started < 200
        waiting = asyncio.create_task(loop.create_connection(Collector, "b", 1))
        await asyncio.sleep(10)
        assert not waiting.done()
        loop.network.heal("a", "b")
        await waiting


@in_simulation
async def test_a_reset_breaks_both_ends(loop):
    client, server = await connected(loop)
    loop.network.reset("a", "b")
    assert isinstance(await client.ended, ConnectionResetError)
    assert isinstance(await server.ended, ConnectionResetError)


@in_simulation
async def test_a_dead_host_falls_silent_and_its_peers_see_a_reset(loop):
    client, server = await connected(loop)
    loop.network.kill("b")
    assert isinstance(await client.ended, ConnectionResetError)
    await asyncio.sleep(1)
    assert not server.ended.done()
    with pytest.raises(ConnectionRefusedError):
        await loop.create_connection(Collector, "b", 1)


@in_simulation
async def test_an_abort_loses_what_is_under_way(loop):
    client, server = await connected(loop)
    client.transport.write(b"hello")
    client.transport.abort()
    assert await client.ended is None
    assert isinstance(await server.ended, ConnectionResetError)
    assert server.data == b""


@in_simulation
async def test_writing_to_a_closed_end_is_answered_with_a_reset(loop):
    client, server = await connected(loop)
    loop.network.cut("a", "b")
    server.transport.close()
    client.transport.write(b"hello")
    loop.network.heal("a", "b")
    await client.ended
    await server.ended
    assert server.data == b""


@in_simulation
async def test_half_a_connection_can_be_closed(loop):
    class Answering(Collector):
        def eof_received(self):
            self.transport.write(b"got " + self.data)
            self.transport.close()

    class Asking(Collector):
        def eof_received(self):
            return False

    with host("b"):
        await loop.create_server(Answering, port=1)
    _, client = await loop.create_connection(Asking, "b", 1)
    client.transport.write(b"hello")
    client.transport.write_eof()
    assert await client.ended is None
    assert client.data == b"got hello"


@in_simulation
async def test_a_reader_that_pauses_stops_the_writer(loop):
    client, server = await connected(loop)
    server.transport.pause_reading()
    client.transport.write(bytes(60_000))
    assert not client.is_full
    client.transport.write(bytes(60_000))
    assert client.is_full
    await asyncio.sleep(1)
    assert server.data == b""
    assert client.is_full
    server.transport.resume_reading()
    await asyncio.sleep(1)
    assert not client.is_full
    assert len(server.data) == 120_000


@in_simulation
async def test_a_buffered_protocol_gets_as_much_as_it_has_room_for(loop):
    class Buffered(asyncio.BufferedProtocol):
        def __init__(self):
            self.data, self.buffer = b"", bytearray(7)

        def connection_made(self, transport):
            self.transport = transport

        def get_buffer(self, sizehint):
            return self.buffer

        def buffer_updated(self, size):
            self.data += self.buffer[:size]
            self.transport.pause_reading()
            loop.call_later(0.01, self.transport.resume_reading)

    client, server = await connected(loop, Buffered)
    client.transport.write(b"0123456789" * 5)
    await asyncio.sleep(0.05)
    assert 0 < len(server.data) < 50
    await asyncio.sleep(10)
    assert server.data == b"0123456789" * 5


@in_simulation
async def test_streams_work(loop):
    async def serve(reader, writer):
        writer.write((await reader.readline()).upper())
        await writer.drain()
        writer.close()

    with host("b"):
        server = await asyncio.start_server(serve, "localhost", 0)
        port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("b", port)
    writer.write(b"hello\n")
    assert await reader.read() == b"HELLO\n"
    writer.close()
    await writer.wait_closed()


@in_simulation
async def test_a_port_is_listened_on_once_and_freed_by_closing(loop):
    server = await loop.create_server(Collector, port=1)
    with pytest.raises(OSError):
        await loop.create_server(Collector, "127.0.0.1", 1)
    with host("b"):
        await loop.create_server(Collector, port=1)
    server.close()
    assert not server.is_serving()
    with pytest.raises(ConnectionRefusedError):
        await loop.create_connection(Collector, "localhost", 1)
    await loop.create_server(Collector, port=1)


@in_simulation
async def test_a_server_runs_on_the_host_that_opened_it(loop):
    class Proxy(Collector):
        def data_received(self, data):
            self.task = loop.create_task(loop.create_connection(Collector, "localhost", 2))

    with host("b"):
        behind = []
        await loop.create_server(lambda: behind.append(Collector()) or behind[-1], port=2)
    client, _ = await connected(loop, Proxy)
    client.transport.write(b"x")
    await asyncio.sleep(1)
    assert behind[0].transport.get_extra_info("peername")[0] == "b"
