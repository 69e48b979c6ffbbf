"""Encode, decode, read and replace the small text files of a log directory.

    recovery-point-offset-checkpoint    offsets: `version`, `count`, then `topic partition offset`
    log-start-offset-checkpoint
    replication-offset-checkpoint
    cleaner-offset-checkpoint
    leader-epoch-checkpoint             epochs: `version`, `count`, then `epoch start_offset`
    partition.metadata                  `version: 0` and `topic_id: <base64url>`
    meta.properties                     version, broker.id (version 1: node.id), cluster.id,
                                        directory.id

Names and formats are Kafka's (OffsetCheckpointFile, LeaderEpochCheckpointFile,
PartitionMetadataFile, MetaProperties), so Kafka and this broker read each other's files.  A file
that cannot be read raises StorageError with its name, the line and the remedy; a failing disk
raises OSError.  The log manager decides which offsets are written to which file, and when.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from kserver.config.properties import parse, render
from kserver.errors import ConfigError, StorageError
from kserver.log.leader_epochs import EpochStart
from kserver.model import BrokerId, Offset, TopicPartition

if TYPE_CHECKING:
    from random import Random

    from kserver.world.disk import Disk

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANED = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"

_VERSION = "0"
_NO_TOPIC_ID = UUID(int=0)
_ID_KEYS = ("broker.id", "node.id")
"""Key of the broker id, by version of meta.properties."""
_MAX_DIGITS = len(str((1 << 63) - 1))

_REMEDIES = {
    RECOVERY_POINTS: "remove it to verify every log in this directory from its start",
    LOG_STARTS: "remove it to let each log start at its first segment again",
    HIGH_WATERMARKS: "remove it to fetch the high watermarks from the replicas again",
    CLEANED: "remove it to let the cleaner restart at the first segments of the logs",
    LEADER_EPOCHS: "remove it to rebuild the epochs from the batches of the log",
    PARTITION_METADATA: "remove it to restore the topic id from the cluster's metadata",
    META_PROPERTIES: "write this broker's broker.id and cluster.id into it",
}


class MetaProperties(NamedTuple):
    """Owner of a log directory, as meta.properties names it; None where an old version has no
    entry."""

    broker_id: BrokerId | None
    cluster_id: str | None
    version: int = 0
    directory_id: str | None = None
    """Id of this directory, unique in the cluster (KIP-858)."""


def encode_offsets(offsets: Mapping[TopicPartition, Offset]) -> bytes:
    return _encode(f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items())


def decode_offsets(data: bytes, path: str) -> dict[TopicPartition, Offset]:
    offsets = {}
    for number, line in _entries(data, path):
        match line.split():
            case [topic, partition, offset]:
                key = TopicPartition(topic, _integer(partition, number, line, path))
                offsets[key] = _integer(offset, number, line, path)
            case _:
                raise _malformed(path, number, line)
    return offsets


def encode_epochs(epochs: Iterable[EpochStart]) -> bytes:
    return _encode(f"{epoch} {start_offset}" for epoch, start_offset in epochs)


def decode_epochs(data: bytes, path: str) -> list[EpochStart]:
    epochs = []
    for number, line in _entries(data, path):
        match line.split():
            case [epoch, start_offset]:
                epochs.append(
                    EpochStart(
                        _integer(epoch, number, line, path),
                        _integer(start_offset, number, line, path),
                    )
                )
            case _:
                raise _malformed(path, number, line)
    return epochs


def encode_topic_id(topic_id: UUID) -> bytes:
    return f"version: 0\ntopic_id: {_base64(topic_id)}".encode()


def decode_topic_id(data: bytes, path: str) -> UUID:
    """Return the topic id of a partition.metadata file of any version from 0.

    Kafka accepts any version too, to allow downgrades.
    """
    lines = _lines(data, path)
    fields = []
    for number, name in enumerate(("version", "topic_id"), start=1):
        line = lines[number - 1] if number <= len(lines) else ""
        key, _, value = line.partition(": ")
        if key != name:
            raise _malformed(path, number, line)
        fields.append(value.strip())
    version, text = fields
    _integer(version, 1, lines[0], path)
    try:
        topic_id = UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except ValueError as error:
        raise _malformed(path, 2, lines[1]) from error
    if topic_id == _NO_TOPIC_ID or _base64(topic_id) != text.rstrip("="):
        raise _malformed(path, 2, lines[1])
    return topic_id


def encode_meta_properties(properties: MetaProperties) -> bytes:
    """Return the properties file that Kafka writes, without its comment that holds the date."""
    values = {"version": str(properties.version)}
    if properties.broker_id is not None:
        values[_ID_KEYS[properties.version]] = str(properties.broker_id)
    if properties.cluster_id is not None:
        values["cluster.id"] = properties.cluster_id
    if properties.directory_id is not None:
        values["directory.id"] = properties.directory_id
    return render(values).encode()


def decode_meta_properties(data: bytes, path: str) -> MetaProperties:
    """Return the fields of meta.properties, ignoring keys of later versions."""
    try:
        entries = {entry.key: entry for entry in parse("\n".join(_lines(data, path)))}
    except ConfigError as error:
        raise StorageError(f"{path}, {error}; {_REMEDIES[META_PROPERTIES]}") from error

    def integer(key: str) -> int | None:
        if (entry := entries.get(key)) is None:
            return None
        return _integer(entry.value, entry.line, f"{key}={entry.value}", path)

    version = integer("version") or 0
    if version >= len(_ID_KEYS):
        raise _malformed(path, entries["version"].line, f"version={version}")
    cluster_id, directory_id = entries.get("cluster.id"), entries.get("directory.id")
    return MetaProperties(
        integer(_ID_KEYS[version]),
        cluster_id.value if cluster_id else None,
        version,
        directory_id.value if directory_id else None,
    )


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, Offset]:
    """Return the offsets in the file, or an empty dict if it does not exist yet."""
    return decode_offsets(_read(disk, path), path)


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, Offset]) -> None:
    disk.replace_file(path, encode_offsets(offsets))


def read_epochs(disk: Disk, path: str) -> list[EpochStart]:
    """Return the epochs in the file, or an empty list if it does not exist yet."""
    return decode_epochs(_read(disk, path), path)


def read_topic_id(disk: Disk, path: str) -> UUID | None:
    """Return the topic id in the file, or None if it does not exist yet."""
    return decode_topic_id(disk.read_file(path), path) if disk.exists(path) else None


def write_topic_id(disk: Disk, path: str, topic_id: UUID) -> None:
    disk.replace_file(path, encode_topic_id(topic_id))


def read_meta_properties(disk: Disk, path: str) -> MetaProperties | None:
    """Return the content of the file; None if it does not exist yet, as in a new log directory."""
    return decode_meta_properties(disk.read_file(path), path) if disk.exists(path) else None


def write_meta_properties(disk: Disk, path: str, properties: MetaProperties) -> None:
    disk.replace_file(path, encode_meta_properties(properties))


def _read(disk: Disk, path: str) -> bytes:
    return disk.read_file(path) if disk.exists(path) else b""


def _encode(entries: Iterable[str]) -> bytes:
    lines = list(entries)
    return "".join(f"{line}\n" for line in (_VERSION, str(len(lines)), *lines)).encode()


def _entries(data: bytes, path: str) -> Iterator[tuple[int, str]]:
    """Yield line numbers and lines after the header; an empty file has none, as in Kafka."""
    lines = _lines(data, path)
    if not lines:
        return
    if lines[0] != _VERSION:
        raise _malformed(path, 1, lines[0])
    if len(lines) == 1:
        return
    count = _integer(lines[1], 2, lines[1], path)
    if count != len(lines) - 2:
        raise _malformed(path, 2, f"{lines[1]} (entries follow: {len(lines) - 2})")
    yield from enumerate(lines[2:], start=3)


def _lines(data: bytes, path: str) -> list[str]:
    try:
        return data.decode().splitlines()
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise _malformed(path, number, repr(error.object[error.start : error.end])) from error


def _integer(text: str, number: int, line: str, path: str) -> int:
    """Return the integer; raises StorageError if it is negative or has more than 63 bits."""
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        raise _malformed(path, number, line)
    return int(text)


def random_id(random: Random) -> str:
    """Return a random id for a log directory."""
    return _base64(UUID(int=random.getrandbits(128), version=4))


def _base64(topic_id: UUID) -> str:
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def _malformed(path: str, number: int, line: str) -> StorageError:
    name = path.rsplit("/", 1)[-1]
    remedy = _REMEDIES.get(name, "remove it")
    return StorageError(f"{path}, line {number}: cannot be read: {line!r}; {remedy}")
