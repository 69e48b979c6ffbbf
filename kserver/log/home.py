"""What logs are given: the disk, and a holder who does for them what takes time.

A log owns no timer and starts no task; it asks.  `LogManager` is the holder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Protocol

from kserver.errors import NoRoom, StorageError
from kserver.world.disk import Disk

if TYPE_CHECKING:
    from kserver.log.log import Log


class Housekeeping(Protocol):
    """What a log asks of its holder."""

    def flush_soon(self, log: Log) -> None:
        """More is unflushed than the log's configuration allows, or a segment was rolled."""

    def remove_later(self, log: Log, paths: Sequence[str]) -> None:
        """Readers may still have these files; remove them after `file.delete.delay.ms`."""

    def disk_failed(self, log: Log, error: StorageError) -> None:
        """The log refuses everything from now on."""

    def no_room(self, log: Log, error: NoRoom) -> None:
        """An append was refused; the next may find room."""

    async def stop_cleaning(self, log: Log) -> None:
        """Before it is truncated: nothing that compaction makes of it is put in place any more."""

    async def recovery_point_lowered(self, log: Log) -> None:
        """Make it durable before returning: the log is about to be cut below the one on disk."""


@dataclass(frozen=True, slots=True)
class LogHome:
    """What all logs of a broker share."""

    disk: Disk
    random: Random
    housekeeping: Housekeeping
    producer_expiration_ms: int
