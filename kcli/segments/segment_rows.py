"""Entries of a broker's files as rows of the shapes in `segment_shapes`.

Pure: entries in, rows out.
"""

from __future__ import annotations

from typing import Any

from kcli.segments import control_records
from kcli.segments.segment_files import (
    AbortedEntry,
    BatchEntry,
    Entry,
    EpochEntry,
    IndexEntry,
    OffsetEntry,
    ProducerEntry,
    RecordEntry,
    TimeEntry,
    sequence_of,
    time_type,
)
from kcli.segments.segment_text import Printing
from kserver.wire.batch import Record, RecordBatch


def row(entry: Entry, printing: Printing) -> dict[str, Any] | None:
    """Return the row without the file; None if the shape has no row for the entry."""
    match entry:
        case BatchEntry():
            return None if printing.deep else _batch(entry)
        case RecordEntry():
            return _record(entry, printing)
        case IndexEntry(offset, position):
            return {"offset": offset, "position": position}
        case TimeEntry(timestamp, offset):
            return {"timestamp_ms": timestamp, "offset": offset}
        case AbortedEntry() | EpochEntry() | OffsetEntry():
            return entry._asdict()
        case ProducerEntry():
            return _producer(entry)
    return None


def _batch(entry: BatchEntry) -> dict[str, Any]:
    batch = entry.batch
    values: dict[str, Any] = {
        "position": entry.position,
        "base_offset": None,
        "last_offset": batch.last_offset,
        "count": None,
        "base_sequence": None,
        "last_sequence": None,
        "producer_id": None,
        "producer_epoch": None,
        "leader_epoch": None,
        "transactional": False,
        "control": False,
        "delete_horizon_ms": None,
        "timestamp_type": time_type(batch),
        "max_timestamp_ms": batch.max_timestamp,
        "size_bytes": batch.size,
        "magic": batch.magic,
        "compression": batch.compression.name,
        "crc": batch.crc,
        "valid": entry.is_valid,
    }
    if isinstance(batch, RecordBatch):
        values |= {
            "base_offset": batch.base_offset,
            "count": batch.count,
            "base_sequence": _number_or_none(batch.base_sequence),
            "last_sequence": _number_or_none(batch.last_sequence),
            "producer_id": _number_or_none(batch.producer_id),
            "producer_epoch": _number_or_none(batch.producer_epoch),
            "leader_epoch": _number_or_none(batch.leader_epoch),
            "transactional": batch.is_transactional,
            "control": batch.is_control,
            "delete_horizon_ms": batch.delete_horizon_ms,
        }
    return values


def _record(entry: RecordEntry, printing: Printing) -> dict[str, Any]:
    batch, record = entry.batch, entry.record
    is_control = isinstance(batch, RecordBatch) and batch.is_control
    contents = printing.contents and not is_control
    key, payload = printing.decode(record) if contents else (None, None)
    return {
        "batch_position": entry.position,
        "offset": record.offset,
        "timestamp_type": time_type(batch),
        "timestamp_ms": record.timestamp,
        "key_size": None if record.key is None else len(record.key),
        "value_size": None if record.value is None else len(record.value),
        "sequence": _number_or_none(sequence_of(batch, record)),
        "header_keys": [name for name, _ in record.headers] if isinstance(record, Record) else [],
        "control": control_records.text(record)
        if is_control and isinstance(record, Record)
        else None,
        "key": key,
        "value": payload,
    }


def _producer(entry: ProducerEntry) -> dict[str, Any]:
    producer = entry.producer
    last = producer.batches[-1] if producer.batches else None
    return {
        "producer_id": entry.id,
        "producer_epoch": producer.epoch,
        "coordinator_epoch": _number_or_none(producer.coordinator_epoch),
        "current_txn_first_offset": _number_or_none(producer.transaction_start),
        "last_timestamp_ms": producer.last_timestamp,
        "first_sequence": last and last.first_sequence,
        "last_sequence": last and last.last_sequence,
        "first_offset": last and last.first_offset,
        "last_offset": last and last.last_offset,
    }


def _number_or_none(number: int) -> int | None:
    """Return None for negative numbers, which stand for a missing value in Kafka."""
    return None if number < 0 else number
