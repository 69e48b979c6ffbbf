"""Topics to compare `format("k")` with Spark's own `format("kafka")`, with everything that a log
may contain: headers, tombstones, codecs, transactions, gaps.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from string import Template

from kcli.client import Blocking, Producer
from kserver.wire.compression import Compression
from tests.support import brokers
from tests.support.brokers import append, create_topic
from tests.support.frames import T0, delete_before, fill

SETTINGS = {"log.retention.ms": -1, "log.cleaner.backoff.ms": 100}
"""Settings of the brokers of these topics."""
PARTITIONS = {"records": 3, "times": 2}
CONFIGS = {
    "appended": {"message_timestamp_type": "LogAppendTime"},
    "compacted": {
        "cleanup_policy": "compact",
        "min_cleanable_dirty_ratio": 0.01,
        "segment_ms": 1,
    },
}


@contextlib.contextmanager
def compared(broker) -> Iterator[dict[str, str]]:
    """Create the topics; yield their names by purpose, and their common prefix.

    The prefix is this broker's, since Spark's own source caches consumers by group and topic.
    """
    address = broker.address
    prefix = f"c{address.rpartition(':')[2]}"
    names = ("records", "times", "transactions", "trimmed", *CONFIGS)
    found = {"prefix": prefix} | {
        name: create_topic(
            address, f"{prefix}-{name}", PARTITIONS.get(name, 1), **CONFIGS.get(name, {})
        )
        for name in names
    }
    _write_records(address, found["records"])
    fill(broker, found["times"], 12, 8)
    fill(broker, found["appended"], 3)
    fill(broker, found["trimmed"], 6)
    delete_before(broker, found["trimmed"], 4)
    _compact(broker, found["compacted"])
    settings = {
        "bootstrap.servers": address,
        "transactional.id": prefix,
        "transaction.timeout.ms": 900_000,
    }
    with Blocking(Producer, settings) as producer:
        _transact(producer, found["transactions"])
        yield found
        producer.abort_transaction()


def filled_in(given: dict[str, str], topics: dict[str, str]) -> dict[str, str]:
    """Replace $times and the like with names of topics."""
    return {name: Template(text).substitute(topics) for name, text in given.items()}


def _write_records(address: str, topic: str) -> None:
    """Write records in every codec: headers of all kinds, null and empty keys and values, times of
    all kinds.
    """
    headers = (
        *(("a", b"1"), ("a", b"2"), ("", b""), ("null", None)),
        ("\u00fc", bytes(range(256))),
    )
    for n, codec in enumerate(Compression):
        records = [
            (T0 + 10 * n, b"k", codec.name.encode(), headers),
            (T0 + 10 * n + 1, None, None, ()),
            (T0 + 10 * n, b"", b"", (("only", b"one"),)),
            (T0 - 5, b"tombstone", None, ()),
            (-1, None, b"no time", ()),
            (0, b"\xff\xfe", b"\0" * 3000, ()),
        ]
        append(address, topic, records, 0, compression=codec)
        append(address, topic, records[:2], 1, compression=codec)


def _compact(broker, topic: str) -> None:
    """Write records, and wait until the cleaner has compacted them."""
    for n in range(20):
        append(broker.address, topic, [(T0 + n, b"k%d" % k, b"%d" % n, ()) for k in range(3)])
        append(broker.address, topic, [(T0 + n, b"gone %d" % n, None, ())])
    brokers.until(lambda: len(brokers.stored(broker, topic)) < 30)


def _transact(producer, topic: str) -> None:
    """Write transactions: committed, aborted, committed, open."""
    producer.init_transactions()
    for n, commit in enumerate((True, False, True)):
        producer.begin_transaction()
        for k in range(2):
            producer.send(topic, b"%d" % n, b"%d" % k, partition=0).result()
        (producer.commit_transaction if commit else producer.abort_transaction)()
    producer.begin_transaction()
    producer.send(topic, b"open", partition=0).result()
