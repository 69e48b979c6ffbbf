"""Test ListTransactions requests, in every served version, against our broker or Apache's."""

import pytest

from kserver.api import list_transactions as module
from kserver.errors import ErrorCode
from tests.contract.api.transaction_calls import NAMES, add, begun, end, settled

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)
HOUR_MS = 3_600_000


def listed(client, version, **filters):
    answer = client.call(KEY, version, **{"duration_filter": -1} | filters)
    assert answer.error_code is ErrorCode.none
    return {
        one.transactional_id: (one.producer_id, one.transaction_state)
        for one in answer.transaction_states
    }


@every_version
def test_transactional_ids_are_listed_by_state_and_producer(client, topic, version):
    empty, open_, done = begun(client), begun(client), begun(client)
    for producer in (open_, done):
        add(client, 3, producer, {topic.name: (0,)})
    end(client, done, commit=True)
    settled(client, done)
    everything = listed(client, version)
    assert (
        everything.items()
        >= {
            empty.transactional_id: (empty.producer_id, "Empty"),
            open_.transactional_id: (open_.producer_id, "Ongoing"),
            done.transactional_id: (done.producer_id, "CompleteCommit"),
        }.items()
    )
    found = listed(client, version, state_filters=["Ongoing", "CompleteCommit"])
    assert found.keys() >= {open_.transactional_id, done.transactional_id}
    assert empty.transactional_id not in found
    ids = [empty.producer_id, done.producer_id]
    found = listed(client, version, producer_id_filters=ids)
    assert found.keys() == {empty.transactional_id, done.transactional_id}
    found = listed(client, version, producer_id_filters=ids, state_filters=["Empty"])
    assert found.keys() == {empty.transactional_id}
    end(client, open_, commit=False)


@every_version
def test_a_state_that_there_is_not_is_told_and_matches_nothing(client, version):
    begun(client)
    answer = client.call(KEY, version, state_filters=["Sleeping"], duration_filter=-1)
    assert (answer.error_code, answer.unknown_state_filters) == (ErrorCode.none, ("Sleeping",))
    assert answer.transaction_states == ()


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= 1])
def test_those_of_a_certain_age_are_listed(client, topic, version):
    producer = begun(client)
    add(client, 3, producer, {topic.name: (0,)})
    ongoing = {"state_filters": ["Ongoing"]}
    assert producer.transactional_id in listed(client, version, **ongoing)
    old = listed(client, version, duration_filter=HOUR_MS, **ongoing)
    assert producer.transactional_id not in old
    end(client, producer, commit=False)


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= 2])
def test_a_pattern_matches_whole_names(client, version):
    name = f"payments-{next(NAMES)}"
    begun(client, name)
    assert listed(client, version, transactional_id_pattern="payments-.*").keys() >= {name}
    assert name not in listed(client, version, transactional_id_pattern="payments")
    answer = client.call(KEY, version, duration_filter=-1, transactional_id_pattern="(")
    assert answer.error_code is ErrorCode.invalid_regular_expression
