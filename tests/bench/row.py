"""Definition of one row of the comparison: how it is measured, and its aims."""

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
    """The tools of a measurement: load generator, directory, and duration."""

    load: Load
    directory: Path
    seconds: float
    until_the_end: ExitStack = field(default_factory=ExitStack)
    """Resources shared by rows; closed when all rows are measured, before the brokers stop."""


@dataclass(frozen=True)
class Row:
    name: str
    about: str
    measure: Callable[[Work, Server, str], Mapping[str, float]]
    aims: Mapping[str, Aim | None]
    """Aim of each figure that `measure` returns, in the table's order."""
    partitions: int = 0
    """Partitions of the topic passed to `measure`; 0 if it needs neither a topic nor a running
    broker."""
    fill_bytes: int = 0
    """Bytes in that topic, which is then filled once for all rounds; 0 for a new empty topic per
    measurement."""
    fill_with: str = "16k"
    """Name of the batch that the topic is filled with."""
    has_rival: bool = True
    of_broker: bool = False
    """Also measured at our compiled broker, because the broker's speed matters."""
    of_cluster: bool = False
    """Measured at clusters that `measure` starts itself, also with Apache's last ZooKeeper release.

    The server passed to it does not run and only gives the kind.
    """
