"""One partition's leader: the fetches that count, and the writes that are accepted."""

from uuid import UUID

import pytest

from kserver.config.topic import TopicConfig
from kserver.errors import ErrorCode, KafkaError
from kserver.metadata import PartitionInfo
from kserver.metrics.meters import AllTopics
from kserver.model import ALL_IN_SYNC, LEADER_ONLY, NO_EPOCH, TopicPartition
from kserver.replica.isr import UNKNOWN_OFFSET
from kserver.replica.partition import Partition, PartitionContext
from tests.support.clock import DAY_ONE_MS, SimClock
from tests.support.disk import SimDisk
from tests.support.logs import batch, open_log
from tests.support.loop import simulate

ME, FOLLOWER, EPOCH = 1, 2, 5
CONTEXT = PartitionContext(
    ME, now_ms=lambda: 0, is_live=(ME, FOLLOWER).__contains__, lag_max_ms=30_000
)


def led(loop, isr=(ME,), **config):
    """A partition that this broker leads with one record, which the follower does not have."""
    log = open_log(SimDisk(loop.random, SimClock(loop)), TopicConfig(**config), directory="/t-0")
    partition = Partition(TopicPartition("t", 0), UUID(int=1), log, CONTEXT, AllTopics().of("t"))
    partition.take_role(PartitionInfo(0, ME, EPOCH, (ME, FOLLOWER), isr))
    partition.append_as_leader(batch(), LEADER_ONLY, DAY_ONE_MS)
    return partition


def fetch(partition, offset, last_epoch=NO_EPOCH):
    return partition.fetched_by(FOLLOWER, 1, EPOCH, offset, last_epoch, 0)


@pytest.mark.parametrize("last_epoch", [NO_EPOCH, EPOCH])
@pytest.mark.parametrize("isr", [(ME,), (ME, FOLLOWER)])
def test_a_fetch_beyond_the_end_of_the_log_counts_for_nothing(isr, last_epoch):
    """Such a follower has records that this log does not have; those below may be others too."""

    async def main(loop):
        partition = led(loop, isr)
        committed = partition.log.high_watermark
        end = partition.log.log_end_offset
        assert fetch(partition, end + 1, last_epoch) is None
        assert partition.leader.followers[FOLLOWER].end == UNKNOWN_OFFSET
        assert partition.log.high_watermark == committed
        proposal = fetch(partition, end, last_epoch)
        assert partition.leader.followers[FOLLOWER].end == end
        assert (proposal is None) == (FOLLOWER in isr)

    simulate(main, 0)


def test_a_fetch_whose_log_ends_in_another_epoch_counts_for_nothing():
    async def main(loop):
        partition = led(loop)
        assert fetch(partition, partition.log.log_end_offset, EPOCH - 1) is None
        assert partition.leader.followers[FOLLOWER].end == UNKNOWN_OFFSET

    simulate(main, 0)


def test_only_acks_all_needs_as_many_in_sync_as_min_insync_replicas():
    async def main(loop):
        partition = led(loop, min_insync_replicas=2)
        for acks in (0, LEADER_ONLY):
            partition.append_as_leader(batch(), acks, DAY_ONE_MS)
        end = partition.log.log_end_offset
        with pytest.raises(KafkaError) as refused:
            partition.append_as_leader(batch(), ALL_IN_SYNC, DAY_ONE_MS)
        assert refused.value.code is ErrorCode.not_enough_replicas
        assert partition.log.log_end_offset == end
        assert partition.log.high_watermark == 0, "below min.insync.replicas nothing is committed"

    simulate(main, 0)


def test_a_topic_with_fewer_replicas_than_min_insync_replicas_needs_all_of_them():
    """It could never be written to otherwise."""

    async def main(loop):
        partition = led(loop, min_insync_replicas=3)
        partition.take_role(PartitionInfo(0, ME, EPOCH + 1, (ME, FOLLOWER), (ME,)))
        with pytest.raises(KafkaError):
            partition.append_as_leader(batch(), ALL_IN_SYNC, DAY_ONE_MS)
        partition.take_role(PartitionInfo(0, ME, EPOCH + 2, (ME, FOLLOWER), (ME, FOLLOWER)))
        partition.append_as_leader(batch(), ALL_IN_SYNC, DAY_ONE_MS)

    simulate(main, 0)


def test_a_message_within_the_leader_epoch_keeps_what_is_known_of_the_followers():
    """It names the ISR as the controller last wrote it.  A follower that may join already counts:
    the controller may have accepted it, and elect it."""

    async def main(loop):
        partition = led(loop)
        end = partition.log.log_end_offset
        assert fetch(partition, end) is not None
        proposed = partition.leader.proposed
        partition.take_role(PartitionInfo(0, ME, EPOCH, (ME, FOLLOWER), (ME,)))
        assert partition.leader.followers[FOLLOWER].end == end
        assert partition.leader.proposed is proposed is not None
        assert partition.leader.maximal_isr == {ME, FOLLOWER}
        partition.append_as_leader(batch(), LEADER_ONLY, DAY_ONE_MS)
        assert partition.log.high_watermark == end, "the follower does not have this record"
        partition.take_role(PartitionInfo(0, ME, EPOCH + 1, (ME, FOLLOWER), (ME,)))
        assert partition.leader.followers[FOLLOWER].end == UNKNOWN_OFFSET

    simulate(main, 0)
