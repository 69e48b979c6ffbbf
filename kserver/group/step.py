"""Step: what a shard decides in one go, gathered by all who have a say in it.

Pure: values only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kserver.coordinator.shard import NOTHING, Now, Outcome, Ticket, Transactional


class Step:
    __slots__ = ("answers", "events", "now", "transactional")

    def __init__(self, now: Now) -> None:
        self.now = now
        self.events: list[Any] = []
        self.answers: list[tuple[Ticket, Any]] = []
        self.transactional: Transactional | None = None

    def answer(self, ticket: Ticket | None, answer: Any) -> None:
        """Nobody waits where there is no ticket."""
        if ticket is not None:
            self.answers.append((ticket, answer))

    def keep(self, events: Iterable[Any]) -> None:
        self.events += events

    def outcome(self) -> Outcome:
        if not self.events and not self.answers:
            return NOTHING
        return Outcome(self.events, self.answers, (), self.transactional)
