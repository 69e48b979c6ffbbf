"""An unchanged broker on a simulated machine: its loop's network, a disk that can lose writes, a
clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from kserver.broker.broker import Broker
from kserver.config.broker import BrokerConfig, ConfigEntry
from kserver.peer import Peer
from kserver.world import World
from kserver.world.embedded import COORDINATION, EmbeddedZooKeeper
from tests.support.clock import SimClock
from tests.support.disk import SimDisk
from tests.support.loop import OWNER, SimLoop, host
from tests.support.zookeeper import SimEnsemble, SimZooKeeper

DATA = "/data"
PORT = 9092


class SimulatedBroker:
    """A broker to start, kill, or cut the power of; the next start finds the disk's content."""

    def __init__(
        self,
        loop: SimLoop,
        settings: Mapping[str, object] | None = None,
        name: str = "broker",
        ensemble: SimEnsemble | None = None,
    ) -> None:
        self.loop = loop
        self.name = name
        self.port = PORT
        """Port of the next start."""
        self.settings = dict(settings or {})
        self.clock = SimClock(loop)
        self.boots = 1
        self.stopped: list[str] = []
        """The lives (`OWNER`) that ended with a clean shutdown."""
        self._life = ""
        self.disk = SimDisk(loop.random, self.clock)
        self._dead: list[SimDisk] = []
        """Disks of processes that died. Tasks that wait for one keep waiting: asyncio would report
        a task that vanishes before the end.
        """
        self.bugs: list[str] = []
        self.broker: Broker | None = None
        self.ensemble = ensemble
        self.zookeeper: SimZooKeeper | EmbeddedZooKeeper | None = None
        self._stop = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the broker, and return once it serves. Raises the error that prevents this."""
        given = {
            "listeners": f"PLAINTEXT://{self.name}:{self.port}",
            "log.dirs": DATA,
            "broker.id": 0,
        } | self.settings
        config = BrokerConfig.of([ConfigEntry(k, str(v), "simulation") for k, v in given.items()])
        if self.ensemble is None:
            self.zookeeper = EmbeddedZooKeeper(self.disk, f"{DATA}/{COORDINATION}", self.clock)
        else:
            self.zookeeper = self.ensemble.client(config.zookeeper_session_timeout_ms)
        world = World(
            self.clock, self.disk, self.zookeeper, self.loop.random, f"{self.name} {self.boots}"
        )
        self.loop.network.power_on(self.name)
        self._stop = asyncio.Event()
        ready = asyncio.Event()
        port = self.port
        self.broker = Broker(config, world, sockets=False, on_bug=self._noted)

        self._life = f"{self.name} since {self.loop.time()} s"

        async def serve() -> None:
            OWNER.set(self._life)
            # As in a real broker, the address is known before it registers.
            with host(self.name), self.loop.network.bind(self.name, port):
                assert self.broker is not None
                await self.broker.run(self._stop, ready.set)

        self._running = self.loop.create_task(serve())
        waiting = self.loop.create_task(ready.wait())
        await asyncio.wait((self._running, waiting), return_when=asyncio.FIRST_COMPLETED)
        if not ready.is_set():
            waiting.cancel()
            await self._running

    def _noted(self, request: str, bug: BaseException) -> None:
        self.bugs.append(f"{request}: {bug!r}")
        raise bug

    async def stop(self) -> None:
        """Shut down cleanly."""
        self._stop.set()
        assert self._running is not None
        await self._running
        self.stopped.append(self._life)

    @property
    def tasks(self) -> int:
        """Return the number of unfinished tasks of this life."""
        return len(self.loop.tasks_of(self._life))

    async def kill(self) -> None:
        """Kill the process: writes so far stay, later ones do not happen."""
        self.loop.network.kill(self.name)
        await self._vanish(self.disk.kill())

    async def cut_power(self, keep: float | None = None) -> None:
        """Lose the unsynced writes: all of them, or as `SimDisk.crash` says."""
        self.boots += 1
        self.loop.network.power_off(self.name)
        await self._vanish(self.disk.crash(keep))

    def pause(self) -> None:
        """Pause the process, as SIGSTOP does."""
        self.loop.pause(self.name)
        if isinstance(self.zookeeper, SimZooKeeper):
            self.zookeeper.pause()

    def resume(self) -> None:
        if isinstance(self.zookeeper, SimZooKeeper):
            self.zookeeper.resume()
        self.loop.resume(self.name)

    async def _vanish(self, disk: SimDisk) -> None:
        assert self._running is not None
        if self._running.done():
            self._running.exception()  # the broker had exited by itself
        if isinstance(self.zookeeper, SimZooKeeper):
            self.zookeeper.kill()
        self._dead.append(self.disk)
        self.disk = disk
        # Do not wait for it: on a dead disk its last steps never end, or fail.
        self._running.add_done_callback(_nobody_hears)
        self._running.cancel()
        self.loop.resume(self.name)
        await asyncio.sleep(0)

    async def connect(self, client: str = "client") -> Peer:
        with host(client):
            return await Peer.connect(self.name, self.port)


def _nobody_hears(ended: asyncio.Task[None]) -> None:
    if not ended.cancelled():
        ended.exception()
