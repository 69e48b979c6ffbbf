"""Services that logs depend on: the disk, and a holder for background work.

A log owns no timer and starts no task; it calls its holder, which is the `LogManager`.
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
    """Background work that a log requests from its holder."""

    def flush_soon(self, log: Log) -> None:
        """Flush the log: more is unflushed than its config allows, or a segment was rolled."""

    def remove_later(self, log: Log, paths: Sequence[str]) -> None:
        """Remove these files after `file.delete.delay.ms`; readers may still have them open."""

    def disk_failed(self, log: Log, error: StorageError) -> None:
        """Handle a disk failure; the log refuses everything from now on."""

    def no_room(self, log: Log, error: NoRoom) -> None:
        """Handle an append that a full disk refused; the next one may succeed."""

    async def stop_cleaning(self, log: Log) -> None:
        """Stop compaction of the log before it is truncated; no compacted segment is swapped in
        after."""

    async def recovery_point_lowered(self, log: Log) -> None:
        """Make the recovery point durable before the log is truncated below the one on disk."""


@dataclass(frozen=True, slots=True)
class LogHome:
    """Dependencies that all logs of a broker share."""

    disk: Disk
    random: Random
    housekeeping: Housekeeping
    producer_expiration_ms: int
