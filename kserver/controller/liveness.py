"""Proof that a broker's process is gone.

Without proof, the failure of a process is noticed only when its session expires.  Proof comes
earlier: its connection was closed, and a new connection is refused, twice.  Then no process
listens at that address: the process is gone, or its listener is.  A connection that is not
answered proves nothing.

    state       event                            next
    connected   closed, or there was none yet    suspected
    suspected   refused                          refused
    refused     refused, RETRY_S later           gone        (proven)
    suspected   answered: a network glitch       connected
    refused     answered, not answered           connected
    suspected   not answered: nothing is proven  connected
    gone        answered: only the listener      connected
                was gone

The controller watches each registration of a broker (`Proof`), and each broker watches the
controller (`ControllerWatch`); failure_detector.py makes the connections.  A registration whose
process is gone is fenced: its partitions fail over, and the end of its znode changes nothing more.

Why a failover before the end of the session is safe: a new leader is elected from the in-sync
replicas, so it has all committed records.  The old leader, if it is alive, commits nothing more:
its followers fetch in the new leader epoch, and it cannot shrink its ISR, as AlterPartition of an
old leader epoch is rejected.  Records acknowledged with acks=1 may be lost, as in Kafka.  Writes
of a deposed controller fail on the version of /controller_epoch, its requests on their controller
epoch.

Pure: no I/O, no clock; times in seconds come in.
"""

from __future__ import annotations

import enum

from kserver.model import NO_BROKER, BrokerId

RETRY_S = 0.05
"""Delay between two refused connections, in seconds: a starting broker may be about to listen."""
SESSIONS_TO_WAIT = 3
"""Number of session timeouts before the same controller may be deposed again; doubled each time."""


class Liveness(enum.Enum):
    CONNECTED = enum.auto()
    SUSPECTED = enum.auto()
    REFUSED = enum.auto()
    GONE = enum.auto()


class Proof:
    """State of one process at one address, by the table above."""

    __slots__ = ("is_held_back", "state")

    def __init__(self) -> None:
        self.state = Liveness.CONNECTED
        self.is_held_back = False
        """Whether it is refused but may not be deposed yet; one attempt a second is then enough."""

    @property
    def is_gone(self) -> bool:
        return self.state is Liveness.GONE

    def closed(self) -> None:
        if self.state is Liveness.CONNECTED:
            self.state = Liveness.SUSPECTED

    def refused(self) -> None:
        if self.state is Liveness.SUSPECTED:
            self.state = Liveness.REFUSED
        elif self.state is Liveness.REFUSED:
            self.state = Liveness.GONE

    def answered(self) -> None:
        self.state = Liveness.CONNECTED

    def not_answered(self) -> None:
        """Handle a timeout or an unreachable address.  A process that is proven gone stays gone."""
        if not self.is_gone:
            self.state = Liveness.CONNECTED


class ControllerWatch(Proof):
    """The controller, as seen by one broker.

    If only this broker is refused, by a firewall for example, the cluster must not change
    controllers forever.  So it deposes each controller epoch once; a broker that is elected again
    and still refuses it is deposed only after a wait, which doubles each time.
    """

    __slots__ = ("_deposed", "_session_timeout_s", "broker")

    def __init__(self, session_timeout_s: float) -> None:
        super().__init__()
        self._session_timeout_s = session_timeout_s
        self.broker: BrokerId = NO_BROKER
        self._deposed: dict[BrokerId, tuple[float, float]] = {}
        """Brokers that were deposed and never reached since: earliest time of the next deposition,
        and the wait before it, in seconds."""

    def elected(self, broker: BrokerId) -> None:
        """Watch this broker, elected in a new controller epoch."""
        self.broker, self.state, self.is_held_back = broker, Liveness.CONNECTED, False

    def may_depose(self, now_s: float) -> bool:
        """Return whether /controller may be deleted now that its holder is gone.  Called once for
        each proof; if it may not yet, the controller is suspected again, so that attempts go on."""
        wait_s = SESSIONS_TO_WAIT * self._session_timeout_s
        if self.broker in self._deposed:
            not_before_s, waited_s = self._deposed[self.broker]
            if now_s < not_before_s:
                self.state, self.is_held_back = Liveness.REFUSED, True
                return False
            wait_s = 2 * waited_s
        self._deposed[self.broker] = now_s + wait_s, wait_s
        return True

    def answered(self) -> None:
        super().answered()
        self.is_held_back = False
        self._deposed.pop(self.broker, None)
