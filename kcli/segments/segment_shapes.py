"""What the rows of `k dump-log -o` hold, a shape for each kind of file.

Pure: declarations.
"""

from __future__ import annotations

from kcli.rows.shapes import Field, Shape

EPOCHS, OFFSETS = "epochs", "offsets"
"""Files without a suffix: leader-epoch-checkpoint, and such as recovery-point-offset-checkpoint."""

FILE = Field("file", "string", "The file, as it was named.")

BATCHES = Shape(
    "k.dump-log.batches",
    1,
    "A batch of a .log or .checkpoint file.  Null is what its format version does not have.",
    (
        FILE,
        Field("position", "integer", "Where it begins in the file, in bytes."),
        Field("base_offset", "integer or null", "Its first offset."),
        Field("last_offset", "integer", "Its last offset."),
        Field("count", "integer or null", "How many records it holds."),
        Field("base_sequence", "integer or null", "Its first sequence number."),
        Field("last_sequence", "integer or null", "Its last sequence number."),
        Field("producer_id", "integer or null", "Its producer."),
        Field("producer_epoch", "integer or null", "The producer's epoch."),
        Field("leader_epoch", "integer or null", "The epoch of the leader that wrote it."),
        Field("transactional", "boolean", "Whether it belongs to a transaction."),
        Field("control", "boolean", "Whether its records are the broker's own."),
        Field("delete_horizon_ms", "integer or null", "When its tombstones may go."),
        Field("timestamp_type", "string", "CreateTime, LogAppendTime or NoTimestampType."),
        Field("max_timestamp_ms", "integer", "The newest of its records, in ms since 1970."),
        Field("size_bytes", "integer", "Its size in the file."),
        Field("magic", "integer", "Its format version."),
        Field("compression", "string", "none, gzip, snappy, lz4 or zstd."),
        Field("crc", "integer", "The CRC that it carries."),
        Field("valid", "boolean", "Whether that is its CRC."),
    ),
)
RECORDS = Shape(
    "k.dump-log.records",
    1,
    "A record of a .log or .checkpoint file.",
    (
        FILE,
        Field("batch_position", "integer", "Where its batch begins in the file, in bytes."),
        Field("offset", "integer", "Its offset."),
        Field("timestamp_type", "string", "CreateTime, LogAppendTime or NoTimestampType."),
        Field("timestamp_ms", "integer", "Its time in ms since 1970."),
        Field("key_size", "integer or null", "Bytes of its key; null where it has none."),
        Field("value_size", "integer or null", "Bytes of its value; null where it has none."),
        Field("sequence", "integer or null", "Its number among those of an idempotent producer."),
        Field("header_keys", "list of string", "The names of its headers."),
        Field("control", "string or null", "What a control record says, as in the text."),
        Field("key", "string or null", "Its key, decoded; null where contents are not printed."),
        Field("value", "string or null", "Its value, likewise."),
    ),
)
INDEX = Shape(
    "k.dump-log.index",
    1,
    "An entry of a .index file.",
    (
        FILE,
        Field("offset", "integer", "The last offset of a batch."),
        Field("position", "integer", "Where that begins in the log, in bytes."),
    ),
)
TIME_INDEX = Shape(
    "k.dump-log.timeindex",
    1,
    "An entry of a .timeindex file.",
    (
        FILE,
        Field("timestamp_ms", "integer", "The newest time so far, in ms since 1970."),
        Field("offset", "integer", "The offset where it stands."),
    ),
)
ABORTED = Shape(
    "k.dump-log.txnindex",
    1,
    "An aborted transaction of a .txnindex file.",
    (
        FILE,
        Field("version", "integer", "The entry's format version."),
        Field("producer_id", "integer", "The producer."),
        Field("first_offset", "integer", "The transaction's first offset."),
        Field("last_offset", "integer", "Its marker's offset."),
        Field("last_stable_offset", "integer", "Up to where all was decided when it ended."),
    ),
)
PRODUCERS = Shape(
    "k.dump-log.snapshot",
    1,
    "A producer of a .snapshot file.  Null are facts of batches where it has none.",
    (
        FILE,
        Field("producer_id", "integer", "The producer."),
        Field("producer_epoch", "integer", "Its epoch."),
        Field("coordinator_epoch", "integer or null", "The epoch of its last marker, if any."),
        Field("current_txn_first_offset", "integer or null", "Where its open transaction begins."),
        Field("last_timestamp_ms", "integer", "When it last wrote, in ms since 1970."),
        Field("first_sequence", "integer or null", "The first number of its last batch."),
        Field("last_sequence", "integer or null", "The last number of it."),
        Field("first_offset", "integer or null", "The first offset of it."),
        Field("last_offset", "integer or null", "The last offset of it."),
    ),
)
EPOCH_STARTS = Shape(
    "k.dump-log.leader-epochs",
    1,
    "A leader epoch of a leader-epoch-checkpoint file.",
    (
        FILE,
        Field("epoch", "integer", "The epoch."),
        Field("start_offset", "integer", "Its first offset."),
    ),
)
PARTITION_OFFSETS = Shape(
    "k.dump-log.partition-offsets",
    1,
    "A partition of a file such as recovery-point-offset-checkpoint.",
    (
        FILE,
        Field("topic", "string", "The topic."),
        Field("partition", "integer", "The partition's number."),
        Field("offset", "integer", "Its offset."),
    ),
)


def shape_of(kind: str, deep: bool) -> Shape | None:
    """Of a file's entries, by its suffix, EPOCHS or OFFSETS; None for a file of another kind."""
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
