"""What becomes of an append: committed, or why that will not be known."""

import asyncio
import errno
from dataclasses import replace
from uuid import UUID

import pytest

from kserver.config.topic import TopicConfig
from kserver.errors import ErrorCode
from kserver.metadata import PartitionInfo
from kserver.metrics.meters import AllTopics
from kserver.model import TopicPartition
from kserver.replica.committed import Uncommitted, when_committed
from kserver.replica.partition import Partition, PartitionContext
from kserver.replica.purgatory import Purgatory
from tests.support.clock import DAY_ONE_MS, SimClock
from tests.support.disk import SimDisk
from tests.support.logs import batch, open_log
from tests.support.loop import simulate

ME, EPOCH = 1, 5
LED = PartitionInfo(0, leader=ME, leader_epoch=EPOCH, replicas=(ME, 2), isr=(ME,))
WITH_FOLLOWER = replace(LED, isr=(ME, 2))
CONTEXT = PartitionContext(ME, now_ms=lambda: 0, is_live=(ME, 2).__contains__, lag_max_ms=30_000)
DEADLINE_S = 30.0


async def dropped(partition):
    partition.leave()


async def led_by_another(partition):
    partition.take_role(PartitionInfo(0, leader=2, leader_epoch=6, replicas=(ME, 2), isr=(2,)))


async def led_on(partition):
    epoch = partition.epoch + 1
    partition.take_role(
        PartitionInfo(0, leader=ME, leader_epoch=epoch, replicas=(ME, 2), isr=(ME,))
    )


async def led_again(partition):
    """By this broker, after another."""
    await led_by_another(partition)
    await led_on(partition)


async def flushed(partition):
    await partition.log.flush()
    partition.reconsider()


async def disk_failed(partition):
    partition.log.failed(OSError(errno.EIO, "broken"))


class Scene:
    """Partitions with `flush.before.ack`, so that an append is open until its log is flushed."""

    def __init__(self, loop):
        self.loop = loop
        self.purgatory = Purgatory(loop)
        self.disk = SimDisk(loop.random, SimClock(loop))
        self.told = []

    def appended(self, number, acks=None, **settings):
        key = TopicPartition("t", number)
        config = TopicConfig(flush_before_ack=True, **settings)
        log = open_log(self.disk, config, directory=f"/t-{number}")
        partition = Partition(key, UUID(int=1), log, CONTEXT, AllTopics().of("t"))
        partition.take_role(LED if settings.get("min_insync_replicas", 1) == 1 else WITH_FOLLOWER)
        partition.append_as_leader(batch(), -1, DAY_ONE_MS)
        return Uncommitted(partition, EPOCH, log.log_end_offset, acks)

    def wait(self, *appends):
        deadline_s = self.loop.time() + DEADLINE_S
        return when_committed(appends, self.purgatory, deadline_s, self.told.append)

    async def change(self, how, append):
        await how(append.partition)
        self.purgatory.check(append.partition.topic_partition)


def scene(body):
    simulate(lambda loop: body(Scene(loop)), 0)


@pytest.mark.parametrize(
    ("how", "outcome"),
    [
        (flushed, ErrorCode.none),
        (dropped, ErrorCode.unknown_topic_or_partition),
        (led_by_another, ErrorCode.not_leader_or_follower),
        (led_again, ErrorCode.not_leader_or_follower),
        (disk_failed, ErrorCode.kafka_storage_error),
    ],
)
def test_what_ends_the_wait(how, outcome):
    async def body(scene):
        append = scene.appended(0)
        assert scene.wait(append) is not None
        assert not scene.told
        await scene.change(how, append)
        assert scene.told == [[outcome]]
        assert not len(scene.purgatory)

    scene(body)


def test_the_next_epoch_of_the_same_leader_is_waited_through():
    async def body(scene):
        append = scene.appended(0)
        scene.wait(append)
        await scene.change(led_on, append)
        assert not scene.told
        await scene.change(flushed, append)
        assert scene.told == [[ErrorCode.none]]

    scene(body)


def test_what_is_committed_already_is_told_at_once():
    async def body(scene):
        append = scene.appended(0)
        await scene.change(flushed, append)
        assert scene.wait(append) is None
        assert scene.told == [[ErrorCode.none]]

    scene(body)


def test_what_was_committed_stays_so_while_others_are_waited_for():
    """Its partition is gone by the time that the answer is made, its records were not."""

    async def body(scene):
        first, second = scene.appended(0), scene.appended(1)
        scene.wait(first, second)
        await scene.change(flushed, first)
        await scene.change(dropped, first)
        assert not scene.told
        await scene.change(led_by_another, second)
        assert scene.told == [[ErrorCode.none, ErrorCode.not_leader_or_follower]]

    scene(body)


def test_at_the_deadline_only_what_is_open_has_timed_out():
    async def body(scene):
        first, second = scene.appended(0), scene.appended(1)
        scene.wait(first, second)
        await scene.change(flushed, second)
        await asyncio.sleep(DEADLINE_S - 1)
        assert not scene.told
        await asyncio.sleep(2)
        assert scene.told == [[ErrorCode.request_timed_out, ErrorCode.none]]

    scene(body)


async def shrunk(partition):
    """The follower has left the ISR."""
    partition.take_role(replace(LED, partition_epoch=1))


@pytest.mark.parametrize(
    ("acks", "outcomes"),
    [
        (-1, [[ErrorCode.not_enough_replicas_after_append]]),
        (1, [[ErrorCode.none]]),
        # A coordinator's records wait until enough replicas are in sync again.
        (None, []),
    ],
)
def test_an_append_that_lost_its_replicas_is_refused_to_who_requested_them(acks, outcomes):
    async def body(scene):
        append = scene.appended(0, acks, min_insync_replicas=2)
        assert scene.wait(append) is not None
        await scene.change(shrunk, append)
        assert not scene.told, "not on the leader's own disk yet"
        await scene.change(flushed, append)
        assert scene.told == outcomes
        assert append.partition.log.high_watermark == 0, (
            "below min.insync.replicas nothing is committed"
        )

    scene(body)


def test_an_append_waits_for_replicas_while_enough_are_in_sync():
    async def body(scene):
        append = scene.appended(0, -1, min_insync_replicas=2)
        scene.wait(append)
        await scene.change(flushed, append)
        assert not scene.told

    scene(body)
