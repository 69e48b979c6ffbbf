"""Test TxnOffsetCommit requests, in every served version, against our broker or Apache's."""

import itertools

import pytest

from kserver.api import txn_offset_commit as module
from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from tests.contract.api.group_calls import commit, fetch, offsets, stable
from tests.support.brokers import until
from tests.support.wire_client import milliseconds

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)
FIRST_WITH_MEMBER, FIRST_WITH_ABORTABLE, FIRST_TO_ADD = 3, 4, 5
NAMES = (f"txn-{number}" for number in itertools.count(1))


@pytest.fixture
def producer(client):
    """The producer's transactional id, producer id and epoch."""
    name, given = next(NAMES), []

    def is_set():
        client.call(ApiKey.FIND_COORDINATOR, 3, key=name, key_type=1)
        timeout = milliseconds(60_000)
        given.append(
            client.call(
                ApiKey.INIT_PRODUCER_ID, 4, transactional_id=name, transaction_timeout=timeout
            )
        )
        return given[-1].error_code is ErrorCode.none

    until(is_set)
    return {
        "transactional_id": name,
        "producer_id": given[-1].producer_id,
        "producer_epoch": given[-1].producer_epoch,
    }


def begin(client, version, producer, group):
    if version < FIRST_TO_ADD:
        added = client.call(ApiKey.ADD_OFFSETS_TO_TXN, 3, group_id=group, **producer)
        assert added.error_code is ErrorCode.none


def write(client, version, producer, group, topic, partitions, **fields):
    """Return the error code of each partition."""
    asked = [
        {"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}
        for partition, offset in partitions.items()
    ]
    topics = [{"name": topic.name, "partitions": asked}]
    answer = client.call(KEY, version, group_id=group, topics=topics, **producer | fields)
    return {p.partition_index: p.error_code for p in answer.topics[0].partitions}


def end(client, version, producer, *, committed):
    ended = client.call(
        ApiKey.END_TXN, 5 if version >= FIRST_TO_ADD else 3, committed=committed, **producer
    )
    assert ended.error_code is ErrorCode.none


@every_version
@pytest.mark.parametrize("committed", [True, False])
def test_what_is_committed_in_a_transaction_counts_with_it(
    client, group, make_topic, producer, version, committed
):
    topic = make_topic(3)
    commit(client, group, topic, {0: 1, 2: 1})
    begin(client, version, producer, group)
    done = {0: ErrorCode.none, 1: ErrorCode.none}
    assert write(client, version, producer, group, topic, {0: 1, 1: 2}) == done
    assert write(client, version, producer, group, topic, {0: 5, 1: 6}) == done
    assert offsets(client, group, topic, 0, 1, 2) == {0: 1, 1: -1, 2: 1}
    found = fetch(client, group, topic, 0, 1, 2, require_stable=True).topics[0].partitions
    unstable = ErrorCode.unstable_offset_commit
    assert [p.error_code for p in found] == [unstable, unstable, ErrorCode.none]
    end(client, version, producer, committed=committed)

    def is_stable():
        found = fetch(client, group, topic, 0, 1, 2, require_stable=True).topics[0].partitions
        return unstable not in [p.error_code for p in found]

    until(is_stable)
    expected = {0: 5, 1: 6, 2: 1} if committed else {0: 1, 1: -1, 2: 1}
    assert offsets(client, group, topic, 0, 1, 2) == expected


@every_version
def test_partitions_that_do_not_exist_are_refused_and_the_others_not(
    client, group, topic, producer, version
):
    begin(client, version, producer, group)
    codes = write(client, version, producer, group, topic, {0: 1, 9: 1})
    assert codes == {0: ErrorCode.none, 9: ErrorCode.unknown_topic_or_partition}


@every_version
def test_a_group_has_a_name(client, topic, producer, version):
    codes = write(client, version, producer, "", topic, {0: 1})
    assert codes == {0: ErrorCode.invalid_group_id}


@pytest.mark.parametrize("version", [v for v in VERSIONS if v < FIRST_TO_ADD])
def test_a_group_that_was_not_added_to_the_transaction_is_refused(
    client, group, topic, producer, version
):
    code = ErrorCode.invalid_txn_state
    if version >= FIRST_WITH_ABORTABLE:
        code = ErrorCode.transaction_abortable
    assert write(client, version, producer, group, topic, {0: 1}) == {0: code}


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= FIRST_WITH_MEMBER])
@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, ErrorCode.none),
        ({"generation_id": 7}, ErrorCode.illegal_generation),
        ({"member_id": "wire-1"}, ErrorCode.unknown_member_id),
        ({"group_instance_id": "i"}, ErrorCode.unknown_member_id),
    ],
)
def test_who_says_which_member_it_is_is_held_to_it(
    client, group, topic, producer, version, fields, error
):
    joined = stable(client, group, topic.name)
    begin(client, version, producer, group)
    member = {"generation_id": joined.generation_id, "member_id": joined.member_id}
    codes = write(client, version, producer, group, topic, {0: 1}, **member | fields)
    assert codes == {0: error}


@every_version
def test_a_producer_of_an_old_epoch_is_fenced(client, group, topic, producer, version):
    begin(client, version, producer, group)
    assert write(client, version, producer, group, topic, {0: 1}) == {0: ErrorCode.none}
    end(client, version, producer, committed=True)
    timeout = milliseconds(60_000)
    again = {
        "transactional_id": producer["transactional_id"],
        "transaction_timeout": timeout,
    }

    def is_fenced():
        return client.call(ApiKey.INIT_PRODUCER_ID, 4, **again).error_code is ErrorCode.none

    until(is_fenced)
    (code,) = write(client, version, producer, group, topic, {0: 2}).values()
    assert code is ErrorCode.invalid_producer_epoch
