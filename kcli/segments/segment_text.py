"""Entries of a broker's files as the lines of Kafka's dump-log.

Pure: entries in, text out.
"""

from __future__ import annotations

from dataclasses import dataclass

from kcli.segments import control_records
from kcli.segments.decoders import Decoder, plain
from kcli.segments.segment_files import (
    AbortedEntry,
    AnyBatch,
    AnyRecord,
    BatchEntry,
    Entry,
    EpochEntry,
    IndexEntry,
    Junk,
    OffsetEntry,
    ProducerEntry,
    RecordEntry,
    TimeEntry,
    sequence_of,
    time_type,
)
from kserver.wire.batch import Record, RecordBatch


def _as_text(data: bytes) -> str:
    return data.decode(errors="replace")


_TEXTS = plain(_as_text, _as_text)


@dataclass(frozen=True, slots=True)
class Printing:
    """How records are printed: contents by this decoder, or only their metadata."""

    deep: bool = False
    contents: bool = False
    metadata: bool = True
    decode: Decoder = _TEXTS


def line(entry: Entry, printing: Printing) -> str:
    match entry:
        case BatchEntry():
            return _batch_line(entry)
        case RecordEntry(_, batch, record):
            return _record_line(batch, record, printing)
        case Junk(path, size):
            return f"Found {size} invalid bytes at the end of {path.rpartition('/')[2]}"
        case IndexEntry(offset, position):
            return f"offset: {offset} position: {position}"
        case TimeEntry(timestamp, offset):
            return f"timestamp: {timestamp} offset: {offset}"
        case AbortedEntry(version, producer_id, first, last, stable):
            return (
                f"version: {version} producerId: {producer_id} firstOffset: {first} "
                f"lastOffset: {last} lastStableOffset: {stable}"
            )
        case ProducerEntry():
            return _producer_line(entry)
        case EpochEntry(epoch, offset):
            return f"epoch: {epoch} startOffset: {offset}"
        case OffsetEntry(topic, partition, offset):
            return f"topic: {topic} partition: {partition} offset: {offset}"


def _producer_line(entry: ProducerEntry) -> str:
    producer = entry.producer
    line = (
        f"producerId: {entry.id} producerEpoch: {producer.epoch} "
        f"coordinatorEpoch: {producer.coordinator_epoch} "
        f"currentTxnFirstOffset: {_optional(producer.transaction_start)} "
        f"lastTimestamp: {producer.last_timestamp} "
    )
    for last in producer.batches[-1:]:
        line += (
            f"firstSequence: {last.first_sequence} lastSequence: {last.last_sequence} "
            f"lastOffset: {last.last_offset} "
            f"offsetDelta: {last.last_offset - last.first_offset} timestamp: {last.timestamp}"
        )
    return line


def _batch_line(entry: BatchEntry) -> str:
    batch = entry.batch
    if isinstance(batch, RecordBatch):
        horizon = batch.delete_horizon_ms
        line = (
            f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} "
            f"count: {batch.count} baseSequence: {batch.base_sequence} "
            f"lastSequence: {batch.last_sequence} producerId: {batch.producer_id} "
            f"producerEpoch: {batch.producer_epoch} partitionLeaderEpoch: {batch.leader_epoch} "
            f"isTransactional: {_boolean(batch.is_transactional)} "
            f"isControl: {_boolean(batch.is_control)} "
            f"deleteHorizonMs: {_optional(-1 if horizon is None else horizon)}"
        )
    else:
        line = f"offset: {batch.last_offset}"
    return (
        f"{line} position: {entry.position} {time_type(batch)}: {batch.max_timestamp} "
        f"size: {batch.size} magic: {batch.magic} compresscodec: {batch.compression.name} "
        f"crc: {batch.crc} isvalid: {_boolean(entry.is_valid)}"
    )


def _record_line(batch: AnyBatch, record: AnyRecord, printing: Printing) -> str:
    is_control = isinstance(batch, RecordBatch) and batch.is_control
    line = ""
    if printing.metadata:
        line = (
            f"| offset: {record.offset} {time_type(batch)}: {record.timestamp} "
            f"keySize: {_size(record.key)} valueSize: {_size(record.value)}"
        )
        if isinstance(record, Record):
            names = ",".join(name for name, _ in record.headers)
            line += f" sequence: {sequence_of(batch, record)} headerKeys: [{names}]"
            if is_control:
                line += f" {control_records.text(record)}"
        else:
            line += f" isValid: {_boolean(record.is_valid_crc)} crc: {record.crc}"
    if printing.contents and not is_control:
        key, payload = printing.decode(record)
        if key is not None:
            line += f"{' ' if line else '| '}key: {key}"
        if payload is not None:
            line += f"{' ' if line else '| '}payload: {payload}"
    return line


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _optional(value: int) -> str:
    """Return the text that Java prints for an OptionalLong; negative stands for none."""
    return "OptionalLong.empty" if value < 0 else f"OptionalLong[{value}]"
