"""A transaction that one producer leaves open, and another ends."""

from __future__ import annotations

import asyncio
import struct

import pytest

from kcli.client.errors import IllegalTransactionState, TransactionFailed
from kcli.client.group.group_descriptions import CommittedOffset
from kcli.client.producer.transaction_successor import TransactionSuccessor
from kserver.errors import ErrorCode
from kserver.model import TopicPartition
from tests.support.transacting import run

BOTH = pytest.mark.parametrize("implicit", [False, True])
CLIENT = {"bootstrap.servers": "broker-0:9092"}
T0 = TopicPartition("t", 0)


@BOTH
def test_what_is_handed_over_is_delivered_and_left_open_and_ended_by_the_heir(implicit):
    async def scenario(producer, coordinator, topic):
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("t", b"a", partition=0)
        handed = await producer.hand_over_transaction()
        assert (handed.producer_id, handed.producer_epoch, handed.started) == (7, 0, True)
        assert len(topic.log) == 1
        with pytest.raises(IllegalTransactionState):
            await producer.send("t", b"b", partition=0)
        with pytest.raises(IllegalTransactionState):
            await producer.commit_transaction()
        await producer.close()
        before = coordinator.calls()
        assert before[-1] == "produce"
        async with TransactionSuccessor(CLIENT) as heir:
            await heir.commit(handed, {T0: CommittedOffset(5)}, "g")
        offsets = ["commit offsets"] if implicit else ["offsets", "commit offsets"]
        assert coordinator.calls() == [*before, *offsets, "commit"]
        assert coordinator.offsets == {("t", 0): 5}

    run(scenario, implicit=implicit)


@BOTH
def test_one_without_anything_in_it_is_not_ended(implicit):
    async def scenario(producer, coordinator, topic):
        await producer.init_transactions()
        await producer.begin_transaction()
        handed = await producer.hand_over_transaction()
        async with TransactionSuccessor(CLIENT) as heir:
            await heir.commit(handed)
            await heir.abort(handed)
        assert coordinator.calls() == ["init"]

    run(scenario, implicit=implicit)


@BOTH
def test_one_that_failed_is_not_handed_over(implicit):
    async def scenario(producer, coordinator, topic):
        await producer.init_transactions()
        await producer.begin_transaction()
        topic.verdict = lambda batch: ErrorCode.topic_authorization_failed
        await producer.send("t", b"a", partition=0)
        with pytest.raises(TransactionFailed):
            await producer.hand_over_transaction()
        await producer.abort_transaction()
        assert coordinator.calls()[-2:] in (["produce", "abort"], ["abort", "init"])

    run(scenario, implicit=implicit)


@BOTH
def test_who_waits_is_told_of_a_fault_that_ends_it(implicit):
    async def scenario(producer, coordinator, topic):
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("t", b"a", partition=0)
        handed = await producer.hand_over_transaction()
        clock = asyncio.get_running_loop().time
        began_s = clock()
        async with TransactionSuccessor(CLIENT) as heir:
            with pytest.raises(struct.error):
                await heir.commit(handed, {T0: CommittedOffset("no offset")}, "g")
        assert clock() - began_s < 1
        await producer.close()

    run(scenario, implicit=implicit)
