"""Test that Java's clients and ours read each other's records, and choose the same partition for a
key."""

from __future__ import annotations

import asyncio
import subprocess
import sys

from kcli.client.config import ProducerConfig
from kcli.client.producer.partitioner import partition_for_key
from kcli.client.producer.producer import Producer
from kserver.wire.compression import Compression
from tests.support import apache_kafka
from tests.support.real_clients import bootstrap, read
from tests.support.tools import require

VERSION = "4.3.1"


def tool(version: str, *words: str, stdin: str = "") -> str:
    done = subprocess.run(
        [sys.executable, apache_kafka.__file__, "tool", version, *words],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout


def test_what_javas_producer_writes_is_read_and_its_keys_go_where_ours_go(broker, topic):
    require("java")
    lines = "".join(f"h:{n}\tkey-{n},value-{n}\n" for n in range(50))
    tool(
        VERSION,
        "kafka-console-producer.sh",
        *("--bootstrap-server", broker.address, "--topic", topic),
        *("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"),
        *("--reader-property", "key.separator=,"),
        *("--compression-codec", "lz4"),
        stdin=lines,
    )
    found = asyncio.run(read(broker, topic))
    records = [record for partition in found.values() for record in partition]
    assert {(r.key, r.value, r.headers) for r in records} == {
        (b"key-%d" % n, b"value-%d" % n, (("h", b"%d" % n),)) for n in range(50)
    }
    assert all(record.partition == partition_for_key(record.key, 3) for record in records)


def test_javas_consumer_reads_what_is_written_here(broker, topic):
    require("java")

    async def scenario() -> None:
        headers = [("h", b"x")]
        for codec in Compression:
            config = ProducerConfig.of(bootstrap(broker, compression_type=codec.name))
            async with Producer(config) as producer:
                value = codec.name.encode()
                await producer.send(topic, value, b"k", 0, timestamp=codec, headers=headers)

    asyncio.run(scenario())
    printed = tool(
        VERSION,
        "kafka-console-consumer.sh",
        *("--bootstrap-server", broker.address, "--topic", topic, "--partition", "0"),
        *("--offset", "earliest", "--max-messages", "5"),
        *("--formatter-property", "print.key=true", "--formatter-property", "print.headers=true"),
        *("--formatter-property", "print.timestamp=true"),
    )
    assert printed.splitlines() == [
        f"CreateTime:{codec}\th:x\tk\t{codec.name}" for codec in Compression
    ]
