"""Batches that were encoded elsewhere, between records that were not."""

from __future__ import annotations

import pytest

from kserver.errors import ErrorCode, KafkaError
from kserver.wire.batch import EncodedRecords, encode_records
from tests.support import transacting
from tests.support.producing import OK, run


def encoded(*values: bytes) -> EncodedRecords:
    rows = [(1000 + n, b"k", value, (("h", b"v"),)) for n, value in enumerate(values)]
    return EncodedRecords(encode_records(rows), len(rows), 1000, 1000 + len(rows) - 1)


def test_they_keep_their_place_among_others_and_their_bytes():
    async def scenario(producer, broker, topic):
        assert await producer.partitions_for("t") == 1
        await producer.send("t", b"a")
        assert producer.try_send_encoded("t", 0, encoded(b"b", b"c"))
        await producer.send("t", b"d")
        await producer.flush()
        assert topic.values() == [b"a", b"b", b"c", b"d"]
        records = [record for batch in topic.log for record in batch.records()]
        assert [record.timestamp for record in records] == [1234, 1000, 1001, 1234]
        assert records[1].headers == (("h", b"v"),)
        assert [batch.base_sequence for batch in topic.log] == [0, 1, 3]

    run(scenario)


def test_one_that_is_too_large_for_the_broker_is_split():
    async def scenario(producer, broker, topic):
        await producer.partitions_for("t")
        topic.verdict = lambda batch: ErrorCode.message_too_large if batch.count > 2 else OK
        assert producer.try_send_encoded("t", 0, encoded(*(b"%d" % n for n in range(5))))
        await producer.flush()
        assert topic.values() == [b"0", b"1", b"2", b"3", b"4"]

    run(scenario)


def test_they_wait_for_memory_and_metadata_as_records_do():
    async def scenario(producer, broker, topic):
        one = encoded(b"x" * 500)
        assert not producer.try_send_encoded("t", 0, one)
        await producer.ready("t")
        taken = 0
        while producer.try_send_encoded("t", 0, one):
            taken += 1
        assert 0 < taken < 10
        await producer.ready("t")
        assert producer.try_send_encoded("t", 0, one)
        with pytest.raises(KafkaError, match="larger than 1000"):
            producer.try_send_encoded("t", 0, encoded(b"x" * 2000))
        await producer.flush()
        assert len(topic.log) == taken + 1

    run(scenario, buffer_memory="4000", batch_size="100", max_request_size="1000")


def test_they_are_part_of_a_transaction():
    async def scenario(producer, coordinator, topic):
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.partitions_for("t")
        assert producer.try_send_encoded("t", 1, encoded(b"a", b"b"))
        await producer.commit_transaction()
        assert coordinator.calls() == ["init", "partitions", "produce", "commit"]
        assert [batch.count for batch in topic.log] == [2]

    transacting.run(scenario, implicit=False)
