"""The HTTP server: what it answers, and that who is slow, large or many is cut."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

import pytest

from kserver.network.http import (
    CONNECTIONS,
    HEAD_BYTES,
    HEAD_LIMIT_S,
    RESPONSE_LIMIT_S,
    HttpServer,
    Page,
)
from tests.support.loop import SimLoop, host, simulate

PORT = 9404
ENDLESS = "x" * 10_000


def endless():
    while True:
        yield ENDLESS


PAGES = {
    "/": lambda: Page.plain(HTTPStatus.OK, "hello"),
    "/many": lambda: Page(HTTPStatus.OK, "text/plain", (f"{n}\n" for n in range(1000))),
    "/endless": lambda: Page(HTTPStatus.OK, "text/plain", endless()),
    "/not-yet": lambda: Page.plain(HTTPStatus.SERVICE_UNAVAILABLE, "starting"),
}


def in_simulation(test):
    def run():
        for seed in range(3):

            async def scenario(loop: SimLoop) -> None:
                server = HttpServer(PAGES)
                with host("broker"):
                    assert await server.open("", PORT) == PORT
                await test(loop, server)
                server.close()
                await asyncio.sleep(1)
                assert not server.connections

            simulate(scenario, seed)

    return run


async def connect():
    with host("client"):
        return await asyncio.open_connection("broker", PORT)


async def ask(request: bytes) -> bytes:
    reader, writer = await connect()
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


def body(answer: bytes) -> bytes:
    """Of a chunked answer, which must have come to its end."""
    rest = answer.partition(b"\r\n\r\n")[2]
    found = b""
    while True:
        size, _, rest = rest.partition(b"\r\n")
        if size == b"0":
            assert rest == b"\r\n"
            return found
        found += rest[: int(size, 16)]
        rest = rest[int(size, 16) + 2 :]


@in_simulation
async def test_a_page_is_answered_and_the_connection_closed(loop, server):
    answer = await ask(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\nConnection: close\r\n" in answer
    assert body(answer) == b"hello\n"


@in_simulation
async def test_pieces_come_in_order_and_a_query_is_ignored(loop, server):
    answer = await ask(b"GET /many?x=1 HTTP/1.1\r\n\r\n")
    assert body(answer) == b"".join(b"%d\n" % n for n in range(1000))


@in_simulation
async def test_an_older_client_gets_no_chunks_and_head_no_body(loop, server):
    answer = await ask(b"GET / HTTP/1.0\r\n\r\n")
    assert answer.partition(b"\r\n\r\n")[2] == b"hello\n"
    assert b"chunked" not in answer
    answer = await ask(b"HEAD / HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /elsewhere HTTP/1.1\r\n\r\n", 404),
        (b"GET /not-yet HTTP/1.1\r\n\r\n", 503),
        (b"POST / HTTP/1.1\r\n\r\n", 405),
        (b"GET /\r\n\r\n", 400),
        (b"GET / extra HTTP/1.1\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
        (b"GET /\xff\x00 HTTP/1.1\r\n\r\n", 404),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * HEAD_BYTES, 431),
    ],
)
def test_what_is_not_served_is_told(request_, status):
    @in_simulation
    async def check(loop, server):
        answer = await ask(request_)
        assert answer.startswith(b"HTTP/1.1 %d " % status)

    check()


@in_simulation
async def test_who_sends_a_request_that_does_not_end_is_cut_in_time(loop, server):
    reader, writer = await connect()
    began = loop.time()
    ended = loop.create_task(reader.read())
    while not ended.done():
        writer.write(b"x")
        await asyncio.sleep(0.1)
    assert loop.time() - began < HEAD_LIMIT_S + 1
    with pytest.raises(ConnectionError):
        ended.result()


@in_simulation
async def test_who_does_not_read_is_cut_in_time_and_takes_no_more_than_a_buffer(loop, server):
    _, writer = await connect()
    writer.transport.pause_reading()
    writer.write(b"GET /endless HTTP/1.1\r\n\r\n")
    await asyncio.sleep(1)
    (connection,) = server.connections
    held = connection._transport.get_write_buffer_size()
    assert 0 < held < 100_000
    await asyncio.sleep(RESPONSE_LIMIT_S / 2)
    assert connection._transport.get_write_buffer_size() == held
    await asyncio.sleep(RESPONSE_LIMIT_S)
    assert not server.connections


@in_simulation
async def test_a_thousand_connections_get_as_many_as_are_allowed_and_the_rest_is_closed(
    loop, server
):
    clients = [await connect() for _ in range(1000)]
    await asyncio.sleep(1)
    assert len(server.connections) == CONNECTIONS
    await asyncio.sleep(HEAD_LIMIT_S)
    assert not server.connections
    answer = await ask(b"GET / HTTP/1.1\r\n\r\n")
    assert body(answer) == b"hello\n"
    assert len(clients) == 1000


@in_simulation
async def test_who_closes_his_half_still_gets_all(loop, server):
    reader, writer = await connect()
    writer.write(b"GET /many HTTP/1.1\r\n\r\n")
    writer.write_eof()
    assert body(await reader.read()).endswith(b"\n999\n")


@in_simulation
async def test_what_follows_a_request_is_ignored(loop, server):
    answer = await ask(b"GET / HTTP/1.1\r\n\r\n" * 3)
    assert answer.count(b"HTTP/1.1 200") == 1
