import dataclasses
import io
import typing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_writer

from kserver.errors import ProtocolError
from kserver.wire import codec, varint
from kserver.wire.versions import request
from tests.support.messages import VERSIONS, filled

TYPES = [codec.request_type(*which) for which in VERSIONS]
TYPES += [codec.response_type(*which) for which in VERSIONS]
NESTED = [codec.request_type(key, codec.versions_of(key)[1]) for key in (0, 1, 2, 8, 19)]


def written(cls, elements=2):
    out = io.BytesIO()
    entity_writer(cls)(out, filled(cls, elements))
    return out.getvalue()


def read(cls, body):
    """As the codec reads a message of that type."""
    key, version = cls.__api_key__, cls.__version__
    if cls.__type__.name == "request":
        header = codec.RequestHeader(key, version, 0, None)
        return codec.read_request(header, memoryview(bytearray(body)), 0)
    tags = codec.is_flexible(key, version) and key != codec.API_VERSIONS
    return codec.read_response(key, version, memoryview(bytes(4 + tags) + body))[1]


def test_a_cut_message_is_refused():
    for cls in TYPES:
        body = written(cls)
        for cut in {1, len(body) // 2} if body else ():
            with pytest.raises(ProtocolError):
                read(cls, body[:-cut])


@pytest.mark.parametrize("claim", [0x7FFFFFFF, 0x01000000, 1000])
def test_an_array_that_claims_more_than_there_is_is_refused(claim):
    """In kio such a claim would reserve memory, or end the process."""
    legacy = bytes.fromhex("0004 6e616d65")
    topics = memoryview(claim.to_bytes(4) + legacy)
    with pytest.raises(ProtocolError, match=f"{claim} elements"):
        codec.read_request(codec.RequestHeader(3, 1, 0, None), topics, 0)
    compact = memoryview(varint.encode_unsigned(claim + 1) + bytes(20))
    with pytest.raises(ProtocolError, match=f"{claim} elements"):
        codec.read_request(codec.RequestHeader(3, 12, 0, None), compact, 0)


def test_null_is_refused_where_an_array_must_not_be_null():
    """Metadata takes a null list of topics, for all of them, only from v1."""
    null = memoryview(b"\xff\xff\xff\xff")
    with pytest.raises(ProtocolError, match="null"):
        codec.read_request(codec.RequestHeader(3, 0, 0, None), null, 0)
    assert codec.read_request(codec.RequestHeader(3, 1, 0, None), null, 0).topics is None


def test_the_claim_of_an_inner_array_is_checked_too():
    for cls in NESTED:
        body = written(cls)
        places = 0
        for at in range(len(body)):
            lie = body[:at] + b"\xff\xff\xff\xff\x0f" + body[at + 1 :]
            try:
                read(cls, lie)
            except ProtocolError as error:
                places += "an array of" in str(error)
        assert places >= 2


@pytest.mark.parametrize("tag", [99, 127, 128, 5000])
def test_a_tagged_field_of_a_later_version_is_skipped(tag):
    """At the end of every message, so the walk agrees with kio on every field before it."""
    later = b"\x01" + varint.encode_unsigned(tag) + b"\x05later"
    tried = 0
    for cls in TYPES:
        body = written(cls)
        has_known = any("tag" in field.metadata for field in dataclasses.fields(cls))
        if cls.__flexible__ and not has_known:
            assert body.endswith(b"\0")
            assert read(cls, body[:-1] + later) == filled(cls)
            tried += 1
    assert tried > 200


def test_unknown_tags_go_at_every_depth_beside_known_ones():
    """Fetch v12: a topic's partition with epoch tags; the cluster id is a known tag at the top."""
    cls = codec.request_type(1, 12)
    plain = request(1, 12)(
        cluster_id="c",
        topics=[
            request(1, 12).topics(
                topic="t", partitions=[request(1, 12).topics.partitions(partition=1)]
            )
        ],
    )
    out = io.BytesIO()
    entity_writer(cls)(out, plain)
    body = out.getvalue()
    # Partition, topic, forgotten topics, rack, then one tag of two bytes at the top.
    assert body.endswith(b"\0\0\x01\x01" + b"\x01\x00\x02\x02c")
    unknown = b"\x63\x03abc"
    tagged = body[:-9] + b"\x01" + unknown + b"\x02" + unknown * 2
    tagged += b"\x01\x01" + b"\x03" + unknown + b"\x00\x02\x02c" + unknown
    assert read(cls, tagged) == plain


def test_unknown_tags_inside_a_known_tag_change_its_size():
    """Produce v10's answer: current_leader is a tagged struct that has tags of its own."""
    cls = codec.response_type(0, 10)
    whole = filled(cls, elements=1)
    body = written(cls, elements=1)
    leader = bytes.fromhex("00000005 00000005")
    assert body.count(b"\x00\x09" + leader + b"\x00") == 1
    grown = body.replace(b"\x00\x09" + leader + b"\x00", b"\x00\x0e" + leader + b"\x01\x63\x03abc")
    assert read(cls, grown) == whole


@pytest.mark.parametrize(
    "tags",
    [
        pytest.param(b"\x01\x63\x7fabc", id="size past the end"),
        pytest.param(b"\xff\xff\xff\xff\x0f\x63\x00", id="2^32 fields"),
        pytest.param(b"\x02\x63\x00", id="one field too few"),
        pytest.param(b"\x01\x63\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", id="size of 70 bits"),
    ],
)
def test_broken_tags_are_refused(tags):
    cls = codec.request_type(12, 4)
    with pytest.raises(ProtocolError):
        read(cls, written(cls)[:-1] + tags)


def test_a_known_tag_of_another_size_is_refused():
    cls = codec.response_type(0, 10)
    body = written(cls, elements=1)
    with pytest.raises(ProtocolError, match="another size"):
        read(cls, body.replace(b"\x00\x09\0\0\0\5", b"\x00\x0a\0\0\0\5"))


@given(st.data())
@settings(max_examples=400)
def test_changed_messages_are_read_or_refused_and_nothing_else(data):
    cls = data.draw(st.sampled_from(TYPES))
    body = bytearray(written(cls, data.draw(st.integers(0, 2))))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(body)))
        body[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    try:
        read(cls, bytes(body))
    except ProtocolError:
        pass


@given(st.sampled_from(TYPES), st.binary(max_size=80))
@settings(max_examples=400)
def test_noise_is_read_or_refused_and_nothing_else(cls: typing.Any, body):
    try:
        read(cls, body)
    except ProtocolError:
        pass
