"""Test DescribeTransactions requests, in every served version, against our broker or Apache's."""

import time

import pytest

from kserver.api import describe_transactions as module
from kserver.errors import ErrorCode
from tests.contract.api.transaction_calls import add, begun, end, init, settled, state

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)
NONE = -1


@every_version
@pytest.mark.parametrize("commit", [True, False])
def test_what_is_kept_of_a_transactional_id_is_told(client, make_topic, version, commit):
    producer, topic = begun(client), make_topic(3)
    told = state(client, producer.transactional_id)
    assert (told.error_code, told.transaction_state) == (ErrorCode.none, "Empty")
    assert (told.timeout_ms, told.start_ms, told.topics) == (60_000, NONE, {})
    assert told.producer == producer
    before_ms = time.time() * 1000
    add(client, 3, producer, {topic.name: (2, 0)})
    told = state(client, producer.transactional_id)
    assert (told.transaction_state, told.topics) == ("Ongoing", {topic.name: [0, 2]})
    assert before_ms - 1000 <= told.start_ms <= time.time() * 1000 + 1000
    end(client, producer, commit=commit)
    done = settled(client, producer)
    assert done.transaction_state == ("CompleteCommit" if commit else "CompleteAbort")
    assert (done.topics, done.start_ms) == ({}, told.start_ms)


@every_version
def test_an_id_that_is_not_known_is_told(client, version):
    begun(client)
    told = state(client, "nobody's")
    assert told.error_code is ErrorCode.transactional_id_not_found
    assert state(client, "").error_code is ErrorCode.invalid_request


@every_version
def test_each_producer_has_its_own_timeout(client, version):
    name = begun(client).transactional_id
    init(client, name, 4)
    assert state(client, name).producer.producer_epoch == 1
