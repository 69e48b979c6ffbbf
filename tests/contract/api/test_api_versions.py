"""Test ApiVersions requests, in every served version, against our broker or Apache's."""

import struct

import pytest

from kserver.api import api_versions
from kserver.api.table import SERVED
from kserver.errors import ErrorCode
from kserver.wire import versions
from kserver.wire.api_key import ApiKey
from kserver.wire.codec import read_response, write_request
from tests.support import brokers
from tests.support.wire_client import WireClient

KEY, VERSIONS = api_versions.KEY, api_versions.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)
SOFTWARE = {"client_software_name": "wire", "client_software_version": "1.0"}


@every_version
def test_lists_the_apis_in_every_version(client, version):
    answer = client.call(KEY, version, **SOFTWARE)
    assert answer.error_code is ErrorCode.none
    listed = [api.api_key for api in answer.api_keys]
    assert set(SERVED) <= set(listed)
    assert len(listed) == len(set(listed))


def test_lists_what_has_a_handler_and_nothing_that_apache_does_not_serve(kind, served):
    listed = SERVED | {ApiKey.PRODUCE: range(SERVED[ApiKey.PRODUCE].stop)}
    if kind == brokers.OURS:
        assert served == listed
    elif kind == "4.3.1":
        for key, ours in listed.items():
            assert set(ours) <= set(served[key]), key


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.usefixtures("since_4")
def test_produce_is_listed_from_0_for_librdkafka_and_yet_refused(client, served, version):
    assert version in served[ApiKey.PRODUCE]
    body = struct.pack(">hhihhii", ApiKey.PRODUCE, version, 1, -1, 1, 1000, 0)
    client.send_bytes(struct.pack(">i", len(body)) + body)
    assert client.is_closed()


@pytest.mark.parametrize("version", [5, 99, 32767])
def test_a_version_from_the_future_is_answered_in_version_0_and_may_begin_again(client, version):
    client.send_bytes(_request_of_unknown_body(KEY, version))
    frame = client.receive_frame()
    correlation_id, answer = read_response(KEY, 0, memoryview(frame))
    assert correlation_id == 77
    assert answer.error_code is ErrorCode.unsupported_version
    own = [(a.min_version, a.max_version) for a in answer.api_keys if a.api_key == KEY]
    assert own == [(0, 4)]
    assert client.call(KEY, own[0][1], **SOFTWARE).error_code is ErrorCode.none


@every_version
def test_the_header_of_its_answer_never_has_tagged_fields(client, version):
    correlation_id = client.send(KEY, version, **SOFTWARE)
    frame = client.receive_frame()
    # The error code follows the correlation id directly, then the number of APIs.
    assert struct.unpack_from(">ih", frame) == (correlation_id, 0)
    count = struct.unpack_from(">i", frame, 6)[0] if version < 3 else frame[6] - 1
    assert 0 < count < 127


@pytest.mark.parametrize("client_id", [None, "", "x", "k" * 300, "ü"])
@every_version
def test_any_client_id_will_do(broker, version, client_id):
    with WireClient(broker.address, client_id=client_id) as client:
        assert client.call(KEY, version, **SOFTWARE).error_code is ErrorCode.none


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("software", ["", "-wire", "wire ", "wi re"])
def test_a_client_that_does_not_name_itself_properly_is_refused(client, version, software):
    answer = client.call(KEY, version, client_software_name=software, client_software_version="1")
    assert answer.error_code is ErrorCode.invalid_request
    answer = client.call(KEY, version, client_software_name="wire", client_software_version="1")
    assert answer.error_code is ErrorCode.none


def test_unknown_tagged_fields_are_skipped(client):
    whole = write_request(versions.request(KEY, 3)(**SOFTWARE), 5, "wire")
    assert whole.endswith(b"\0")
    tags = b"\2" + b"\x63\3abc" + b"\x64\0"
    request = whole[4:-1] + tags
    client.send_bytes(struct.pack(">i", len(request)) + request)
    correlation_id, answer = read_response(KEY, 3, memoryview(client.receive_frame()))
    assert (correlation_id, answer.error_code) == (5, ErrorCode.none)


def _request_of_unknown_body(key, version):
    body = struct.pack(">hhih", key, version, 77, 4) + b"wire" + b"\xff\xfe\xfd"
    return struct.pack(">i", len(body)) + body
