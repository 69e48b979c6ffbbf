"""All expected errors.

    Exception
    +-- KafkaError      one item (a partition, a topic, a group) is refused with a protocol code
    +-- ProtocolError   malformed bytes: that connection is closed
    +-- NotReady        the broker does not know the cluster yet: that connection is closed
    +-- StorageError    the disk failed: that log directory goes offline
    |   +-- NoRoom      the disk is full, or no descriptor is left: only this write is refused
    |   |   +-- NoDescriptor    the limit on open files is reached
    |   +-- UnreadableZnode  a malformed znode: the topic, broker, ... that it describes is ignored
    +-- ConfigError     an invalid config: the start is refused, naming key, value and range

Any other exception is a bug.
"""

from __future__ import annotations

import errno
import sys

_has_hypothesis = "hypothesis" in sys.modules
if not _has_hypothesis:
    # kio registers its types with hypothesis if that is installed, for the tests of its users.
    # This takes 300 ms and creates a directory .hypothesis wherever the program runs.  A None
    # makes that import fail.
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
    "NotReady",
    "ProtocolError",
    "StorageError",
    "UnreadableZnode",
]

NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT}) | NO_DESCRIPTOR
RAISE_OPEN_FILES = "raise the limit on open files (ulimit -n, LimitNOFILE=)"


MAX_TEXT = 8_000
"""Maximum characters of an error text: a response's string takes 32,767 bytes, and a text may
repeat parts of the request."""


MAX_NAMED_BYTES = 200
"""Maximum bytes of an unreadable znode that the error text shows."""


class KafkaError(Exception):
    """One item is refused, with the error code of the response and a text for users."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        if len(message) > MAX_TEXT:
            message = f"{message[:MAX_TEXT]}..."
        super().__init__(message or code.name)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}" if self.message else self.code.name


class ProtocolError(Exception):
    """Malformed bytes, which no Kafka client would send; caught by the connection."""


class NotReady(Exception):
    """A broker that has just started has no metadata from the controller yet.

    Its clients can ask another broker, so they are disconnected, as if it had not started.
    """


class StorageError(Exception):
    """A file or directory could not be read or written; the text names it and the remedy."""


class NoRoom(StorageError):
    """The disk is full, or no descriptor is left for the file.  Nothing has changed, and a later
    attempt may succeed."""


class UnreadableZnode(StorageError):
    """`path` holds `data`, which is malformed; None if its ACL denies this broker access."""

    def __init__(self, path: str, data: bytes | None, reason: Exception) -> None:
        self.path = path
        self.data = data
        if data is None:
            super().__init__(f"{path} cannot be read ({reason!r})")
            return
        shortened = repr(data[:MAX_NAMED_BYTES]) + ("..." if len(data) > MAX_NAMED_BYTES else "")
        super().__init__(
            f"{path} holds {shortened}, which is not what Kafka writes there ({reason!r})"
        )


class NoDescriptor(NoRoom):
    """The limit on open files is reached."""


def storage_error(path: str, error: Exception) -> StorageError:
    """Return the error itself if it is a StorageError; NoRoom if the disk is full."""
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
    """An invalid config; names key, value, allowed range and where it was set."""
