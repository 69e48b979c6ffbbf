"""A broker that is about to stop: who leads what it led, and what remains with it."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from uuid import UUID

import pytest

from kserver.broker.controlled_shutdown import hand_over
from kserver.config.broker import BrokerConfig
from kserver.controller.context import ControllerContext, LiveBroker
from kserver.controller.partitions import IsrChange, validate_change, without
from kserver.controller.request_batch import followed_by
from kserver.errors import ErrorCode, KafkaError
from kserver.metadata import BrokerInfo, ClusterMetadata, MetadataCache, PartitionInfo, TopicInfo
from kserver.model import TopicPartition
from tests.support.loop import simulate

ID = UUID(int=1)
LED_BY_1 = PartitionInfo(0, 1, 5, (1, 2, 3), (1, 2), 7)
LEFT = [TopicPartition("t", 0)]


@pytest.mark.parametrize(
    ("partition", "staying", "shutting_down", "expected"),
    [
        (LED_BY_1, (2, 3), {1}, (2, (2,))),
        # it leaves the ISR of what it follows
        (replace(LED_BY_1, leader=2), (2, 3), {1}, (2, (2,))),
        # nobody else is in sync, or goes on
        (replace(LED_BY_1, isr=(1,)), (2, 3), {1}, None),
        (LED_BY_1, (3,), {1}, None),
        # the last in sync cannot lead, for its disk failed, and nobody else has what it has
        (replace(LED_BY_1, leader=-1, isr=(1,)), (2, 3), {1}, None),
        (LED_BY_1, (3,), {1, 2}, None),
        # others that are about to stop leave with it
        (replace(LED_BY_1, isr=(1, 2, 3)), (3,), {1, 2}, (3, (3,))),
    ],
)
def test_others_lead_what_it_led(partition, staying, shutting_down, expected):
    state = without(1, partition, staying, shutting_down, 9)
    if expected is None:
        assert state is None
    else:
        assert (state.leader, state.isr) == expected
        assert (state.leader_epoch, state.partition_epoch, state.controller_epoch) == (6, 8, 9)


def test_who_is_about_to_stop_joins_no_isr():
    brokers = {b: LiveBroker(BrokerInfo(b, {}), 10 * b) for b in (1, 2, 3)}
    context = ControllerContext(9, brokers, shutting_down={3})
    topic = TopicInfo("t", ID, (LED_BY_1,))
    joins = IsrChange(ID, 0, 5, ((1, -1), (2, -1), (3, -1)), 7)
    with pytest.raises(KafkaError) as refused:
        validate_change(joins, 1, topic, context)
    assert refused.value.code is ErrorCode.ineligible_replica
    context.shutting_down.clear()
    assert validate_change(joins, 1, topic, context).isr == (1, 2, 3)


def test_it_is_told_to_stop_following_only_what_it_followed():
    followed = replace(LED_BY_1, partition=1, leader=2)
    topic = TopicInfo("t", ID, (LED_BY_1, followed))
    changed = [(topic, [replace(LED_BY_1, leader=2), followed])]
    assert followed_by(1, changed) == [(topic, [followed])]
    assert followed_by(2, [(topic, [followed])]) == []


class Asked:
    """What the controller answers, time after time."""

    def __init__(self, loop, *answers):
        self.loop = loop
        self.answers = list(answers)
        self.at_s = []

    async def __call__(self):
        self.at_s.append(round(self.loop.time()))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def cluster_of(*ids, controller=2):
    return ClusterMetadata("c", controller, {id_: BrokerInfo(id_, {}) for id_ in ids})


def handed_over(*answers, news=None, ids=(1, 2, 3)):
    async def main(loop):
        asked, metadata = Asked(loop, *answers), MetadataCache(cluster_of(*ids))
        if news is not None:
            loop.call_later(1, metadata.update, news)
        done = await hand_over(asked, metadata, BrokerConfig())
        return done, asked.at_s

    return simulate(main, seed=1)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([[]], (True, [0])),
        ([LEFT, []], (True, [0, 5])),
        ([LEFT, LEFT, LEFT], (False, [0, 5, 10])),
        ([KafkaError(ErrorCode.not_controller), OSError("refused"), []], (True, [0, 5, 10])),
    ],
)
def test_it_is_asked_again_as_often_as_configured(answers, expected):
    assert handed_over(*answers) == expected


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (LEFT, "no other replica can lead the remaining partitions"),
        (OSError("refused"), "the controller could not be asked: refused"),
    ],
)
def test_the_last_attempt_says_why_a_shutdown_is_incomplete(last, reason, caplog):
    handed_over(OSError("unreachable"), LEFT, last)
    (line,) = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert line == f"controlled shutdown incomplete: {reason}"


def test_it_is_asked_again_as_soon_as_there_is_news():
    refused = KafkaError(ErrorCode.not_controller)
    assert handed_over(refused, [], news=cluster_of(1, 3, controller=3)) == (True, [0, 1])
    assert handed_over(LEFT, [], news=cluster_of(1, 2)) == (True, [0, 1])
    assert handed_over(LEFT, news=cluster_of(1)) == (True, [0]), "nobody is left to take over"
    assert handed_over(ids=(1,)) == (True, [])


def test_a_pause_can_be_cancelled():
    async def main(loop):
        waiting = loop.create_task(
            hand_over(Asked(loop, LEFT), MetadataCache(cluster_of(1, 2)), BrokerConfig())
        )
        await asyncio.sleep(1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    simulate(main, seed=1)
