"""DataFrames over topics of a broker, filled and read, for tests of the data source `k`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kcli.client import Admin, Blocking
from kcli.spark.batch import BatchReader
from kcli.spark.offset_ranges import KafkaOffsetRange
from kcli.spark.options import ReadOptions
from kserver.wire.api_key import ApiKey
from tests.support.brokers import append, create_topic
from tests.support.wire_client import WireClient, milliseconds

T0 = 1_700_000_000_000


def of(reader, broker, topic: str, **options: object):
    """Load one topic with `spark.read` or `spark.readStream` and these options."""
    reader = reader.format("k").option("kafka.bootstrap.servers", broker.address)
    if not {"assign", "subscribePattern"} & options.keys():
        reader = reader.option("subscribe", topic)
    return reader.options(**{name: str(value) for name, value in options.items()})


def fill(broker, topic: str, *counts: int, start: int = 0) -> None:
    """Write this many records to each partition; values are p:n."""
    for partition, count in enumerate(counts):
        if count:
            records = [
                (T0 + n, b"k%d" % n, b"%d:%d" % (partition, n), ())
                for n in range(start, start + count)
            ]
            append(broker.address, topic, records, partition)


def values(frame) -> list[str]:
    return sorted(bytes(row.value).decode() for row in frame.select("value").collect())


def offsets(topic: str, **of_partition: int) -> str:
    return json.dumps({topic: {name[1:]: offset for name, offset in of_partition.items()}})


def planned(options: ReadOptions) -> list[KafkaOffsetRange]:
    """Return the offset ranges that the tasks of a batch would read, as planned now."""
    return [one for task in BatchReader(options, ()).partitions() for one in task.ranges]


def refusal(run) -> str:
    with pytest.raises(Exception) as caught:
        run()
    return str(caught.value)


def delete_before(broker, topic: str, offset: int) -> None:
    with WireClient(broker.address) as client:
        one = {"partition_index": 0, "offset": offset}
        answer = client.call(
            ApiKey.DELETE_RECORDS,
            1,
            topics=[{"name": topic, "partitions": [one]}],
            timeout=milliseconds(10_000),
        )
    assert not answer.topics[0].partitions[0].error_code


def admin_of(broker) -> Blocking[Admin]:
    return Blocking(Admin, {"bootstrap.servers": broker.address})


def made_anew(broker, topic: str) -> None:
    with admin_of(broker) as admin:
        admin.delete_topics([topic])
    create_topic(broker.address, topic, partitions=2)


def run(frame, where: Path, *, after_each=lambda id: None, **trigger) -> tuple[list[str], list]:
    """Run the query; return its new values, and its progress batch by batch."""
    found: list[str] = []

    def collect(batch, id: int) -> None:
        found.extend(values(batch))
        after_each(id)

    query = (
        frame.writeStream.foreachBatch(collect)
        .option("checkpointLocation", str(where))
        .trigger(**(trigger or {"availableNow": True}))
        .start()
    )
    assert query.awaitTermination(120)
    return sorted(found), list(query.recentProgress)
