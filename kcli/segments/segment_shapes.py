"""Shapes of the rows of `k dump-log -o`, one for each kind of file.

Pure: declarations.
"""

from __future__ import annotations

from kcli.rows.shapes import RowField, RowShape

EPOCHS, OFFSETS = "epochs", "offsets"
"""Files without a suffix: leader-epoch-checkpoint, and such as recovery-point-offset-checkpoint."""

FILE = RowField("file", "string", "The file, as it was named.")

BATCHES = RowShape(
    "k.dump-log.batches",
    1,
    "A batch of a .log or .checkpoint file.  Null is what its format version does not have.",
    (
        FILE,
        RowField("position", "integer", "Where it begins in the file, in bytes."),
        RowField("base_offset", "integer or null", "Its first offset."),
        RowField("last_offset", "integer", "Its last offset."),
        RowField("count", "integer or null", "How many records it holds."),
        RowField("base_sequence", "integer or null", "Its first sequence number."),
        RowField("last_sequence", "integer or null", "Its last sequence number."),
        RowField("producer_id", "integer or null", "Its producer."),
        RowField("producer_epoch", "integer or null", "The producer's epoch."),
        RowField("leader_epoch", "integer or null", "The epoch of the leader that wrote it."),
        RowField("transactional", "boolean", "Whether it belongs to a transaction."),
        RowField("control", "boolean", "Whether its records are the broker's own."),
        RowField("delete_horizon_ms", "integer or null", "When its tombstones may go."),
        RowField("timestamp_type", "string", "CreateTime, LogAppendTime or NoTimestampType."),
        RowField("max_timestamp_ms", "integer", "The newest of its records, in ms since 1970."),
        RowField("size_bytes", "integer", "Its size in the file."),
        RowField("magic", "integer", "Its format version."),
        RowField("compression", "string", "none, gzip, snappy, lz4 or zstd."),
        RowField("crc", "integer", "The CRC that it carries."),
        RowField("valid", "boolean", "Whether that is its CRC."),
    ),
)
RECORDS = RowShape(
    "k.dump-log.records",
    1,
    "A record of a .log or .checkpoint file.",
    (
        FILE,
        RowField("batch_position", "integer", "Where its batch begins in the file, in bytes."),
        RowField("offset", "integer", "Its offset."),
        RowField("timestamp_type", "string", "CreateTime, LogAppendTime or NoTimestampType."),
        RowField("timestamp_ms", "integer", "Its time in ms since 1970."),
        RowField("key_size", "integer or null", "Bytes of its key; null where it has none."),
        RowField("value_size", "integer or null", "Bytes of its value; null where it has none."),
        RowField(
            "sequence", "integer or null", "Its number among those of an idempotent producer."
        ),
        RowField("header_keys", "list of string", "The names of its headers."),
        RowField("control", "string or null", "What a control record says, as in the text."),
        RowField("key", "string or null", "Its key, decoded; null where contents are not printed."),
        RowField("value", "string or null", "Its value, likewise."),
    ),
)
INDEX = RowShape(
    "k.dump-log.index",
    1,
    "An entry of a .index file.",
    (
        FILE,
        RowField("offset", "integer", "The last offset of a batch."),
        RowField("position", "integer", "Where that begins in the log, in bytes."),
    ),
)
TIME_INDEX = RowShape(
    "k.dump-log.timeindex",
    1,
    "An entry of a .timeindex file.",
    (
        FILE,
        RowField("timestamp_ms", "integer", "The newest time so far, in ms since 1970."),
        RowField("offset", "integer", "The offset where it stands."),
    ),
)
ABORTED = RowShape(
    "k.dump-log.txnindex",
    1,
    "An aborted transaction of a .txnindex file.",
    (
        FILE,
        RowField("version", "integer", "The entry's format version."),
        RowField("producer_id", "integer", "The producer."),
        RowField("first_offset", "integer", "The transaction's first offset."),
        RowField("last_offset", "integer", "Its marker's offset."),
        RowField("last_stable_offset", "integer", "Up to where all was decided when it ended."),
    ),
)
PRODUCERS = RowShape(
    "k.dump-log.snapshot",
    1,
    "A producer of a .snapshot file.  Null are facts of batches where it has none.",
    (
        FILE,
        RowField("producer_id", "integer", "The producer."),
        RowField("producer_epoch", "integer", "Its epoch."),
        RowField("coordinator_epoch", "integer or null", "The epoch of its last marker, if any."),
        RowField(
            "current_txn_first_offset", "integer or null", "Where its open transaction begins."
        ),
        RowField("last_timestamp_ms", "integer", "When it last wrote, in ms since 1970."),
        RowField("first_sequence", "integer or null", "The first number of its last batch."),
        RowField("last_sequence", "integer or null", "The last number of it."),
        RowField("first_offset", "integer or null", "The first offset of it."),
        RowField("last_offset", "integer or null", "The last offset of it."),
    ),
)
EPOCH_STARTS = RowShape(
    "k.dump-log.leader-epochs",
    1,
    "A leader epoch of a leader-epoch-checkpoint file.",
    (
        FILE,
        RowField("epoch", "integer", "The epoch."),
        RowField("start_offset", "integer", "Its first offset."),
    ),
)
PARTITION_OFFSETS = RowShape(
    "k.dump-log.partition-offsets",
    1,
    "A partition of a file such as recovery-point-offset-checkpoint.",
    (
        FILE,
        RowField("topic", "string", "The topic."),
        RowField("partition", "integer", "The partition's number."),
        RowField("offset", "integer", "Its offset."),
    ),
)


def shape_of(kind: str, deep: bool) -> RowShape | None:
    """Return the shape of a file's entries, by its suffix, EPOCHS or OFFSETS; None for other
    files.
    """
    shapes = {
        "log": RECORDS if deep else BATCHES,
        "checkpoint": RECORDS if deep else BATCHES,
        "index": INDEX,
        "timeindex": TIME_INDEX,
        "txnindex": ABORTED,
        "snapshot": PRODUCERS,
        EPOCHS: EPOCH_STARTS,
        OFFSETS: PARTITION_OFFSETS,
    }
    return shapes.get(kind)


ALL = (
    BATCHES,
    RECORDS,
    INDEX,
    TIME_INDEX,
    ABORTED,
    PRODUCERS,
    EPOCH_STARTS,
    PARTITION_OFFSETS,
)
