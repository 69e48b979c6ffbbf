"""Test what is common to all APIs: frames, the order of responses, and the end of a connection."""

import struct

import pytest

from kserver.api import api_versions
from kserver.wire import versions
from kserver.wire.api_key import ApiKey
from kserver.wire.codec import read_response, write_request
from tests.contract.api.calls import batch, fetch_fields, produce_fields
from tests.support.wire_client import WireClient

API_VERSIONS = api_versions.KEY


def test_requests_sent_together_are_answered_in_order(client, topic):
    # A slow request and a parked one, followed by quick ones.
    client.send(ApiKey.METADATA, 1, topics=None)
    client.send(ApiKey.FETCH, 11, **fetch_fields(11, topic, {0: 0}, max_wait_ms=300))
    client.send(ApiKey.PRODUCE, 9, **produce_fields(9, topic, {0: batch(b"a")}))
    client.send(API_VERSIONS, 0)
    answered = [struct.unpack_from(">i", client.receive_frame())[0] for _ in range(4)]
    assert answered == [1, 2, 3, 4]


def test_a_request_may_come_in_pieces(client):
    request = write_request(versions.request(API_VERSIONS, 0)(), 7, "wire")
    for at in range(len(request)):
        client.send_bytes(request[at : at + 1])
    assert read_response(API_VERSIONS, 0, memoryview(client.receive_frame()))[0] == 7


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(struct.pack(">i", -1), id="negative size"),
        pytest.param(struct.pack(">i", 2**31 - 1), id="larger than any request"),
        pytest.param(struct.pack(">i", 3) + b"abc", id="too short for a header"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", id="another protocol"),
        pytest.param(struct.pack(">ihhih", 10, 9999, 0, 1, -1), id="an API that does not exist"),
        pytest.param(struct.pack(">ihhih", 10, 52, 0, 1, -1), id="an API that is not listed"),
        pytest.param(struct.pack(">ihhih", 10, -1, 0, 1, -1), id="a negative API key"),
        pytest.param(
            struct.pack(">ihhih", 10, ApiKey.METADATA, 99, 1, -1), id="an unknown version"
        ),
        pytest.param(
            struct.pack(">ihhih", 10, ApiKey.METADATA, -1, 1, -1), id="a negative version"
        ),
        pytest.param(
            struct.pack(">ihhihi", 14, ApiKey.METADATA, 1, 1, -1, 1 << 30), id="a billion topics"
        ),
        pytest.param(
            struct.pack(">ihhih", 10, ApiKey.METADATA, 1, 1, 99), id="a client id cut short"
        ),
    ],
)
def test_bytes_that_make_no_request_end_their_connection_and_no_other(broker, client, head):
    with WireClient(broker.address) as other:
        client.send_bytes(head)
        assert client.is_closed()
        assert other.call(API_VERSIONS, 0).api_keys


def test_a_client_that_leaves_in_the_middle_of_a_request_harms_nobody(broker, topic):
    request = write_request(versions.request(ApiKey.METADATA, 1)(topics=None), 1, "wire")
    for end in (1, 4, 9, len(request) - 1, len(request)):
        with WireClient(broker.address) as client:
            client.send_bytes(request[:end])
    with WireClient(broker.address) as client:
        assert client.call(API_VERSIONS, 0).api_keys


def test_a_parked_fetch_ends_with_its_connection(broker, client, topic):
    with WireClient(broker.address) as leaving:
        leaving.send(ApiKey.FETCH, 11, **fetch_fields(11, topic, {0: 0}, max_wait_ms=60_000))
    answer = client.call(ApiKey.PRODUCE, 9, **produce_fields(9, topic, {0: batch(b"a")}))
    assert answer.responses[0].partition_responses[0].base_offset == 0
