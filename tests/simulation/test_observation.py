"""Health and metrics over a broker's life: its start, a disk that fails, its end."""

from __future__ import annotations

import asyncio
import contextlib
import errno

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kserver.errors import ErrorCode, StorageError
from kserver.metrics import catalog
from tests.contract.api.calls import batch
from tests.simulation.test_broker import create, produce
from tests.support.loop import SimLoop, host, simulate
from tests.support.simulated import SimulatedBroker

PORT = 9404
SETTINGS = {"http.listener": f"broker:{PORT}", "log.dirs": "/data,/more"}
REFUSED = "refused"
SEEDS = range(4)


async def get(path: str) -> tuple[str, str]:
    """Status and body; REFUSED where nobody listens."""
    try:
        with host("prometheus"):
            reader, writer = await asyncio.open_connection("broker", PORT)
        writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    except ConnectionError:
        return REFUSED, ""
    writer.close()
    return head.split(" ")[1], body


async def scrape() -> dict[str, float]:
    """Those without labels."""
    status, text = await get("/metrics")
    assert status == "200"
    families = text_string_to_metric_families(text)
    return {s.name: s.value for family in families for s in family.samples if not s.labels}


class Watch:
    """Asks one path over and over, and keeps each answer that differs from the one before."""

    def __init__(self, loop: SimLoop, path: str) -> None:
        self.seen: list[tuple[str, str]] = []
        self._path = path
        self._task = loop.create_task(self._run())

    async def _run(self) -> None:
        while True:
            answer = await get(self._path)
            if self.seen[-1:] != [answer]:
                self.seen.append(answer)
            await asyncio.sleep(0.0001)

    async def until(self, answer: tuple[str, str]) -> None:
        async with asyncio.timeout(60):
            while self.seen[-1:] != [answer]:
                await asyncio.sleep(0.001)

    def end(self) -> list[tuple[str, str]]:
        self._task.cancel()
        return self.seen


@pytest.mark.parametrize("seed", SEEDS)
def test_it_is_ready_from_when_clients_are_let_in_until_it_stops(seed):
    async def scenario(loop: SimLoop) -> None:
        broker = SimulatedBroker(loop, SETTINGS)
        await broker.start()
        peer = await broker.connect()
        for name in "abc":
            await create(peer, name, partitions=4)
        await broker.kill()
        ready, alive = Watch(loop, "/readyz"), Watch(loop, "/healthz")
        await ready.until((REFUSED, ""))
        await broker.start()
        await ready.until(("200", "ready\n"))
        await alive.until(("200", "ok\n"))
        await broker.stop()
        await ready.until((REFUSED, ""))
        # The first of its states may be shorter than the time between two looks.
        assert [state for state in ready.end() if state != ("503", "starting\n")] == [
            (REFUSED, ""),
            ("503", "starting: opening the logs\n"),
            ("200", "ready\n"),
            ("503", "stopping\n"),
            (REFUSED, ""),
        ]
        assert {status for status, _ in alive.end()} == {REFUSED, "200"}

    simulate(scenario, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_failed_disk_is_told_and_the_last_one_is_the_end(seed):
    async def scenario(loop: SimLoop) -> None:
        broker = SimulatedBroker(loop, SETTINGS)
        await broker.start()
        peer = await broker.connect()
        await create(peer, "a", partitions=4)
        before = await scrape()
        assert before[catalog.OFFLINE_DIRECTORIES.exposed()] == 0
        assert before[catalog.PARTITIONS.exposed()] == 4
        broker.disk.fail("write_at", errno.EIO, path="/more/*")
        codes = [(await produce(peer, "a", p, batch(b"x"))).error_code for p in range(4)]
        failed = codes.count(ErrorCode.kafka_storage_error)
        assert failed == 2
        after = await scrape()
        assert after[catalog.OFFLINE_DIRECTORIES.exposed()] == 1
        assert after[catalog.OFFLINE_REPLICAS.exposed()] == failed
        assert after[catalog.FAILED_PRODUCE_REQUESTS.exposed()] == failed
        assert after[catalog.MESSAGES_IN.exposed()] == 4 - failed
        assert await get("/readyz") == ("200", "ready\n")
        broker.disk.fail("write_at", errno.EIO, path="/data/*")
        watch = Watch(loop, "/readyz")
        with contextlib.suppress(ConnectionError):
            for partition in range(4):
                answer = await produce(peer, "a", partition, batch(b"x"))
                assert answer.error_code is ErrorCode.kafka_storage_error
        # By itself where it is the store that finds the disk failed, and the logs are closed.
        with pytest.raises((BaseExceptionGroup, StorageError)) as ended:
            await broker.stop()
        assert isinstance(ended.value, StorageError) or ended.group_contains(StorageError)
        await watch.until((REFUSED, ""))
        assert ("503", "stopping\n") not in watch.end()

    simulate(scenario, seed)
