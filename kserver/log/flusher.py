"""Flush one log to disk, in a thread, one round at a time.

A round's work is collected on the event loop: the segments from the recovery point on, the small
files and names that are new since the previous round, and the leader epochs if they changed.  A
flush that is requested while a round runs joins the next round.  Cancelling a caller does not
cancel the round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from kserver.errors import NO_DESCRIPTOR, NO_ROOM, NoRoom, no_room
from kserver.log import checkpoint
from kserver.log.leader_epochs import EpochStart, LeaderEpochCache

if TYPE_CHECKING:
    from kserver.log.segment import LogSegment
    from kserver.world.disk import Directory, Disk, File

Offload: TypeAlias = Callable[[Callable[[], None]], Awaitable[None]]
"""Runs a function in a thread."""


class Flusher:
    """It has no reference to its log: a cycle would keep the files of a deleted log open until
    garbage is collected.
    """

    def __init__(self, disk: Disk, directory: str, unsynced: Iterable[File]) -> None:
        self._disk = disk
        self.directory = directory
        self._running: asyncio.Future[None] | None = None
        self._files = list(unsynced)
        self.names_changed = True
        """Whether files were created, renamed or removed since the last round."""
        self.epochs_changed = False

    @property
    def is_behind(self) -> bool:
        """Whether a round has work to do, apart from the records."""
        return self.names_changed or self.epochs_changed

    def add(self, file: File) -> None:
        """Add a new small file, which the next round must sync with its name."""
        self._files.append(file)
        self.names_changed = True

    def write(self, name: str, data: bytes) -> None:
        """Write a small file now.  The next round syncs it; a crash before that may leave it torn.

        Raises OSError.
        """
        file = self._disk.open(f"{self.directory}/{name}", create=True)
        file.write_at(0, data)
        file.truncate(len(data))
        self.add(file)

    def write_if_room(self, name: str, data: bytes) -> None:
        """Write a file that is optional: it may be torn or missing.  A full disk is ignored."""
        try:
            self.write(name, data)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise

    def sync_names(self) -> None:
        """Sync the added files and their names.  Blocks until the disk is done."""
        for file in self._files:
            file.sync()
        self._files = []
        self.names_changed = True
        self._sync_names(self._open_directory(self.directory))
        self.names_changed = False

    async def idle(self) -> None:
        """Wait until no round runs."""
        while self._running is not None:
            await asyncio.shield(self._running)

    async def run(
        self,
        offload: Offload,
        segments: Sequence[LogSegment],
        epochs: LeaderEpochCache,
        synced: Callable[[], None],
    ) -> None:
        """Run one round, then call `synced()`.  No other round may be running.

        Raises the errors of `offload`, OSError, and NoRoom, after which the round may be retried.
        """
        assert self._running is None
        # Opened now: later the name may belong to the log of a topic that was created again.
        changed = self.names_changed or self.epochs_changed
        directory = self._open_directory(self.directory) if changed else None
        try:
            for segment in segments:
                segment.aborted.write()
            files = [file for segment in segments for file in segment.unsynced()]
        except OSError as error:
            if error.errno not in NO_DESCRIPTOR:
                raise
            raise no_room(self.directory, error) from error
        added = self._files
        files += added
        names_changed = self.names_changed
        entries = epochs.entries if self.epochs_changed else None
        self._files = []
        self.names_changed = self.epochs_changed = False

        def sync() -> None:
            for file in files:
                file.sync()
            for segment in segments:
                segment.aborted.sync()
            if directory is not None and entries is not None:
                self._write_epochs(directory, entries)
            if directory is not None and names_changed:
                self._sync_names(directory)

        self._running = asyncio.get_running_loop().create_future()
        finish = asyncio.ensure_future(self._finish(offload, sync, synced, added, self._running))
        # The caller may be cancelled, as at a stop; then no one else retrieves the error.
        finish.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(finish)

    async def _finish(
        self,
        offload: Offload,
        sync: Callable[[], None],
        synced: Callable[[], None],
        added: list[File],
        running: asyncio.Future[None],
    ) -> None:
        try:
            await offload(sync)
            synced()
        except NoRoom:
            self._files = added + self._files
            self.names_changed = self.epochs_changed = True
            raise
        finally:
            self._running = None
            running.set_result(None)

    def _write_epochs(self, directory: Directory, entries: Sequence[EpochStart]) -> None:
        try:
            directory.replace_file(checkpoint.LEADER_EPOCHS, checkpoint.encode_epochs(entries))
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            # The old file is unchanged.
            path = f"{self.directory}/{checkpoint.LEADER_EPOCHS}"
            raise no_room(path, error) from error

    def _sync_names(self, directory: Directory) -> None:
        directory.sync()
        self._open_directory(self.directory.rpartition("/")[0] or "/").sync()

    def _open_directory(self, path: str) -> Directory:
        try:
            return self._disk.open_directory(path)
        except OSError as error:
            if error.errno not in NO_DESCRIPTOR:
                raise
            # The names are not synced.
            raise no_room(path, error) from error
