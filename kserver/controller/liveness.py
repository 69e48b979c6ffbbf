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

    __slots__ = ("doubt", "is_held_back")

    def __init__(self) -> None:
        self.doubt = Doubt.CONNECTED
        self.is_held_back = False
        """It is refused, but may not be deposed yet: looking once a second is enough."""

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
    for ever: it deposes each controller epoch once, and each broker that is elected again and
    refuses it still only after a wait that doubles each time.
    """

    __slots__ = ("_deposed", "_session_timeout_s", "broker")

    def __init__(self, session_timeout_s: float) -> None:
        super().__init__()
        self._session_timeout_s = session_timeout_s
        self.broker: BrokerId = NO_BROKER
        self._deposed: dict[BrokerId, tuple[float, float]] = {}
        """Brokers that were deposed and never reached since: not again before a time, and the wait
        until then."""

    def elected(self, broker: BrokerId) -> None:
        """In a new controller epoch."""
        self.broker, self.doubt, self.is_held_back = broker, Doubt.CONNECTED, False

    def may_depose(self, now_s: float) -> bool:
        """Whether /controller may be deleted, now that its holder is gone.  Asked once for each
        proof; when it may not yet, the controller stays in doubt, and is looked for again."""
        wait_s = SESSIONS_TO_WAIT * self._session_timeout_s
        if self.broker in self._deposed:
            not_before_s, waited_s = self._deposed[self.broker]
            if now_s < not_before_s:
                self.doubt, self.is_held_back = Doubt.REFUSED, True
                return False
            wait_s = 2 * waited_s
        self._deposed[self.broker] = now_s + wait_s, wait_s
        return True

    def answered(self) -> None:
        super().answered()
        self.is_held_back = False
        self._deposed.pop(self.broker, None)
