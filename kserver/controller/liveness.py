"""Whether a broker is gone, as far as that is proven.

A process that was killed costs a session's length, unless what is certain is believed earlier: its
connection was closed, and whoever connects anew is refused, twice.  Then nobody listens at that
address: the process is gone, or its listener is.  A connection that is not answered proves nothing.

    state       what came                            next        to do
    connected   closed                               doubted     connect
    doubted     refused                              refused     connect again, RETRY_S later
    refused     refused                              gone        (proven)
    doubted     answered                             connected   the network blinked
    refused     answered, not answered               connected
    doubted     not answered                         connected   nothing is proven

The controller follows each broker (`BrokerLiveness`), and each broker the controller
(`ControllerWatch`).

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


class Action(enum.Enum):
    CONNECT = enum.auto()
    CONNECT_AGAIN = enum.auto()
    """RETRY_S later."""
    FAIL_OVER = enum.auto()
    """The broker's partitions are led by others from now on."""
    START = enum.auto()
    """The broker is one that starts: all that it hosts is sent to it."""
    DEPOSE = enum.auto()
    """/controller is deleted, if it is still what was last read."""


class Proof:
    """The table above, for one process at one address."""

    __slots__ = ("doubt",)

    def __init__(self) -> None:
        self.doubt = Doubt.CONNECTED

    @property
    def is_gone(self) -> bool:
        return self.doubt is Doubt.GONE

    def closed(self) -> Action | None:
        if self.doubt is not Doubt.CONNECTED:
            return None
        self.doubt = Doubt.DOUBTED
        return Action.CONNECT

    def refused(self) -> Action | None:
        if self.doubt is Doubt.DOUBTED:
            self.doubt = Doubt.REFUSED
            return Action.CONNECT_AGAIN
        if self.doubt is Doubt.REFUSED:
            self.doubt = Doubt.GONE
        return None

    def answered(self) -> None:
        self.doubt = Doubt.CONNECTED

    def not_answered(self) -> None:
        """Timed out, or unreachable.  What is proven stays so."""
        if not self.is_gone:
            self.doubt = Doubt.CONNECTED


class BrokerLiveness:
    """One broker id, as the controller knows it, from registration to registration.

    A registration whose process is proven gone is fenced: its partitions were failed over, and its
    znode's end changes nothing more.  If it answers after all, it was only the listener.
    """

    __slots__ = ("_proof", "epoch")

    def __init__(self) -> None:
        self.epoch: int | None = None
        """That of the registration, the transaction that made its znode; None without one."""
        self._proof = Proof()

    @property
    def is_fenced(self) -> bool:
        return self.epoch is not None and self._proof.is_gone

    @property
    def is_live(self) -> bool:
        """Whether it may lead."""
        return self.epoch is not None and not self._proof.is_gone

    def registered(self, epoch: int) -> list[Action]:
        """The znode is there, of this transaction."""
        if epoch == self.epoch:
            return []
        gone = self.unregistered()
        self.epoch, self._proof = epoch, Proof()
        return [*gone, Action.START]

    def unregistered(self) -> list[Action]:
        """The znode is gone."""
        was_live, self.epoch = self.is_live, None
        return [Action.FAIL_OVER] if was_live else []

    def closed(self, epoch: int) -> list[Action]:
        """The connection that was opened to this registration; as in the three that follow, what
        comes of an earlier one is no news."""
        action = self._proof.closed() if epoch == self.epoch else None
        return [action] if action else []

    def refused(self, epoch: int) -> list[Action]:
        if epoch != self.epoch or self.is_fenced:
            return []
        action = self._proof.refused()
        if self.is_fenced:
            return [Action.FAIL_OVER]
        return [action] if action else []

    def answered(self, epoch: int) -> list[Action]:
        if epoch != self.epoch:
            return []
        was_fenced = self.is_fenced
        self._proof.answered()
        return [Action.START] if was_fenced else []

    def not_answered(self, epoch: int) -> None:
        if epoch == self.epoch:
            self._proof.not_answered()


class ControllerWatch:
    """The controller, as one broker knows it.

    A broker that is refused alone, by a firewall say, must not make the cluster change controllers
    for ever: it deposes each controller epoch once, and a broker that is elected again and refuses
    it still only after a wait that doubles each time.
    """

    __slots__ = ("_deposed", "_not_before_s", "_proof", "_session_timeout_s", "_wait_s", "broker")

    def __init__(self, session_timeout_s: float) -> None:
        self._session_timeout_s = session_timeout_s
        self._proof = Proof()
        self.broker: BrokerId = NO_BROKER
        self._deposed: BrokerId = NO_BROKER
        self._not_before_s = 0.0
        self._wait_s = 0.0

    def elected(self, broker: BrokerId) -> None:
        """In a new controller epoch."""
        self.broker, self._proof = broker, Proof()

    def closed(self) -> Action | None:
        return self._proof.closed()

    def refused(self, now_s: float) -> Action | None:
        was_gone = self._proof.is_gone
        action = self._proof.refused()
        if was_gone or not self._proof.is_gone:
            return action
        if self.broker == self._deposed:
            if now_s < self._not_before_s:
                # It stays in doubt, and is looked for again.
                self._proof.doubt = Doubt.REFUSED
                return Action.CONNECT_AGAIN
            self._wait_s *= 2
        else:
            self._deposed = self.broker
            self._wait_s = SESSIONS_TO_WAIT * self._session_timeout_s
        self._not_before_s = now_s + self._wait_s
        return Action.DEPOSE

    def answered(self) -> None:
        self._proof.answered()
        if self.broker == self._deposed:
            self._deposed = NO_BROKER

    def not_answered(self) -> None:
        self._proof.not_answered()
