"""Test Produce requests, in every served version, against our broker or Apache's."""

import struct
import threading
import uuid

import pytest

from kserver.api import produce as module
from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from kserver.wire.batch import HEADER_SIZE, TimestampType, batches
from kserver.wire.checksum import crc32c
from kserver.wire.compression import Compression
from tests.contract.api.calls import (
    FIRST_WITH_TOPIC_IDS,
    UNKNOWN_TAGS,
    Topic,
    array,
    batch,
    compact,
    fetch,
    fetch_fields,
    produce,
    produce_fields,
    produce_to,
    topic_id,
)
from tests.support.wire_client import WireClient, milliseconds

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)
OLDEST_AND_NEWEST = (VERSIONS[0], VERSIONS[-1])
FETCH_VERSION = 12
FIRST_WITH_ZSTD, FIRST_FLEXIBLE = 7, 9
UNREADABLE = (
    ErrorCode.invalid_record,
    ErrorCode.corrupt_message,
    ErrorCode.unknown_server_error,
)
"""Errors for unreadable records: Apache's depends on where reading stops, and its message is that
of a Java exception."""


@every_version
@pytest.mark.parametrize("acks", [1, -1])
def test_records_get_the_offsets_that_follow(client, topic, version, acks):
    first = produce(client, version, topic, batch(b"a", b"b", b"c"), acks=acks)
    second = produce(client, version, topic, batch(b"d"), acks=acks)
    assert (first.error_code, first.base_offset) == (ErrorCode.none, 0)
    assert (second.error_code, second.base_offset) == (ErrorCode.none, 3)
    assert first.log_append_time is None
    if version >= 5:
        assert second.log_start_offset == 0


@every_version
def test_log_append_time_is_told_and_stamped(client, make_topic, version):
    topic = make_topic(message_timestamp_type="LogAppendTime")
    answer = produce(client, version, topic, batch(b"a", b"b"))
    (stored,) = batches(fetch(client, FETCH_VERSION, topic, 0).records)
    told_ms = round(answer.log_append_time.timestamp() * 1000)
    assert stored.timestamp_type is TimestampType.log_append_time
    assert [r.timestamp for r in stored.records()] == [told_ms, told_ms]
    assert stored.max_timestamp == told_ms > 1_000
    assert stored.is_valid_crc()


@every_version
def test_a_request_with_acks_0_is_not_answered(client, topic, version):
    client.send(KEY, version, **produce_fields(version, topic, {0: batch(b"a")}, acks=0))
    assert produce(client, version, topic, batch(b"b")).base_offset == 1


@every_version
def test_an_error_with_acks_0_ends_the_connection(client, topic, version):
    fields = produce_fields(version, Topic("missing", uuid.uuid4()), {0: batch(b"a")}, acks=0)
    client.send(KEY, version, **fields)
    assert client.is_closed()


@every_version
@pytest.mark.parametrize("acks", [2, -2])
def test_acks_of_other_numbers_are_refused(client, topic, version, acks):
    answer = produce(client, version, topic, batch(b"a"), acks=acks)
    assert answer.error_code is ErrorCode.invalid_required_acks
    assert produce(client, version, topic, batch(b"a")).base_offset == 0


@every_version
def test_each_partition_is_answered_on_its_own(client, make_topic, version):
    topic = make_topic(partitions=2)
    spoilt = bytearray(batch(b"b"))
    spoilt[-1] ^= 1
    sent = {0: batch(b"a"), 1: bytes(spoilt), 2: batch(b"c")}
    answers = produce_to(client, version, topic, sent)
    assert [answers[p].error_code for p in (0, 1, 2)] == [
        ErrorCode.none,
        ErrorCode.corrupt_message,
        ErrorCode.unknown_topic_or_partition,
    ]
    assert answers[0].base_offset == 0
    assert produce_to(client, version, topic, {1: batch(b"b")})[1].base_offset == 0


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= FIRST_FLEXIBLE])
def test_tagged_fields_that_nobody_knows_are_passed_over(client, make_topic, version):
    topics = [make_topic(), make_topic()]
    by_id = version >= FIRST_WITH_TOPIC_IDS
    named = [one.id.bytes if by_id else compact(one.name.encode()) for one in topics]
    records = struct.pack(">i", 0) + compact(batch(b"a")) + UNKNOWN_TAGS
    wanted = array(*[one + array(records) + UNKNOWN_TAGS for one in named])
    body = b"\0" + struct.pack(">hi", -1, 30_000) + wanted + UNKNOWN_TAGS
    told = client.call_bytes(KEY, version, body).responses
    assert {one.topic_id if by_id else one.name for one in told} == {
        one.id if by_id else one.name for one in topics
    }
    for one in told:
        (answer,) = one.partition_responses
        assert (answer.error_code, answer.base_offset) == (ErrorCode.none, 0)


@every_version
def test_an_unknown_topic_is_named_as_unknown(client, version):
    unknown = Topic("missing", uuid.uuid4())
    answer = produce(client, version, unknown, batch(b"a"))
    by_id = version >= FIRST_WITH_TOPIC_IDS
    assert answer.error_code is (
        ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition
    )
    assert answer.base_offset == -1


@pytest.mark.parametrize("version", VERSIONS[FIRST_WITH_TOPIC_IDS - VERSIONS[0] :])
def test_the_zero_topic_id_is_unknown(client, version):
    zero = Topic("", uuid.UUID(int=0))
    assert produce(client, version, zero, batch(b"a")).error_code is ErrorCode.unknown_topic_id


@every_version
def test_a_record_larger_than_the_topic_allows_is_refused(client, make_topic, version):
    topic = make_topic(max_message_bytes=1000)
    answer = produce(client, version, topic, batch(b"a" * 1000))
    assert answer.error_code is ErrorCode.message_too_large
    assert produce(client, version, topic, batch(b"a" * 900)).base_offset == 0


@every_version
@pytest.mark.parametrize("codec", list(Compression)[1:])
def test_what_was_compressed_stays_as_it_came(client, topic, version, codec):
    sent = batch(b"a" * 100, b"b" * 100, compression=codec)
    answer = produce(client, version, topic, sent)
    if codec is Compression.zstd and version < 7:
        assert answer.error_code is ErrorCode.unsupported_compression_type
        return
    assert answer.error_code is ErrorCode.none
    (stored,) = batches(fetch(client, FETCH_VERSION, topic, 0).records)
    assert stored.compression is codec
    assert bytes(stored.buffer)[21:] == sent[21:]


@every_version
def test_a_producer_that_is_not_known_may_begin_with_any_sequence(client, topic, version):
    fields = {"producer_id": 4_000_000, "producer_epoch": 3}
    produce(client, version, topic, batch(b"another's"))
    answer = produce(client, version, topic, batch(b"a", base_sequence=17, **fields))
    assert answer.error_code is ErrorCode.none
    after = produce(client, version, topic, batch(b"b", base_sequence=18, **fields))
    assert (after.error_code, after.base_offset) == (ErrorCode.none, 2)


@every_version
def test_the_first_batch_of_a_partition_cannot_overtake_the_one_before_it(
    client, topic, version, only_ours
):
    """As in Apache from 4.5 on (KAFKA-15591); earlier releases lose the records of the first
    batch."""
    fields = {"producer_id": 4_000_005, "producer_epoch": 0}
    first, second = (batch(b"%d" % n, base_sequence=n, **fields) for n in (0, 1))
    early = produce(client, version, topic, second)
    assert early.error_code is ErrorCode.out_of_order_sequence_number
    answers = [produce(client, version, topic, one) for one in (first, second)]
    assert [(a.error_code, a.base_offset) for a in answers] == [(ErrorCode.none, n) for n in (0, 1)]


@every_version
def test_a_forgotten_producer_continues_where_all_records_were_deleted(client, topic, version):
    fields = {"producer_id": 4_000_006, "producer_epoch": 0}
    produce(client, version, topic, batch(b"another's"))
    partitions = [{"partition_index": 0, "offset": 1}]
    topics = [{"name": topic.name, "partitions": partitions}]
    client.call(ApiKey.DELETE_RECORDS, 2, topics=topics, timeout=milliseconds(10_000))
    answer = produce(client, version, topic, batch(b"a", base_sequence=9, **fields))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.none, 1)


@every_version
def test_a_batch_sent_again_is_answered_as_the_first_time_and_stored_once(client, topic, version):
    fields = {"producer_id": 4_000_001, "producer_epoch": 0}
    first, second = (
        batch(b"a", b"b", base_sequence=0, **fields),
        batch(b"c", base_sequence=2, **fields),
    )
    once = [produce(client, version, topic, one) for one in (first, second)]
    again = [produce(client, version, topic, one) for one in (first, second)]
    assert [(a.error_code, a.base_offset) for a in once] == [(ErrorCode.none, o) for o in (0, 2)]
    assert [(a.error_code, a.base_offset) for a in again] == [(ErrorCode.none, o) for o in (0, 2)]
    assert len(list(batches(fetch(client, FETCH_VERSION, topic, 0).records))) == 2


@every_version
def test_a_gap_in_the_sequence_is_refused(client, topic, version):
    fields = {"producer_id": 4_000_002, "producer_epoch": 0}
    produce(client, version, topic, batch(b"a", base_sequence=0, **fields))
    answer = produce(client, version, topic, batch(b"c", base_sequence=2, **fields))
    assert answer.error_code is ErrorCode.out_of_order_sequence_number


@every_version
def test_a_producer_of_an_older_epoch_is_fenced(client, topic, version):
    produce(
        client,
        version,
        topic,
        batch(b"a", producer_id=4_000_003, producer_epoch=1, base_sequence=0),
    )
    old = batch(b"b", producer_id=4_000_003, producer_epoch=0, base_sequence=0)
    assert produce(client, version, topic, old).error_code is ErrorCode.invalid_producer_epoch


@every_version
def test_no_more_replicas_in_sync_are_wanted_than_the_topic_has(client, make_topic, version):
    topic = make_topic(min_insync_replicas=2)
    assert produce(client, version, topic, batch(b"a"), acks=-1).error_code is ErrorCode.none
    assert produce(client, version, topic, batch(b"a"), acks=1).error_code is ErrorCode.none


@every_version
def test_a_compacted_topic_takes_no_record_without_a_key_and_names_it(client, make_topic, version):
    topic = make_topic(cleanup_policy="compact")
    answer = produce(client, version, topic, batch(b"a", b"b"))
    assert answer.error_code is ErrorCode.invalid_record
    if version >= 8:
        assert [e.batch_index for e in answer.record_errors] == [0, 1]


@every_version
@pytest.mark.parametrize("records", [batch(b"a") + batch(b"b"), b""], ids=["two", "none"])
def test_anything_but_one_batch_is_refused(client, topic, version, records):
    assert produce(client, version, topic, records).error_code is ErrorCode.invalid_record
    assert produce(client, version, topic, batch(b"a")).base_offset == 0


@pytest.mark.parametrize("version", OLDEST_AND_NEWEST)
@pytest.mark.parametrize("magic", [0, 1, 3])
def test_an_older_or_newer_format_is_refused(client, topic, version, magic):
    other = bytearray(batch(b"a"))
    other[16] = magic
    answer = produce(client, version, topic, bytes(other))
    assert answer.error_code is not ErrorCode.none
    assert produce(client, version, topic, batch(b"a")).base_offset == 0


@pytest.mark.parametrize("version", OLDEST_AND_NEWEST)
def test_a_batch_of_a_megabyte_comes_back_byte_for_byte(client, topic, version):
    # The largest batch that the default message.max.bytes, 1048588, allows.
    sent = batch(b"x" * (1_048_588 - 61 - 12))
    assert len(sent) == 1_048_588 - 1
    assert produce(client, version, topic, sent).error_code is ErrorCode.none
    got = fetch(client, FETCH_VERSION, topic, 0, partition_max_bytes=1 << 21).records
    assert bytes(got)[21:] == sent[21:]


def test_producers_side_by_side_lose_and_double_nothing(broker, topic):
    each = 200

    def send(producer):
        with WireClient(broker.address) as client:
            for n in range(each):
                produce(client, 9, topic, batch(b"%d %d" % (producer, n)))

    threads = [threading.Thread(target=send, args=(p,)) for p in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with WireClient(broker.address) as client:
        answer = client.call(ApiKey.FETCH, 11, **fetch_fields(11, topic, {0: 0}))
    records = [r for b in batches(answer.responses[0].partitions[0].records) for r in b.records()]
    assert [r.offset for r in records] == list(range(4 * each))
    for producer in range(4):
        own = [r.value for r in records if r.value.startswith(b"%d " % producer)]
        assert own == [b"%d %d" % (producer, n) for n in range(each)]


@every_version
def test_coordinators_topics_are_not_for_clients_to_write_to(client, group, version):
    offsets = Topic("__consumer_offsets", topic_id(client, "__consumer_offsets"))
    refused = produce(client, version, offsets, batch(b"a"))
    assert refused.error_code is ErrorCode.invalid_topic_exception


def forged(records, *, count=None, body=None, codec=None):
    """Return a batch with a false header under a valid CRC."""
    data = bytearray(records)
    if body is not None:
        data[HEADER_SIZE:] = body
        data[8:12] = (len(data) - 12).to_bytes(4)
    if count is not None:
        data[23:27] = (count - 1).to_bytes(4)
        data[57:61] = count.to_bytes(4)
    if codec is not None:
        data[22] = codec
    data[17:21] = crc32c(data[21:]).to_bytes(4)
    return bytes(data)


@pytest.mark.parametrize("version", OLDEST_AND_NEWEST)
@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_count_that_the_records_do_not_bear_out_is_refused(client, topic, version, count):
    """Every consumer would fail at such a batch."""
    refused = produce(client, version, topic, forged(batch(b"a", b"b", b"c"), count=count))
    assert refused.error_code is ErrorCode.invalid_record
    assert produce(client, version, topic, batch(b"good")).base_offset == 0


@pytest.mark.parametrize("version", [FIRST_WITH_ZSTD, VERSIONS[-1]])
@pytest.mark.parametrize("codec", [c for c in Compression if c])
def test_bytes_that_do_not_decompress_are_refused(client, topic, version, codec):
    refused = produce(client, version, topic, forged(batch(b"a"), body=b"garbage" * 9, codec=codec))
    assert refused.error_code in UNREADABLE
    assert produce(client, version, topic, batch(b"good", compression=codec)).base_offset == 0


@pytest.mark.parametrize("version", OLDEST_AND_NEWEST)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x0e\0\0\0\x02k\0",
        b"\x10\0\0\0\x02k\0\x02",
        b"\xff" * 11,
        b"\x1a\0\0\0\x02k\x82\x80\x80\x80\x80\0v\0",  # a length in six bytes
    ],
)
def test_records_that_are_none_are_refused(client, topic, version, body):
    refused = produce(client, version, topic, forged(batch(b"a"), body=body))
    assert refused.error_code in UNREADABLE
    assert produce(client, version, topic, batch(b"good")).base_offset == 0
