"""Test AddOffsetsToTxn requests, in every served version, against our broker or Apache's."""

import itertools

import pytest

from kserver.api import add_offsets_to_txn as module
from kserver.errors import ErrorCode
from tests.contract.api.transaction_calls import begun, end, retried, state

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)
GROUPS = (f"offsets-{number}" for number in itertools.count(1))


def add(client, version, producer, group):
    return retried(
        lambda: client.call(KEY, version, group_id=group, **producer.fields()),
        lambda answer: answer.error_code,
    ).error_code


@every_version
def test_the_groups_partition_becomes_part_of_the_transaction(client, version):
    producer = begun(client)
    for _ in range(2):
        assert add(client, version, producer, next(GROUPS)) is ErrorCode.none
    told = state(client, producer.transactional_id)
    assert told.transaction_state == "Ongoing"
    assert told.topics.keys() == {"__consumer_offsets"}
    assert end(client, producer, commit=False) is ErrorCode.none


@every_version
def test_a_zombie_is_fenced(client, version):
    old = begun(client)
    begun(client, old.transactional_id)
    is_known = version >= module.FIRST_WITH_FENCED
    code = ErrorCode.producer_fenced if is_known else ErrorCode.invalid_producer_epoch
    assert add(client, version, old, next(GROUPS)) is code


@every_version
def test_what_is_not_known_is_told(client, version):
    producer = begun(client)
    unknown = producer._replace(producer_id=10**9)
    code = add(client, version, unknown, next(GROUPS))
    assert code is ErrorCode.invalid_producer_id_mapping
    nameless = producer._replace(transactional_id="")
    assert add(client, version, nameless, next(GROUPS)) is ErrorCode.invalid_request
