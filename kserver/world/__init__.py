"""All that is not deterministic: wall clock, disk, coordination, randomness, boot id.

The broker above gets a `World`; nothing else uses `time`, `random`, `os`, `uuid` or threads. So a
simulation can run the broker unchanged with a World of its own.
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
    """Id of the machine's boot: another one after each boot."""
