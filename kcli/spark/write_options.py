"""Checked options of a write, and the columns of its rows.

Pure: texts and types in, values out.

Columns and errors are those of Spark's own Kafka sink; other columns of a row are ignored, as
there:

    value      string or binary      required
    key        string or binary
    topic      string                required unless the option topic names it for all rows
    partition  int
    headers    array<struct<key:string,value:binary>>
    timestamp  timestamp             only with keepTimestamps, which Spark's own sink does not have
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kcli.client.config import ProducerConfig
from kcli.spark.option_docs import NAMES, WRITE_NAMES
from kcli.spark.options import OptionTexts
from kserver.errors import ConfigError

HEADERS_TYPE = "array<struct<key:string,value:binary>>"
TRANSACTION_TIMEOUT_MS = 900_000
"""The maximum that brokers allow by default: a transaction is open as long as a batch takes."""

BATCH_BYTES = 1 << 17
"""Default batch.size: rows come in large numbers, and each batch has a fixed cost."""

_TYPES = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": (HEADERS_TYPE,),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}
_LACKING = {
    "topic": (
        "topic option required when no 'topic' attribute is present: name a topic with the option"
        " topic, or for each row in a column topic"
    ),
    "value": (
        "Required attribute 'value' not found: give a column this name, as in"
        " selectExpr('to_json(struct(*)) AS value')"
    ),
}

_REFUSED = {
    name: f"cannot be set: {remedy}"
    for name, remedy in {
        "kafka.key.serializer": "keys are written as bytes or text: encode the column",
        "kafka.value.serializer": "values are written as bytes or text: encode the column",
        "kafka.transactional.id": (
            "set exactlyOnce to true, and transactionalIdPrefix if the names require one"
        ),
        "path": "the topic is named by the option topic or the column topic, not by save(path)",
    }.items()
}
_SPARKS = ("checkpointLocation", "queryName", "outputMode", "numRows", "truncate")
"""Options of a streaming query, or of all: Spark passes them on with the others."""


@dataclass(frozen=True)
class WriteOptions:
    topic: str | None
    """The topic of all rows, whatever their column has."""
    dlq_topic: str | None
    """The topic for rows that cannot be written."""
    keep_timestamps: bool
    exactly_once: bool
    transactional_id_prefix: str
    marker_topic: str
    client: dict[str, str]
    """Configs of a ProducerConfig."""


def write_options(texts: Mapping[str, str]) -> WriteOptions:
    """Return the checked options. Raises ConfigError with the option and the remedy."""
    reading = {
        name.lower(): "is for reading; leave it out of a write"
        for name in NAMES
        if name not in WRITE_NAMES
    }
    options = OptionTexts(texts, (*WRITE_NAMES, *_SPARKS), reading | _REFUSED)
    options.expect_servers()
    exactly_once = options.flag("exactlyOnce", False)
    client = {"batch.size": str(BATCH_BYTES)} | options.client()
    _check(client, exactly_once)
    return WriteOptions(
        topic=_name(options, "topic"),
        dlq_topic=_name(options, "dlqTopic"),
        keep_timestamps=options.flag("keepTimestamps", False),
        exactly_once=exactly_once,
        transactional_id_prefix=_name(options, "transactionalIdPrefix") or "k",
        marker_topic=_name(options, "markerTopic") or "__consumer_offsets",
        client=client,
    )


def _name(options: OptionTexts, name: str) -> str | None:
    text = options.text(name)
    if text is not None and not text.strip():
        raise ConfigError(f"option {name} is empty")
    return None if text is None else text.strip()


def _check(client: dict[str, str], exactly_once: bool) -> None:
    """Check the producer's configuration before there is a task."""
    if exactly_once:
        client.setdefault("transaction.timeout.ms", str(TRANSACTION_TIMEOUT_MS))
    ProducerConfig.of(client | ({"transactional.id": "k"} if exactly_once else {}))


def columns_of(types: Mapping[str, str], options: WriteOptions) -> tuple[str, ...]:
    """Return the columns to write, of those with these simple types. Raises ConfigError if one is
    missing or has another type.
    """
    for name, lacking in _LACKING.items():
        if name not in types and not (name == "topic" and options.topic is not None):
            raise ConfigError(lacking)
    columns = []
    for name, allowed in _TYPES.items():
        if name not in types or (name == "topic" and options.topic is not None):
            continue
        if name == "timestamp" and not options.keep_timestamps:
            continue
        if types[name] not in allowed:
            raise ConfigError(
                f"{name} attribute unsupported type {types[name]}. {name} must be a(n)"
                f" {' or '.join(allowed)}: cast the column"
            )
        columns.append(name)
    if options.keep_timestamps and "timestamp" not in types:
        raise ConfigError(
            "option keepTimestamps requires a column named timestamp; add one, or leave out the"
            " option"
        )
    return tuple(columns)
