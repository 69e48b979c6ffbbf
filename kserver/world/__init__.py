"""All that is not deterministic, handed in: wall clock, disk, coordination, randomness, boots.

The broker above takes a `World`; nothing else touches `time`, `random`, `os`, `uuid` or threads, so
that a simulation which hands in its own runs the broker unchanged.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kserver.world.clock import Clock
    from kserver.world.disk import Disk
    from kserver.world.zookeeper import ZooKeeper


@dataclass(frozen=True, slots=True)
class World:
    clock: Clock
    disk: Disk
    zookeeper: ZooKeeper
    random: random.Random
    boot_id: str
    """That of the machine: another one after each boot."""
