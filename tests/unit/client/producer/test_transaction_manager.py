"""What a transactional producer asks for, in which order, and what becomes of it when it fails."""

from __future__ import annotations

import asyncio

import pytest

from kcli.client.errors import (
    CommitFailed,
    IllegalTransactionState,
    ProducerFenced,
    TimedOut,
    TransactionAborted,
    TransactionFailed,
)
from kcli.client.group.group_descriptions import CommittedOffset
from kcli.client.group.group_metadata import GroupMetadata
from kserver.errors import ErrorCode, KafkaError
from kserver.model import TopicPartition
from kserver.wire.api_key import ApiKey
from tests.support.producing import OK
from tests.support.producing import run as run_plain
from tests.support.transacting import run

BOTH = pytest.mark.parametrize("implicit", [False, True])
T0 = TopicPartition("t", 0)


def test_by_the_older_protocol_partitions_and_offsets_are_announced():
    async def scenario(producer, coordinator, topic):
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("t", b"a", partition=0)
        await producer.send("t", b"b", partition=1)
        await producer.flush()
        await producer.send("t", b"c", partition=0)
        await producer.send_offsets_to_transaction({T0: 5}, "g")
        await producer.commit_transaction()
        assert coordinator.calls() == [
            *("init", "partitions", "produce", "offsets", "commit offsets", "produce", "commit")
        ]
        assert coordinator.offsets == {("t", 0): 5}
        (added,) = coordinator.broker.asked(ApiKey.ADD_PARTITIONS_TO_TXN)
        assert [(of.name, of.partitions) for of in added.v3_and_below_topics] == [("t", (0, 1))]
        versions = {r.__api_key__: r.__version__ for r in coordinator.broker.requests}
        assert (
            versions[ApiKey.PRODUCE],
            versions[ApiKey.END_TXN],
            versions[ApiKey.TXN_OFFSET_COMMIT],
        ) == (11, 4, 4)

    run(scenario, implicit=False)


def test_by_the_newer_protocol_nothing_is_announced_and_each_transaction_has_an_epoch():
    async def scenario(producer, coordinator, topic):
        await producer.init_transactions()
        for _ in range(3):
            await producer.begin_transaction()
            await producer.send("t", b"a", partition=0)
            await producer.send_offsets_to_transaction({T0: 5}, "g")
            await producer.commit_transaction()
        of_one = ["commit offsets", "produce", "commit"]
        assert coordinator.calls() == ["init", *of_one, *of_one, *of_one]
        assert [(b.producer_epoch, b.base_sequence) for b in topic.log] == [(0, 0), (1, 0), (2, 0)]
        versions = {r.__api_key__: r.__version__ for r in coordinator.broker.requests}
        assert versions[ApiKey.PRODUCE] >= 12
        assert (versions[ApiKey.END_TXN], versions[ApiKey.TXN_OFFSET_COMMIT]) == (5, 5)

    run(scenario, implicit=True)


def test_sequences_go_on_from_transaction_to_transaction_of_one_epoch():
    async def scenario(producer, coordinator, topic):
        await producer.init_transactions()
        for _ in range(3):
            async with producer.transaction():
                await producer.send("t", b"a", partition=0)
        assert [(b.producer_epoch, b.base_sequence) for b in topic.log] == [(0, 0), (0, 1), (0, 2)]
        assert all(b.is_transactional for b in topic.log)

    run(scenario, implicit=False)


@BOTH
def test_a_transaction_without_anything_in_it_is_nobodys_business(implicit):
    async def scenario(producer, coordinator, topic):
        await producer.init_transactions()
        async with producer.transaction():
            pass
        await producer.begin_transaction()
        await producer.abort_transaction()
        assert coordinator.calls() == ["init"]

    run(scenario, implicit=implicit)


@BOTH
def test_what_was_not_sent_fails_when_the_transaction_is_aborted(implicit):
    async def scenario(producer, coordinator, topic):
        await producer.init_transactions()
        await producer.begin_transaction()
        sent = await producer.send("t", b"a", partition=0)
        await producer.flush()
        unsent = await producer.send("t", b"b", partition=0)
        await producer.abort_transaction()
        assert (await sent).offset == 0
        with pytest.raises(TransactionAborted):
            await unsent
        assert topic.values() == [b"a"]
        assert coordinator.calls()[-1] == "abort"
        async with producer.transaction():
            await producer.send("t", b"c", partition=0)
        assert topic.values() == [b"a", b"c"]

    run(scenario, implicit=implicit, linger_ms="1000")


@BOTH
def test_a_producer_that_learns_while_it_aborts_that_it_is_fenced_says_so(implicit):
    """By the answer to a batch, or to the partition's announcement, that was still out."""

    async def scenario(producer, coordinator, topic):
        await producer.init_transactions()
        await producer.begin_transaction()
        api = ApiKey.PRODUCE if implicit else ApiKey.ADD_PARTITIONS_TO_TXN

        released = coordinator.broker.hold(api)
        if implicit:
            topic.verdict = lambda batch: ErrorCode.producer_fenced
        else:
            coordinator.says[api].append(ErrorCode.producer_fenced)
        sent = await producer.send("t", b"a", partition=0)
        async with asyncio.timeout(30):
            while not coordinator.broker.asked(api):
                await asyncio.sleep(0.01)
        asyncio.get_running_loop().call_later(1, released.set)
        with pytest.raises(ProducerFenced):
            await producer.abort_transaction()
        with pytest.raises((KafkaError, TransactionAborted)):
            await sent
        for call in (producer.abort_transaction, producer.begin_transaction):
            with pytest.raises(ProducerFenced):
                await call()

    run(scenario, implicit=implicit, linger_ms="0")


@BOTH
def test_a_block_that_raises_aborts_its_transaction(implicit):
    async def scenario(producer, coordinator, topic):
        await producer.init_transactions()
        with pytest.raises(ZeroDivisionError):  # noqa: PT012
            async with producer.transaction():
                await producer.send("t", b"a", partition=0)
                await producer.flush()
                raise ZeroDivisionError
        assert coordinator.calls()[-1] == "abort"

    run(scenario, implicit=implicit)


@BOTH
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.invalid_producer_epoch,
        ErrorCode.unknown_producer_id,
        ErrorCode.out_of_order_sequence_number,
        ErrorCode.invalid_txn_state,
        ErrorCode.transaction_abortable,
        ErrorCode.topic_authorization_failed,
    ],
)
def test_a_record_that_fails_fails_its_transaction_and_the_next_has_a_new_epoch(implicit, code):
    async def scenario(producer, coordinator, topic):
        await producer.init_transactions()
        await producer.begin_transaction()
        topic.verdict = lambda batch: code
        sent = await producer.send("t", b"a", partition=0)
        with pytest.raises(TransactionFailed) as caught:
            await producer.commit_transaction()
        assert caught.value.abortable
        assert caught.value.cause.code is code
        with pytest.raises((KafkaError, TransactionAborted)):
            await sent
        with pytest.raises(TransactionFailed):
            await producer.send("t", b"b")
        with pytest.raises(TransactionFailed):
            producer.try_send("t", b"b")
        await producer.abort_transaction()
        ending = ["abort"] if implicit else ["abort", "init"]
        assert coordinator.calls()[-len(ending) :] == ending
        topic.verdict = lambda batch: OK
        async with producer.transaction():
            await producer.send("t", b"c", partition=0)
        (batch,) = topic.log
        assert (batch.producer_epoch, batch.base_sequence) == (1, 0)

    run(scenario, implicit=implicit)


@BOTH
@pytest.mark.parametrize(
    "code", [ErrorCode.producer_fenced, ErrorCode.transactional_id_authorization_failed]
)
def test_after_a_fatal_refusal_of_a_record_only_close_is_left(implicit, code):
    async def scenario(producer, coordinator, topic):
        await producer.init_transactions()
        await producer.begin_transaction()
        topic.verdict = lambda batch: code
        await producer.send("t", b"a", partition=0)
        for call in (
            producer.commit_transaction,
            producer.abort_transaction,
            producer.begin_transaction,
        ):
            with pytest.raises(TransactionFailed) as caught:
                await call()
            assert not caught.value.abortable
            assert isinstance(caught.value, ProducerFenced) == (code is ErrorCode.producer_fenced)

    run(scenario, implicit=implicit)


@BOTH
@pytest.mark.parametrize(
    ("api", "codes"),
    [
        (ApiKey.FIND_COORDINATOR, [ErrorCode.coordinator_not_available] * 3),
        (
            ApiKey.INIT_PRODUCER_ID,
            [ErrorCode.concurrent_transactions, ErrorCode.not_coordinator, None],
        ),
        (ApiKey.ADD_PARTITIONS_TO_TXN, [ErrorCode.concurrent_transactions, None]),
        (ApiKey.ADD_OFFSETS_TO_TXN, [ErrorCode.coordinator_load_in_progress, None]),
        (
            ApiKey.END_TXN,
            [ErrorCode.concurrent_transactions, ErrorCode.coordinator_not_available, None],
        ),
        (
            ApiKey.TXN_OFFSET_COMMIT,
            [ErrorCode.unknown_topic_or_partition, ErrorCode.not_coordinator],
        ),
    ],
)
def test_what_can_be_tried_again_is_and_the_transaction_succeeds(implicit, api, codes):
    async def scenario(producer, coordinator, topic):
        coordinator.says[api].extend(codes)
        await producer.init_transactions()
        async with producer.transaction():
            await producer.send("t", b"a", partition=0)
            await producer.send_offsets_to_transaction({T0: CommittedOffset(5, 1, "note")}, "g")
        assert coordinator.offsets == {("t", 0): 5}
        assert coordinator.calls()[-1] == "commit"
        if not (implicit and api in (ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN)):
            assert not coordinator.says[api]

    run(scenario, implicit=implicit)


def test_only_the_offsets_that_were_refused_are_sent_again():
    async def scenario(producer, coordinator, topic):
        await producer.init_transactions()
        coordinator.says[ApiKey.TXN_OFFSET_COMMIT].extend(
            [OK, ErrorCode.coordinator_load_in_progress]
        )
        async with producer.transaction():
            offsets = {T0: 5, TopicPartition("t", 1): 6}
            await producer.send_offsets_to_transaction(offsets, "g")
        first, again = coordinator.broker.asked(ApiKey.TXN_OFFSET_COMMIT)
        assert len(first.topics[0].partitions) == 2
        assert [p.partition_index for p in again.topics[0].partitions] == [1]

    run(scenario, implicit=True)


def test_a_member_says_who_it_is():
    async def scenario(producer, coordinator, topic):
        await producer.init_transactions()
        async with producer.transaction():
            group = GroupMetadata("g", 3, "me", "static")
            await producer.send_offsets_to_transaction({T0: CommittedOffset(5, 2, "note")}, group)
        (asked,) = coordinator.broker.asked(ApiKey.TXN_OFFSET_COMMIT)
        assert (asked.group_id, asked.generation_id, asked.member_id) == ("g", 3, "me")
        assert asked.group_instance_id == "static"
        (partition,) = asked.topics[0].partitions
        assert (partition.committed_leader_epoch, partition.committed_metadata) == (2, "note")

    run(scenario, implicit=True)


@BOTH
@pytest.mark.parametrize("code", [ErrorCode.unknown_member_id, ErrorCode.illegal_generation])
def test_offsets_of_a_former_member_fail_the_transaction(implicit, code):
    async def scenario(producer, coordinator, topic):
        await producer.init_transactions()
        await producer.begin_transaction()
        coordinator.says[ApiKey.TXN_OFFSET_COMMIT].append(code)
        with pytest.raises(TransactionFailed) as caught:
            await producer.send_offsets_to_transaction({T0: 5}, GroupMetadata("g", 3, "me"))
        assert caught.value.abortable
        assert isinstance(caught.value.cause, CommitFailed)
        with pytest.raises(TransactionFailed):
            await producer.commit_transaction()
        await producer.abort_transaction()
        assert coordinator.calls()[-1] == "abort"

    run(scenario, implicit=implicit)


@pytest.mark.parametrize(
    ("api", "code", "abortable"),
    [
        (ApiKey.FIND_COORDINATOR, ErrorCode.group_authorization_failed, True),
        (ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.topic_authorization_failed, True),
        (ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.unknown_producer_id, True),
        (ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.transaction_abortable, True),
        (ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.invalid_txn_state, False),
        (ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.invalid_producer_epoch, False),
        (ApiKey.ADD_OFFSETS_TO_TXN, ErrorCode.group_authorization_failed, True),
        (ApiKey.ADD_OFFSETS_TO_TXN, ErrorCode.invalid_producer_id_mapping, False),
        (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.fenced_instance_id, True),
        (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.transactional_id_authorization_failed, False),
        (ApiKey.END_TXN, ErrorCode.transaction_abortable, True),
        (ApiKey.END_TXN, ErrorCode.unknown_producer_id, True),
        (ApiKey.END_TXN, ErrorCode.invalid_producer_epoch, False),
        (ApiKey.END_TXN, ErrorCode.invalid_txn_state, False),
    ],
)
def test_refusals_that_an_abort_heals_and_refusals_that_nothing_does(api, code, abortable):
    async def scenario(producer, coordinator, topic):
        await producer.init_transactions()
        await producer.begin_transaction()
        coordinator.says[api].append(code)
        with pytest.raises(TransactionFailed) as caught:  # noqa: PT012
            await producer.send("t", b"a", partition=0)
            await producer.send_offsets_to_transaction({T0: 5}, "g")
            await producer.commit_transaction()
        assert caught.value.abortable == abortable
        if abortable:
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send("t", b"b", partition=0)
            assert topic.values()[-1] == b"b"
        else:
            with pytest.raises(TransactionFailed):
                await producer.abort_transaction()

    run(scenario, implicit=False)


def test_without_the_right_to_the_id_initializing_can_be_tried_again():
    async def scenario(producer, coordinator, topic):
        coordinator.says[ApiKey.INIT_PRODUCER_ID].append(
            ErrorCode.transactional_id_authorization_failed
        )
        with pytest.raises(KafkaError, match="transactional_id_authorization_failed"):
            await producer.init_transactions()
        await producer.init_transactions()
        async with producer.transaction():
            await producer.send("t", b"a")

    run(scenario, implicit=True)


@BOTH
def test_a_commit_that_took_too_long_goes_on_and_only_it_may_follow(implicit):
    async def scenario(producer, coordinator, topic):
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("t", b"a", partition=0)
        await producer.flush()
        coordinator.says[ApiKey.END_TXN].extend([ErrorCode.coordinator_load_in_progress] * 5)
        with pytest.raises(TimedOut, match="while awaiting commit_transaction"):
            await producer.commit_transaction()
        for call in (producer.abort_transaction, producer.begin_transaction):
            with pytest.raises(IllegalTransactionState, match="must be called again"):
                await call()
        await asyncio.sleep(10)
        await producer.commit_transaction()
        assert coordinator.calls().count("commit") == 6
        async with producer.transaction():
            await producer.send("t", b"b")

    run(scenario, implicit=implicit, max_block_ms="300")


@BOTH
@pytest.mark.parametrize("code", [ErrorCode.illegal_generation, ErrorCode.transaction_abortable])
def test_offsets_that_are_refused_while_the_transaction_is_aborted_do_not_matter(implicit, code):
    async def scenario(producer, coordinator, topic):
        released = coordinator.broker.hold(ApiKey.TXN_OFFSET_COMMIT)
        coordinator.says[ApiKey.TXN_OFFSET_COMMIT].append(code)
        await producer.init_transactions()
        await producer.begin_transaction()
        with pytest.raises(TimedOut):
            await producer.send_offsets_to_transaction({T0: 1}, GroupMetadata("g", 1, "m"))
        aborting = asyncio.create_task(producer.abort_transaction())
        await asyncio.sleep(0.1)
        released.set()
        await aborting
        async with producer.transaction():
            await producer.send("t", b"a")
        assert [call for call in coordinator.calls() if call in ("abort", "commit")] == [
            "abort",
            "commit",
        ]

    run(scenario, implicit=implicit, max_block_ms="300")


def test_a_record_that_never_leaves_expires_and_its_transaction_with_it():
    async def scenario(producer, coordinator, topic):
        await producer.init_transactions()
        await producer.begin_transaction()
        coordinator.says[ApiKey.ADD_PARTITIONS_TO_TXN].extend(
            [ErrorCode.concurrent_transactions] * 1000
        )
        sent = await producer.send("t", b"a", partition=0)
        with pytest.raises(TransactionFailed, match="Expiring"):
            await producer.commit_transaction()
        with pytest.raises(TimedOut):
            await sent
        await producer.abort_transaction()
        assert "produce" not in coordinator.calls()

    run(scenario, implicit=False, delivery_timeout_ms="2000", request_timeout_ms="1000")


@BOTH
def test_an_open_transaction_is_aborted_when_the_producer_is_closed(implicit):
    async def scenario(producer, coordinator, topic):
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("t", b"a", partition=0)
        await producer.flush()
        await producer.close()
        assert coordinator.calls()[-1] == "abort"

    run(scenario, implicit=implicit)


def test_a_commit_that_is_on_its_way_is_waited_for_when_the_producer_is_closed():
    async def scenario(producer, coordinator, topic):
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("t", b"a", partition=0)
        coordinator.says[ApiKey.END_TXN].extend([ErrorCode.coordinator_load_in_progress] * 4)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await producer.commit_transaction()
        await producer.close()
        assert coordinator.calls().count("commit") == 5

    run(scenario, implicit=True)


def test_a_transaction_takes_transaction_timeout_ms_along():
    async def scenario(producer, coordinator, topic):
        await producer.init_transactions()
        (asked,) = coordinator.broker.asked(ApiKey.INIT_PRODUCER_ID)
        assert asked.transactional_id == "x"
        assert asked.transaction_timeout.total_seconds() == 12

    run(scenario, implicit=False, transaction_timeout_ms="12000")


def test_calls_in_another_order_are_refused_and_change_nothing():
    async def scenario(producer, coordinator, topic):
        for call in (
            producer.begin_transaction,
            producer.commit_transaction,
            producer.abort_transaction,
        ):
            with pytest.raises(IllegalTransactionState):
                await call()
        await producer.init_transactions()
        with pytest.raises(IllegalTransactionState, match="init_transactions cannot be called"):
            await producer.init_transactions()
        with pytest.raises(IllegalTransactionState, match="send needs a transaction"):
            await producer.send("t", b"a")
        with pytest.raises(IllegalTransactionState, match="needs a transaction"):
            await producer.send_offsets_to_transaction({T0: 1}, "g")
        async with producer.transaction():
            with pytest.raises(IllegalTransactionState):
                await producer.begin_transaction()
            await producer.send("t", b"a")
        assert topic.values() == [b"a"]

    run(scenario, implicit=True)


def test_without_a_transactional_id_there_are_no_transactions():
    async def scenario(producer, broker, topic):
        with pytest.raises(IllegalTransactionState, match=r"no transactional\.id"):
            await producer.init_transactions()

    run_plain(scenario)


def test_brokers_that_give_no_new_epochs_leave_only_close_after_a_failed_record():
    async def scenario(producer, coordinator, topic):
        coordinator.broker.versions[ApiKey.INIT_PRODUCER_ID] = (0, 2)
        await producer.init_transactions()
        await producer.begin_transaction()
        topic.verdict = lambda batch: ErrorCode.topic_authorization_failed
        await producer.send("t", b"a", partition=0)
        with pytest.raises(TransactionFailed):
            await producer.commit_transaction()
        with pytest.raises(TransactionFailed, match="gives no new epochs") as caught:
            await producer.abort_transaction()
        assert not caught.value.abortable

    run(scenario, implicit=False)
