"""Everything that can go wrong on purpose.

    Exception
    +-- KafkaError      one item (a partition, a topic, a group) is refused with a protocol code
    +-- ProtocolError   the bytes make no sense: that connection is closed
    +-- StorageError    the disk failed: that log directory goes offline
    |   +-- DiskFull    it has no room: what was asked is refused, and all else goes on
    +-- ConfigError     a setting is wrong: the start is refused, naming key, value and range

Anything else that is raised is a bug.
"""

from __future__ import annotations

import errno

from kio.schema.errors import ErrorCode

__all__ = ["ConfigError", "DiskFull", "ErrorCode", "KafkaError", "ProtocolError", "StorageError"]

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


MAX_TEXT = 8_000
"""Characters: an answer's string takes 32,767 bytes, and texts may repeat what was sent."""


class KafkaError(Exception):
    """One item refused, with the code that its answer carries and a text for a person."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        if len(message) > MAX_TEXT:
            message = f"{message[:MAX_TEXT]}..."
        super().__init__(message or code.name)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}" if self.message else self.code.name


class ProtocolError(Exception):
    """Bytes that no client of ours would send; caught where the connection is."""


class StorageError(Exception):
    """A file or directory that could not be read or written; names it and the remedy."""


class DiskFull(StorageError):
    """No room for what was to be written: nothing has changed, and there may be room later."""


def storage_error(path: str, error: OSError) -> StorageError:
    """DiskFull where that is the reason."""
    return (DiskFull if error.errno in NO_ROOM else StorageError)(f"{path}: {error}")


class ConfigError(Exception):
    """A setting that cannot be taken; names key, value, allowed range and where it stood."""
