"""What one line of the comparison is: how it is measured, and what it is held to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.figures import Aim
from tests.bench.load import Load
from tests.bench.servers import Server

FILL_BYTES = 1 << 29


@dataclass(frozen=True)
class Work:
    """What measurements are made with."""

    load: Load
    directory: Path
    seconds: float
    until_the_end: ExitStack = field(default_factory=ExitStack)
    """For what rows share: it is closed when all are measured, before the brokers go."""


@dataclass(frozen=True)
class Row:
    name: str
    about: str
    measure: Callable[[Work, Server, str], Mapping[str, float]]
    aims: Mapping[str, Aim | None]
    """Each figure that `measure` finds, in the table's order."""
    partitions: int = 0
    """Of the topic that it is given; 0 when it needs none, nor a running broker."""
    fill_bytes: int = 0
    """What is in that topic; it is made once for all rounds, else anew for each measurement."""
    fill_with: str = "16k"
    """The batch that is repeated in it."""
    has_rival: bool = True
    of_broker: bool = False
    """Measured at our compiled broker too: it is the broker's speed that counts."""
    of_cluster: bool = False
    """Measured at clusters that it starts itself, those of Apache's last release with ZooKeeper
    among them; the server that it is given does not run, and tells the kind."""
