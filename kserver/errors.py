"""Everything that can go wrong on purpose.

    Exception
    +-- KafkaError      one item (a partition, a topic, a group) is refused with a protocol code
    +-- ProtocolError   the bytes make no sense: that connection is closed
    +-- StorageError    the disk failed: that log directory goes offline
    |   +-- NoRoom      no room for what was asked, or no descriptor: refused, and all else goes on
    |   |   +-- NoDescriptor    the limit on open files is reached
    |   +-- UnreadableZnode  ZooKeeper holds nonsense: what it stands for is left out
    +-- ConfigError     a setting is wrong: the start is refused, naming key, value and range

Anything else that is raised is a bug.
"""

from __future__ import annotations

import errno
import sys

_has_hypothesis = "hypothesis" in sys.modules
if not _has_hypothesis:
    # kio registers its types with hypothesis where that is installed, for its users' tests: 300 ms,
    # and a directory .hypothesis wherever the program runs.  A None makes that import fail.
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
try:
    from kio.schema.errors import ErrorCode
finally:
    if not _has_hypothesis:
        del sys.modules["hypothesis"]

__all__ = [
    "ConfigError",
    "ErrorCode",
    "KafkaError",
    "NoDescriptor",
    "NoRoom",
    "ProtocolError",
    "StorageError",
    "UnreadableZnode",
]

NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT}) | NO_DESCRIPTOR
RAISE_OPEN_FILES = "raise the limit on open files (ulimit -n, LimitNOFILE=)"


MAX_TEXT = 8_000
"""Characters: an answer's string takes 32,767 bytes, and texts may repeat what was sent."""


MAX_NAMED_BYTES = 200
"""So much of a znode that cannot be read stands in the error."""


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


class NoRoom(StorageError):
    """No room for what was to be written, or no descriptor for its file: nothing has changed, and
    there may be room later."""


class UnreadableZnode(StorageError):
    """`path` holds `data`, from which nobody can tell what was meant; None where its access list
    lets this broker not read it."""

    def __init__(self, path: str, data: bytes | None, reason: Exception) -> None:
        self.path = path
        self.data = data
        if data is None:
            super().__init__(f"{path} cannot be read ({reason!r})")
            return
        named = repr(data[:MAX_NAMED_BYTES]) + ("..." if len(data) > MAX_NAMED_BYTES else "")
        super().__init__(f"{path} holds {named}, which is not what Kafka writes there ({reason!r})")


class NoDescriptor(NoRoom):
    """The limit on open files is reached."""


def storage_error(path: str, error: Exception) -> StorageError:
    """The error itself where it is one; NoRoom where that is the reason."""
    if isinstance(error, StorageError):
        return error
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return no_room(path, error)
    return StorageError(f"{path}: {error}")


def no_room(path: str, error: OSError) -> NoRoom:
    text = f"{path}: {error.strerror or error}"
    if error.errno in NO_DESCRIPTOR:
        return NoDescriptor(f"{text}: {RAISE_OPEN_FILES}")
    return NoRoom(text)


class ConfigError(Exception):
    """A setting that cannot be taken; names key, value, allowed range and where it stood."""
