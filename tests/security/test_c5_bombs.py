"""C5: what unfolds to much more than it is, or into itself, is refused within a bound of memory.

CVE-2023-34455: a snappy block of some bytes that claimed gigabytes.  The bound is
sixteen times max.message.bytes, not a ratio of each batch: one of equal records is rightly a
thousandth of what it unfolds to.
"""

import struct
import time

import pytest

from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from kserver.wire.batch import encode_batch
from kserver.wire.compression import Compression, compress
from tests.contract.api.calls import Topic, produce, produce_fields, topic_id
from tests.fault.test_hostile import clear_peak, packed, rss_bytes
from tests.support import brokers, hostile
from tests.support.wire_client import WireClient

CODECS = [codec for codec in Compression if codec]
ALLOWED_BYTES = 64 << 20
UNFOLDED_BYTES = 16 << 20
"""What a batch may unfold to: sixteen times the largest that is taken."""
WALKED = brokers.names("walked")


@pytest.fixture
def walked(broker):
    """A topic whose broker walks every record."""
    name = brokers.create_topic(broker.address, next(WALKED), validate_records="full")
    with WireClient(broker.address) as client:
        yield client, Topic(name, topic_id(client, name))


@pytest.mark.parametrize("times", [2, 50, 1000], ids="{} times".format)
@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_a_batch_is_unfolded_up_to_the_bound_whatever_its_ratio(broker, walked, codec, times):
    client, topic = walked
    size = min(2 * UNFOLDED_BYTES, times << 20)
    body = compress(codec, bytes(size))
    if len(body) > 900_000:
        body = body[:900_000]
    produce(client, 9, topic, packed(codec, body, 1))  # the codec is loaded
    clear_peak(broker.pid)
    before, began = rss_bytes(broker.pid), time.monotonic()
    answer = produce(client, 9, topic, packed(codec, body, 1))
    refusals = {ErrorCode.corrupt_message, ErrorCode.message_too_large}
    if size <= UNFOLDED_BYTES:
        refusals.add(ErrorCode.invalid_record)  # it is unfolded, and holds no record
    assert answer.error_code in refusals
    assert rss_bytes(broker.pid, "VmHWM") - before <= ALLOWED_BYTES
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_a_batch_within_a_batch_is_refused(walked, codec):
    client, topic = walked
    inner = encode_batch([(1_000, None, b"inner", ())], compression=codec)
    for _ in range(3):
        inner = packed(codec, compress(codec, inner), 1)
        answer = produce(client, 9, topic, inner)
        assert answer.error_code in {ErrorCode.corrupt_message, ErrorCode.invalid_record}


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
@pytest.mark.parametrize("magic", [0, 1])
def test_an_old_message_that_holds_messages_is_refused_unread(walked, magic, codec):
    """The formats before 0.11 packed a set of messages, however deep, into a message's value."""
    client, topic = walked
    message = b""
    for _ in range(20):
        value = compress(codec, message or b"x")
        head = struct.pack(">bb", magic, codec) + (bytes(8) if magic else b"")
        body = head + struct.pack(">ii", -1, len(value)) + value
        message = struct.pack(">qii", 0, len(body) + 4, 0) + body
    answer = produce(client, 9, topic, message)
    assert answer.error_code is ErrorCode.invalid_record


@pytest.mark.parametrize("number", [5, 6, 7])
def test_a_codec_that_is_none_is_refused(walked, number):
    client, topic = walked
    answer = produce(client, 9, topic, packed(number, b"x" * 100, 1))
    assert answer.error_code in {
        ErrorCode.corrupt_message,
        ErrorCode.invalid_record,
        ErrorCode.unsupported_compression_type,
    }


def test_one_batch_is_taken_where_one_may_stand(walked):
    client, topic = walked
    one = encode_batch([(1_000, None, b"one", ())])
    answer = client.call(ApiKey.PRODUCE, 9, **produce_fields(9, topic, {0: one * 1000}))
    (partition,) = answer.responses[0].partition_responses
    assert partition.error_code is ErrorCode.invalid_record


def test_a_batch_that_says_it_holds_billions_is_refused(walked):
    client, topic = walked
    data = encode_batch([(1_000, None, b"one", ())])
    lie = data[:23] + struct.pack(">i", 2**31 - 2) + data[27:57] + struct.pack(">i", 2**31 - 1)
    answer = produce(client, 9, topic, hostile.with_right_crc(lie + data[61:]))
    assert answer.error_code in {ErrorCode.corrupt_message, ErrorCode.invalid_record}
