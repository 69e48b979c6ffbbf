"""Test AddPartitionsToTxn requests, in every served version, against our broker or Apache's."""

import pytest

from kserver.api import add_partitions_to_txn as module
from kserver.errors import ErrorCode
from tests.contract.api.transaction_calls import add, begun, end, settled, state

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)
from_brokers = pytest.mark.parametrize("version", [v for v in VERSIONS if v >= 4])
from_clients = pytest.mark.parametrize("version", [v for v in VERSIONS if v < 4])
NONE, UNKNOWN = ErrorCode.none, ErrorCode.unknown_topic_or_partition
OFFSETS = "__consumer_offsets"


@every_version
def test_a_transaction_begins_with_its_first_partition_and_holds_all_that_are_added(
    client, make_topic, version
):
    producer, one, two = begun(client), make_topic(2), make_topic(1)
    assert state(client, producer.transactional_id).transaction_state == "Empty"
    assert add(client, version, producer, {one.name: (1,)}) == {(one.name, 1): NONE}
    assert add(client, version, producer, {one.name: (0, 1), two.name: (0,)}) == {
        (one.name, 0): NONE,
        (one.name, 1): NONE,
        (two.name, 0): NONE,
    }
    told = state(client, producer.transactional_id)
    assert told.transaction_state == "Ongoing"
    assert told.topics == {one.name: [0, 1], two.name: [0]}


@every_version
def test_with_a_partition_that_is_not_there_none_is_added(client, topic, name, version):
    producer = begun(client)
    assert add(client, version, producer, {topic.name: (0, 9), name: (0,)}) == {
        (topic.name, 0): ErrorCode.operation_not_attempted,
        (topic.name, 9): UNKNOWN,
        (name, 0): UNKNOWN,
    }
    assert state(client, producer.transactional_id).transaction_state == "Empty"


@every_version
def test_a_zombie_is_fenced(client, topic, version):
    old = begun(client)
    begun(client, old.transactional_id)
    is_known = version >= module.FIRST_WITH_FENCED
    code = ErrorCode.producer_fenced if is_known else ErrorCode.invalid_producer_epoch
    assert add(client, version, old, {topic.name: (0,)}) == {(topic.name, 0): code}


@every_version
def test_an_id_that_is_not_known_is_told(client, topic, version):
    producer = begun(client)
    unknown = ErrorCode.invalid_producer_id_mapping
    for other in (producer._replace(producer_id=10**9), producer._replace(transactional_id="no")):
        begun(client, "no")
        assert add(client, version, other, {topic.name: (0,)}) == {(topic.name, 0): unknown}


@every_version
def test_an_empty_transactional_id_is_refused(client, topic, version):
    producer = begun(client)._replace(transactional_id="")
    refused = {(topic.name, 0): ErrorCode.invalid_request}
    assert add(client, version, producer, {topic.name: (0,)}) == refused


@from_clients
@pytest.mark.usefixtures("only_ours")
def test_clients_do_not_add_a_coordinators_partitions(client, version):
    producer = begun(client)
    refused = {(OFFSETS, 0): ErrorCode.topic_authorization_failed}
    assert add(client, version, producer, {OFFSETS: (0,)}) == refused


@from_brokers
def test_to_verify_adds_nothing(client, make_topic, version):
    producer, topic = begun(client), make_topic(2)
    add(client, 3, producer, {topic.name: (0,)})
    asked = {topic.name: (0, 1)}
    assert add(client, version, producer, asked, verify_only=True) == {
        (topic.name, 0): NONE,
        (topic.name, 1): ErrorCode.transaction_abortable,
    }
    assert end(client, producer, commit=False) is NONE
    settled(client, producer)
    assert set(add(client, version, producer, asked, verify_only=True).values()) == {
        ErrorCode.transaction_abortable
    }
