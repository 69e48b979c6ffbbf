"""Whether a broker is gone, as far as that is proven.

A process that was killed costs a session's length, unless what is certain is believed earlier: its
connection was closed, and whoever connects anew is refused, twice.  Then nobody listens at that
address: the process is gone, or its listener is.  A connection that is not answered proves nothing.

    state       what came                            next
    connected   closed, or there was none yet        doubted
    doubted     refused                              refused
    refused     refused, RETRY_S later               gone        (proven)
    doubted     answered: the network blinked        connected
    refused     answered, not answered               connected
    doubted     not answered: nothing is proven      connected
    gone        answered: it was only the listener   connected

The controller follows each registration of a broker (`Proof`), and each broker the controller
(`ControllerWatch`); failure_detector.py makes the connections.  A registration whose process is
gone is fenced: its partitions are failed over, and its znode's end changes nothing more.

Why a failover before the session's end is safe: a new leader comes from the in-sync replicas, so it
has all that is committed.  The old one, should it live, commits nothing more: its followers fetch
in the new leader epoch, and its ISR cannot shrink, for an AlterPartition of an old leader epoch is
refused.  What it acknowledged with acks=1 may be lost, as in Kafka.  What a deposed controller
writes fails on the version of /controller_epoch, what it sends on the epoch in the message.

Pure: no I/O, no clock; times in seconds come in.
"""

from __future__ import annotations

import enum

from kserver.model import NO_BROKER, BrokerId

RETRY_S = 0.05
"""Between two connections that are refused: a broker that starts may be about to listen."""
SESSIONS_TO_WAIT = 3
"""So many session timeouts pass before the same controller is deposed again, then twice as many."""


class Doubt(enum.Enum):
    CONNECTED = enum.auto()
    DOUBTED = enum.auto()
    REFUSED = enum.auto()
    GONE = enum.auto()


class Proof:
    """The table above, for one process at one address."""

    __slots__ = ("doubt",)

    def __init__(self) -> None:
        self.doubt = Doubt.CONNECTED

    @property
    def is_gone(self) -> bool:
        return self.doubt is Doubt.GONE

    def closed(self) -> None:
        if self.doubt is Doubt.CONNECTED:
            self.doubt = Doubt.DOUBTED

    def refused(self) -> None:
        if self.doubt is Doubt.DOUBTED:
            self.doubt = Doubt.REFUSED
        elif self.doubt is Doubt.REFUSED:
            self.doubt = Doubt.GONE

    def answered(self) -> None:
        self.doubt = Doubt.CONNECTED

    def not_answered(self) -> None:
        """Timed out, or unreachable.  What is proven stays so."""
        if not self.is_gone:
            self.doubt = Doubt.CONNECTED


class ControllerWatch(Proof):
    """The controller, as one broker knows it.

    A broker that is refused alone, by a firewall say, must not make the cluster change controllers
    for ever: it deposes each controller epoch once, and a broker that is elected again and refuses
    it still only after a wait that doubles each time.
    """

    __slots__ = ("_deposed", "_not_before_s", "_session_timeout_s", "_wait_s", "broker")

    def __init__(self, session_timeout_s: float) -> None:
        super().__init__()
        self._session_timeout_s = session_timeout_s
        self.broker: BrokerId = NO_BROKER
        self._deposed: BrokerId = NO_BROKER
        self._not_before_s = 0.0
        self._wait_s = 0.0

    def elected(self, broker: BrokerId) -> None:
        """In a new controller epoch."""
        self.broker, self.doubt = broker, Doubt.CONNECTED

    def may_depose(self, now_s: float) -> bool:
        """Whether /controller may be deleted, now that its holder is gone.  Asked once for each
        proof; when it may not yet, the controller stays in doubt, and is looked for again."""
        if self.broker == self._deposed:
            if now_s < self._not_before_s:
                self.doubt = Doubt.REFUSED
                return False
            self._wait_s *= 2
        else:
            self._deposed = self.broker
            self._wait_s = SESSIONS_TO_WAIT * self._session_timeout_s
        self._not_before_s = now_s + self._wait_s
        return True

    def answered(self) -> None:
        super().answered()
        if self.broker == self._deposed:
            self._deposed = NO_BROKER
