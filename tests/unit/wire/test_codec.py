import io
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_writer

from kserver.errors import ProtocolError
from kserver.wire import codec
from kserver.wire.versions import reply_to, request
from tests.support.messages import VERSIONS, filled

KEYS = sorted(codec.api_key_map)


def each_version(key):
    lowest, highest = codec.versions_of(key)
    return range(lowest, highest + 1)


def body_of(frame):
    """What follows the length, which must be right."""
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    return memoryview(bytearray(frame))[4:]


@pytest.mark.parametrize("key", KEYS, ids=codec.api_name)
def test_every_request_comes_back_as_it_was_written(key):
    for version in each_version(key):
        for sent in (request(key, version)(), filled(codec.request_type(key, version))):
            frame = body_of(codec.write_request(sent, 77, "client"))
            header, at = codec.read_request_header(frame)
            assert header == (key, version, 77, "client")
            assert codec.read_request(header, frame, at) == sent


@pytest.mark.parametrize("key", KEYS, ids=codec.api_name)
def test_every_answer_comes_back_as_it_was_written(key):
    for version in each_version(key):
        sent = filled(codec.response_type(key, version))
        frame = body_of(codec.write_response(key, version, 77, sent))
        assert codec.read_response(key, version, frame) == (77, sent)


def test_headers_are_those_of_kios_schemas():
    for key, version in VERSIONS:
        written = codec.write_request(request(key, version)(), 77, "me")
        schema = codec.request_type(key, version).__header_schema__
        tags = {} if schema.__version__ == 1 else {"__version__": 2}
        assert codec.is_flexible(key, version) == bool(tags)
        out = io.BytesIO()
        entity_writer(schema)(
            out,
            schema(
                request_api_key=key, request_api_version=version, correlation_id=77, client_id="me"
            ),
        )
        assert written[4:].startswith(out.getvalue())
        answer = codec.response_type(key, version)
        has_tags = answer.__header_schema__.__version__ == 1
        frame = codec.write_response(key, version, 77, filled(answer))
        plain = io.BytesIO()
        entity_writer(answer)(plain, filled(answer))
        assert len(frame) == 4 + 4 + has_tags + len(plain.getvalue())


def test_an_api_versions_answer_has_no_tags_in_its_header_in_any_version():
    for version in range(5):
        frame = codec.write_response(18, version, 77, reply_to(request(18, version)())())
        assert frame[4:10] == b"\x00\x00\x00\x4d" + b"\x00\x00"


@pytest.mark.parametrize("client_id", [None, "", "client", "\u00e9" * 100])
@pytest.mark.parametrize("version", [3, 4])
def test_any_client_id_is_read(client_id, version):
    sent = request(12, version)(group_id="g")
    frame = body_of(codec.write_request(sent, -5, client_id))
    header, at = codec.read_request_header(frame)
    assert header == (12, version, -5, client_id)
    assert codec.read_request(header, frame, at) == sent


@pytest.mark.parametrize(("key", "version"), [(18, 99), (18, -1), (4242, 0), (-7, 3), (3, 0x7FFF)])
def test_of_an_unknown_version_the_shared_part_of_the_header_is_read(key, version):
    frame = memoryview(struct.pack(">hhih", key, version, 77, 2) + b"me" + b"whatever follows")
    assert codec.read_request_header(frame) == ((key, version, 77, "me"), 12)
    assert not codec.is_flexible(key, version)


def test_tagged_fields_in_headers_are_skipped():
    tags = b"\x02" + b"\x00\x03abc" + b"\x81\x02\x00"
    head = struct.pack(">hhih", 12, 4, 77, -1)
    body = body_of(codec.write_request(filled(codec.request_type(12, 4)), 77, None))[11:]
    frame = memoryview(head + tags + body)
    header, at = codec.read_request_header(frame)
    assert at == len(head + tags)
    assert codec.read_request(header, frame, at) == filled(codec.request_type(12, 4))
    answer = filled(codec.response_type(12, 4))
    body = codec.write_response(12, 4, 77, answer)[9:]
    assert codec.read_response(12, 4, memoryview(bytes((0, 0, 0, 77)) + tags + body)) == (
        77,
        answer,
    )


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(struct.pack(">hhi", 12, 3, 1), id="no client id"),
        pytest.param(struct.pack(">hhih", 12, 3, 1, 5) + b"four", id="a cut client id"),
        pytest.param(struct.pack(">hhih", 12, 3, 1, 2) + b"\xc3\x28", id="not UTF-8"),
        pytest.param(struct.pack(">hhih", 12, 4, 1, 0), id="no tags"),
        pytest.param(struct.pack(">hhih", 12, 4, 1, 0) + b"\x01\x00\x09abc", id="a cut tag"),
        pytest.param(struct.pack(">hhih", 12, 4, 1, 0) + b"\xff" * 5, id="2^34 tags"),
    ],
)
def test_broken_headers_are_refused(header):
    with pytest.raises(ProtocolError):
        codec.read_request_header(memoryview(header))


def test_a_version_that_does_not_exist_is_refused_by_name():
    with pytest.raises(ProtocolError, match="Metadata has no version 99"):
        codec.request_type(3, 99)
    with pytest.raises(ProtocolError, match="Metadata has no version 99"):
        codec.read_response(3, 99, memoryview(bytes(10)))
    with pytest.raises(ProtocolError, match="api key 4242"):
        codec.request_type(4242, 0)


def test_apis_have_kafkas_names():
    names = {0: "Produce", 18: "ApiVersions", 22: "InitProducerId", 23: "OffsetForLeaderEpoch"}
    assert {key: codec.api_name(key) for key in names} == names
    assert codec.api_name(4242) == "api key 4242"


def test_versions_are_those_kio_has():
    assert codec.versions_of(18) == (0, 4)
    lowest, highest = codec.versions_of(4242)
    assert lowest > highest


def test_schemas_are_loaded_when_they_are_used():
    assert codec.request_type(3, 12).__module__ == "kio.schema.metadata.v12.request"
    assert codec.request_type(3, 12) is codec.request_type(3, 12)


@given(st.binary(max_size=40))
def test_noise_is_a_header_or_refused(frame):
    try:
        header, at = codec.read_request_header(memoryview(frame))
    except ProtocolError:
        return
    assert header.api_key == struct.unpack_from(">h", frame)[0]
    assert 10 <= at <= len(frame)


def test_answers_too_short_for_a_header_are_refused():
    for frame in (b"", b"\0\0\0"):
        with pytest.raises(ProtocolError):
            codec.read_response(18, 0, memoryview(frame))
    with pytest.raises(ProtocolError):
        codec.read_response(12, 4, memoryview(bytes(4)))
