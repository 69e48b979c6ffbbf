"""Connections that detect the end of a process; liveness.py decides whether it is proven gone.

    BrokerFailureDetector       of the controller: one connection to each registered broker
    ControllerFailureDetector   of the other brokers: one connection to the controller; if that is
                                proven gone, deletes /controller so that another one is elected

Only ApiVersions is sent over these connections, when they open.  The kernel closes the connections
of a killed process within milliseconds, so a failover starts about RETRY_S later.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
from collections.abc import Awaitable, Callable, Mapping

from kserver.controller.context import LiveBroker
from kserver.controller.liveness import RETRY_S, ControllerWatch, Liveness, Proof
from kserver.errors import KafkaError, ProtocolError
from kserver.model import BrokerId, Endpoint
from kserver.peer import Peer, PeerOptions, addresses_of
from kserver.world.running_parts import RunningParts

log = logging.getLogger(__name__)

ANSWER_TIMEOUT_MS = 5000
"""Timeout of a connection attempt, in ms; a slower response counts as none."""
LOOK_AGAIN_S = 1.0
"""Delay before the next attempt after a connection that was not answered, and for a process that
is gone.  For this long after a connection was closed, attempts are made every RETRY_S: a process
that is ending may accept one more connection before the kernel closes its listening socket."""
FIRST_LOOK_S = 0.25
"""Maximum time that a new controller waits for these connections before it elects leaders."""


class ConnectFailure(enum.Enum):
    REFUSED = enum.auto()
    """Every address of the host refused the connection: no process listens there."""
    NOT_ANSWERED = enum.auto()


async def look(endpoint: Endpoint, client_id: str) -> Peer | ConnectFailure:
    options = PeerOptions(client_id=client_id, setup_timeout_ms=ANSWER_TIMEOUT_MS)
    outcome = ConnectFailure.NOT_ANSWERED
    try:
        addresses = await addresses_of(endpoint.host)
    except OSError:
        return outcome
    for address in addresses:
        try:
            return await Peer.connect(address, endpoint.port, options)
        except ConnectionRefusedError:
            outcome = ConnectFailure.REFUSED
        except (OSError, KafkaError, ProtocolError):
            return ConnectFailure.NOT_ANSWERED
    return outcome


class ProcessWatch:
    """Watches one process at one address.  `on_change` is awaited when the process is proven gone,
    and when it responds again afterwards."""

    def __init__(
        self,
        endpoint: Endpoint,
        proof: Proof,
        client_id: str,
        on_change: Callable[[ProcessWatch], Awaitable[None]],
    ) -> None:
        self.endpoint = endpoint
        self.proof = proof
        self.looked = asyncio.Event()
        """Set after the first conclusive attempt."""
        self._client_id = client_id
        self._on_change = on_change

    async def run(self) -> None:
        proof = self.proof
        loop = asyncio.get_running_loop()
        soon_until_s = loop.time() + LOOK_AGAIN_S
        while True:
            was_gone = proof.is_gone
            # No connection is open here: it was closed, or there was none yet.
            proof.closed()
            outcome = await look(self.endpoint, self._client_id)
            if isinstance(outcome, Peer):
                try:
                    proof.answered()
                    self.looked.set()
                    if was_gone:
                        await self._on_change(self)
                    await asyncio.shield(outcome.closed)
                finally:
                    outcome.close()
                soon_until_s = loop.time() + LOOK_AGAIN_S
                continue
            if outcome is ConnectFailure.REFUSED:
                proof.refused()
                if proof.is_gone and not was_gone:
                    self.looked.set()
                    await self._on_change(self)
            else:
                proof.not_answered()
                self.looked.set()
            is_urgent = outcome is ConnectFailure.REFUSED or loop.time() < soon_until_s
            if proof.is_gone or proof.is_held_back:
                is_urgent = False
            await asyncio.sleep(RETRY_S if is_urgent else LOOK_AGAIN_S)


class BrokerFailureDetector:
    """`on_change` is called when a broker is proven gone, and when it responds again."""

    def __init__(self, broker_id: BrokerId, on_change: Callable[[], None]) -> None:
        self._id = broker_id
        self._on_change = on_change
        self._watches: dict[BrokerId, tuple[LiveBroker, ProcessWatch]] = {}
        self.gone: Endpoint | None = None
        """Address of a controller that this broker has proven gone.  There, one refused connection
        is enough at first."""
        self.watches = RunningParts[ProcessWatch]()
        """Tasks of the watches; to be run along with this."""

    def follow(self, registered: Mapping[BrokerId, LiveBroker], listener: str) -> None:
        """Watch these registrations, on the listener between brokers.  Results for unchanged
        registrations are kept."""
        for id_, (broker, watch) in list(self._watches.items()):
            if registered.get(id_) != broker:
                del self._watches[id_]
                self.watches.stop(watch)
        for id_, broker in registered.items():
            endpoint = broker.info.endpoints.get(listener)
            if id_ != self._id and id_ not in self._watches and endpoint is not None:
                watch = ProcessWatch(endpoint, Proof(), f"{self._id}", self._changed)
                if endpoint == self.gone:
                    watch.proof.state = Liveness.REFUSED
                self._watches[id_] = broker, watch
                self.watches.start(watch)
        self.gone = None

    def is_gone(self, broker: BrokerId) -> bool:
        """Return whether the process of its current registration is gone."""
        followed = self._watches.get(broker)
        return followed is not None and followed[1].proof.is_gone

    @property
    def fenced(self) -> int:
        """Number of registered brokers whose process is gone."""
        return sum(watch.proof.is_gone for _, watch in self._watches.values())

    async def looked(self) -> None:
        """Wait until something is known of each broker, for FIRST_LOOK_S at most."""
        if not self.watches.is_running:
            return
        with contextlib.suppress(TimeoutError):  # a broker that does not respond counts as alive
            async with asyncio.timeout(FIRST_LOOK_S):
                for _, watch in list(self._watches.values()):
                    await watch.looked.wait()

    async def _changed(self, watch: ProcessWatch) -> None:
        log.info(
            "%s: %s",
            watch.endpoint,
            "connection refused" if watch.proof.is_gone else "accepts connections again",
        )
        self._on_change()


class ControllerFailureDetector:
    """`depose` deletes /controller if this claim is still current, and returns whether it did."""

    def __init__(
        self,
        broker_id: BrokerId,
        session_timeout_s: float,
        depose: Callable[[int], Awaitable[bool]],
    ) -> None:
        self._id = broker_id
        self._depose = depose
        self._proof = ControllerWatch(session_timeout_s)
        self._claim = -1
        self._watch: ProcessWatch | None = None
        self.gone: Endpoint | None = None
        """Address of the last controller, if that was proven gone."""
        self._deposing: asyncio.Future[bool] | None = None
        """Whether this broker deposed the controller, from the attempt to the next election."""
        self.watches = RunningParts[ProcessWatch]()
        """Tasks of the watches; to be run along with this."""

    def follow(self, controller: BrokerId, claim: int, endpoint: Endpoint) -> None:
        """Watch the broker that is the controller by this claim, at this address."""
        if self._watch is not None and (self._claim, self._watch.endpoint) == (claim, endpoint):
            return
        self.stop()
        self.gone = self._deposing = None
        self._claim = claim
        self._proof.elected(controller)
        self._watch = ProcessWatch(endpoint, self._proof, f"{self._id}", self._changed)
        self.watches.start(self._watch)

    def stop(self) -> None:
        """Stop watching: this broker is the controller, or there is none."""
        if self._watch is not None:
            self.watches.stop(self._watch)
            self._watch = None

    async def gives_way(self) -> bool:
        """Return whether this broker deposed the controller, so that others stand first in the
        election that follows.

        If only this broker is refused, by a firewall for example, all others appear gone to it: as
        the controller it would make itself the leader of all partitions.
        """
        deposing, self._deposing = self._deposing, None
        # The election may begin before the response to the deletion arrives.
        return deposing is not None and await asyncio.shield(deposing)

    async def _changed(self, watch: ProcessWatch) -> None:
        proof = self._proof
        if proof.is_gone and proof.may_depose(asyncio.get_running_loop().time()):
            log.info(
                "broker %d, the controller, no longer listens at %s", proof.broker, watch.endpoint
            )
            self.gone = watch.endpoint
            self._deposing = deposing = asyncio.get_running_loop().create_future()
            is_deposed = False
            try:
                is_deposed = await self._depose(self._claim)
            finally:
                deposing.set_result(is_deposed)
                if not is_deposed and self._deposing is deposing:
                    # Another broker was quicker, and the election may be over.
                    self._deposing = None
