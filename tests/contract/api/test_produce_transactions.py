"""Test Produce within a transaction: KIP-890's verification, and implicitly added partitions."""

import pytest

from kserver.api import produce as module
from kserver.api.produce_verification import FIRST_WITH_ABORTABLE
from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from tests.contract.api.calls import batch, fetch, produce_fields
from tests.contract.api.transaction_calls import (
    add,
    begun,
    end,
    ended,
    settled,
    stable_offset,
    state,
    write,
)

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)
verified = pytest.mark.parametrize("version", [v for v in VERSIONS if v < module.FIRST_TO_ADD])
added = pytest.mark.parametrize("version", [v for v in VERSIONS if v >= module.FIRST_TO_ADD])
NONE = ErrorCode.none
FETCH_VERSION = 11
assert ApiKey.PRODUCE == KEY


def not_in_transaction(version):
    if version >= FIRST_WITH_ABORTABLE:
        return ErrorCode.transaction_abortable
    return ErrorCode.invalid_txn_state


@verified
def test_a_partition_that_was_not_added_is_not_written_to(client, make_topic, version):
    producer, topic = begun(client), make_topic(2)
    add(client, 3, producer, {topic.name: (0,)})
    refused = write(client, producer, topic, b"a", partition=1, version=version)
    assert (refused.error_code, refused.base_offset) == (not_in_transaction(version), -1)
    assert write(client, producer, topic, b"a", version=version).base_offset == 0
    assert write(client, producer, topic, b"b", sequence=1, version=version).base_offset == 1
    assert stable_offset(client, topic) == 0


@verified
def test_what_comes_after_the_end_is_not_written(client, topic, version):
    producer = begun(client)
    add(client, 3, producer, {topic.name: (0,)})
    assert write(client, producer, topic, b"a", version=version).error_code is NONE
    assert end(client, producer, commit=True) is NONE
    settled(client, producer)
    late = write(client, producer, topic, b"late", sequence=1, version=version)
    assert late.error_code is not_in_transaction(version)
    assert stable_offset(client, topic) == 2


@added
def test_the_first_batch_of_a_producer_cannot_overtake_the_one_before_it(client, topic, version):
    write(client, begun(client), topic, b"another's", version=version)
    producer = begun(client)
    early = write(client, producer, topic, b"b", sequence=1, version=version)
    assert early.error_code is ErrorCode.out_of_order_sequence_number
    for sequence, value in enumerate((b"a", b"b")):
        written = write(client, producer, topic, value, sequence=sequence, version=version)
        assert (written.error_code, written.base_offset) == (NONE, 1 + sequence)


@added
def test_a_partition_is_added_on_the_way(client, make_topic, version):
    producer, topic = begun(client), make_topic(2)
    for partition in (1, 0):
        written = write(client, producer, topic, b"a", partition=partition, version=version)
        assert (written.error_code, written.base_offset) == (NONE, 0)
    told = state(client, producer.transactional_id)
    assert (told.transaction_state, told.topics) == ("Ongoing", {topic.name: [0, 1]})
    answer = ended(client, producer, commit=True, version=5)
    assert answer.error_code is NONE
    settled(client, producer)
    late = write(client, producer, topic, b"late", sequence=1, version=version)
    assert late.error_code is ErrorCode.invalid_producer_epoch
    new = producer._replace(producer_epoch=answer.producer_epoch)
    assert write(client, new, topic, b"b", version=version).base_offset == 2
    assert stable_offset(client, topic) == 2


@every_version
@pytest.mark.parametrize("place", [0, 1])
def test_what_another_producer_has_in_the_same_request_is_not_written(
    client, make_topic, version, place
):
    """It would belong to an unknown transaction, which no marker would end."""
    producer, other, topic = begun(client), begun(client), make_topic(2)
    add(client, 3, producer, {topic.name: (0, 1)})
    records = {
        partition: batch(
            b"a",
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        for partition, one in ((place, other), (1 - place, producer))
    }
    asked = produce_fields(version, topic, dict(sorted(records.items())))
    asked |= {"transactional_id": producer.transactional_id}
    answer = client.call(KEY, version, **asked).responses[0].partition_responses[place]
    assert answer.error_code is ErrorCode.invalid_producer_id_mapping
    assert answer.base_offset == -1


@every_version
def test_a_zombie_is_fenced_before_it_writes(client, topic, version):
    old = begun(client)
    begun(client, old.transactional_id)
    refused = write(client, old, topic, b"a", version=version)
    assert refused.error_code is ErrorCode.invalid_producer_epoch
    assert stable_offset(client, topic) == 0


@every_version
def test_an_epoch_that_nobody_was_given_is_not_written_into_an_open_transaction(
    kind, client, topic, version
):
    if kind.startswith("3."):
        pytest.skip("before 4.0 Apache asked for the open transaction of any epoch")
    producer = begun(client)
    add(client, 3, producer, {topic.name: (0,)})
    assert write(client, producer, topic, b"a", version=version).error_code is NONE
    ahead = producer._replace(producer_epoch=producer.producer_epoch + 1)
    refused = write(client, ahead, topic, b"b", version=version)
    assert refused.error_code is ErrorCode.invalid_producer_epoch
    assert fetch(client, FETCH_VERSION, topic, 0).high_watermark == 1


@every_version
def test_transactional_records_are_of_a_transactional_id(client, topic, version):
    producer = begun(client)
    refused = write(client, producer, topic, b"a", version=version, transactional_id=None)
    assert refused.error_code is ErrorCode.transactional_id_authorization_failed


@every_version
def test_a_producer_that_its_transactional_id_does_not_have_is_refused(client, topic, version):
    producer = begun(client)._replace(producer_id=10**9)
    refused = write(client, producer, topic, b"a", version=version)
    assert refused.error_code is ErrorCode.invalid_producer_id_mapping


@every_version
def test_records_outside_a_transaction_need_none(client, topic, version):
    producer = begun(client)
    written = write(client, producer, topic, b"a", version=version, transactional=False)
    assert (written.error_code, written.base_offset) == (NONE, 0)
    assert stable_offset(client, topic) == 1
