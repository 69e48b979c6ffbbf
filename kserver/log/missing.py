"""Decide whether a partition whose log is in none of the log directories may start empty.

A disk that is not mounted looks like an empty one.  A partition that starts empty assigns its
offsets a second time, and as a leader it makes its followers truncate their records.  So:

    the log                          the controller's LeaderAndIsr says
                                     is new    another leads, and    leads here, is in sync
                                               not in sync here      here, or has no leader
    was never here                   created   created               created
    was here: a checkpoint names it  created   created               refused
    may be in a lost directory       created   created               refused

    created    empty, and a follower fetches everything from its leader
    refused    KAFKA_STORAGE_ERROR to the controller and to clients.  The controller elects another
               in-sync replica and removes this one from the ISR; then it may be created.

What a checkpoint proves depends on the last stop:

    last stop                       the log was here if the checkpoints
    clean                           have an offset above 0: else it was empty
    a crash, on the same boot       list it: the kernel has written everything
    a crash, and another boot       have a recovery point above 0: a flush makes the directory's
                                    name durable before it raises the recovery point

A lost directory is one that this broker had at an earlier start, by its directory.id, and does not
have now (registration.note_directories).  It is forgotten once a start finds every partition that
is assigned to this broker.

Not here: a log that exists but lacks records, which log/recovery refuses.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kserver.errors import StorageError
from kserver.log import checkpoint
from kserver.log.recovery import CLEAN_SHUTDOWN, StoredOffsets, accept_loss_command
from kserver.log.segment import LOG
from kserver.model import Offset, TopicPartition

if TYPE_CHECKING:
    from kserver.log.directory import LogDirectory
    from kserver.world.disk import Disk

_CHECKPOINTS = (
    checkpoint.RECOVERY_POINTS,
    checkpoint.HIGH_WATERMARKS,
    checkpoint.CLEANED,
    checkpoint.LOG_STARTS,
)


class MissingLog(StorageError):
    """The log was here and is missing: the partition must not start empty."""


def proven_end(stored: StoredOffsets) -> Offset | None:
    """Return the highest checkpointed offset of a log that was here; None if there was none."""
    offsets = (stored.recovery_point, stored.high_watermark, stored.log_start_offset)
    end = max(offset or 0 for offset in offsets)
    if stored.clean:
        return end or None
    if stored.is_same_boot:
        return end if stored.recovery_point is not None or end else None
    return end if stored.recovery_point else None


class MissingLogs:
    """Missing logs of one broker, in all its log directories."""

    def __init__(self, directories: Sequence[LogDirectory]) -> None:
        self._directories = directories
        self.lost_directories: Mapping[str, str] = {}
        """Last path of each lost directory, by directory id."""

    def find(self, logs: Collection[TopicPartition], boot_id: str) -> None:
        """Note in each directory its missing logs.  Call it after all `logs` were opened."""
        existing = {*logs}.union(*(directory.damaged for directory in self._directories))
        for directory in self._directories:
            for topic_partition in directory.checkpointed - existing:
                end = proven_end(directory.stored_offsets(topic_partition, boot_id))
                if end is not None:
                    directory.missing[topic_partition] = end

    def check(
        self, topic_partition: TopicPartition, *, is_new: bool, may_begin_empty: bool
    ) -> None:
        """Raise MissingLog, or StorageError for a log that is damaged or in a failed directory."""
        for directory in self._directories:
            if topic_partition in directory.damaged:
                raise StorageError(f"{directory.log_path(topic_partition)} is damaged")
        failed = [directory.path for directory in self._directories if directory.failure]
        if failed and not is_new:
            raise StorageError(
                f"{topic_partition} may be in one of the log directories that are offline:"
                f" {', '.join(failed)}"
            )
        if may_begin_empty:
            return
        for directory in self._directories:
            if topic_partition in directory.missing:
                raise _missing(topic_partition, directory)
        if self.lost_directories:
            raise _lost(topic_partition, self.lost_directories.values())

    def forget(self, topic_partition: TopicPartition) -> None:
        """Forget a partition that has a log again, or was deleted."""
        for directory in self._directories:
            directory.missing.pop(topic_partition, None)

    def keep(self, refused: Collection[TopicPartition]) -> None:
        """Forget all partitions except `refused`: the cluster does not assign the others to this
        broker."""
        for directory in self._directories:
            for topic_partition in directory.missing.keys() - set(refused):
                del directory.missing[topic_partition]


def _missing(topic_partition: TopicPartition, directory: LogDirectory) -> MissingLog:
    end = directory.missing[topic_partition]
    records = f"its records before offset {end}" if end else "its records"
    return MissingLog(
        f"{directory.log_path(topic_partition)} is missing, but the checkpoints in"
        f" {directory.path} list it; {records} would be lost."
        f" {_remedy(topic_partition)}"
    )


def _lost(topic_partition: TopicPartition, paths: Iterable[str]) -> MissingLog:
    return MissingLog(
        "its log is in none of the log.dirs, but may be in a log directory that this broker used"
        f" before and that is now missing or empty: {', '.join(sorted(paths))}."
        f" {_remedy(topic_partition)}"
    )


def _remedy(topic_partition: TopicPartition) -> str:
    return (
        "Mount the disk or restore the directory, then restart this broker. If a broker with"
        " another in-sync replica is down, start that broker: the records are then replicated"
        " from it. Only if every copy is lost: stop this broker and run"
        f" {accept_loss_command(str(topic_partition))}"
    )


def accept_loss(
    disk: Disk, directories: Sequence[LogDirectory], topic_partition: TopicPartition
) -> tuple[str, Offset | None]:
    """Let the partition start with what is left of its log, and remove it from every checkpoint.

    Returns the path of its log.  If nothing is left, also the offset at which it starts, which is
    above all checkpointed offsets so that no offset is assigned twice; else None.  Raises
    StorageError, OSError.
    """
    with contextlib.ExitStack() as locks:
        for directory in directories:
            if not disk.exists(directory.path):
                raise StorageError(
                    f"{directory.path} does not exist: create it, or remove it from log.dirs"
                )
            directory.lock()
            locks.callback(directory.unlock)
        with_log = [d for d in directories if topic_partition in d.topic_partitions()]
        home = with_log[0] if with_log else directories[0]
        path = home.log_path(topic_partition)
        disk.make_directories(path)
        disk.sync_directory(home.path)
        is_empty = not any(name.endswith(LOG) for name in disk.list(path))
        stored = {
            (directory, name): checkpoint.read_offsets(disk, f"{directory.path}/{name}")
            for directory in directories
            for name in _CHECKPOINTS
        }
        end = max(offsets.get(topic_partition, 0) for offsets in stored.values())
        for (directory, name), offsets in stored.items():
            remaining = {tp: offset for tp, offset in offsets.items() if tp != topic_partition}
            if is_empty and directory is home and name == checkpoint.LOG_STARTS:
                remaining[topic_partition] = end
            if remaining != offsets:
                checkpoint.write_offsets(disk, f"{directory.path}/{name}", remaining)
        marker = f"{home.path}/{CLEAN_SHUTDOWN}"
        if not is_empty and disk.exists(marker):
            # After a clean stop, recovery would refuse a torn log.
            disk.remove(marker)
            disk.sync_directory(home.path)
    return path, end if is_empty else None
