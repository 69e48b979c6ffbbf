"""However leaders come and go, followers cut their logs where they left the leader's: all logs
become one, and with clean elections nothing committed is ever cut.

Three replicas of one partition, by seed.  A record is the epoch that wrote it and a number that
only it has.
"""

import random
from itertools import count

import pytest

from kserver.errors import ErrorCode, KafkaError
from kserver.log.leader_epochs import UNDEFINED, EpochEnd, EpochStart, LeaderEpochCache
from kserver.replica.isr import Leader
from kserver.replica.truncation import (
    DivergingEpoch,
    divergence,
    truncation_offset,
    unaligned_start,
)
from tests.support.logs import batch

REPLICAS = (1, 2, 3)
STEPS = 150
LAG_MAX_MS = 100


class Replica:
    def __init__(self, broker):
        self.broker = broker
        self.log = []
        self.epochs = LeaderEpochCache()
        self.high_watermark = 0
        self.leader = None

    @property
    def end(self):
        return len(self.log)

    def lead(self, epoch, isr, now_ms):
        self.epochs.assign(epoch, self.end)
        self.leader = Leader(
            self.broker,
            REPLICAS,
            isr,
            0,
            epoch_start=self.end,
            lag_max_ms=LAG_MAX_MS,
            now_ms=now_ms,
            is_live=REPLICAS.__contains__,
        )

    def follow(self):
        self.leader = None

    def append(self, records):
        for record in records:
            self.epochs.assign(record[0], self.end)
            self.log.append(record)

    def truncate(self, diverging):
        self.cut(truncation_offset(self.epochs, self.end, diverging))

    def cut(self, offset):
        assert offset <= self.end
        del self.log[offset:]
        self.epochs.truncate_from_end(offset)
        self.high_watermark = min(self.high_watermark, offset)

    def fetched(self, records, high_watermark):
        self.append(records)
        self.high_watermark = min(high_watermark, self.end)


class World:
    def __init__(self, seed, cls, *, is_clean):
        self.random = random.Random(seed)
        self.is_clean = is_clean
        self.replicas = {broker: cls(broker) for broker in REPLICAS}
        self.now_ms = 0
        self.epoch = 0
        self.isr = frozenset(REPLICAS)
        self.committed = []
        self.numbers = count()
        self.leader = self.replicas[1]
        self.leader.lead(0, self.isr, 0)

    def step(self):
        self.now_ms += self.random.choice((0, 1, 5, 40))
        act = self.random.choices((self.append, self.fetch, self.tick, self.elect), (4, 8, 2, 1))[0]
        act()
        self.advance()

    def append(self):
        self.leader.append(
            (self.epoch, next(self.numbers)) for _ in range(self.random.randint(1, 3))
        )

    def fetch(self, broker=None, most=3):
        leader = self.leader
        others = [replica for replica in self.replicas.values() if replica is not leader]
        follower = self.replicas[broker] if broker else self.random.choice(others)
        last, offset = follower.epochs.latest_epoch, follower.end
        if last >= 0:
            found = leader.epochs.end_offset_for(last, leader.end)
            diverging = divergence(found, last, offset)
            if diverging is not None:
                follower.truncate(diverging)
                return
        self.accept(
            leader.leader.fetched(
                follower.broker, offset, leader.end, leader.high_watermark, self.now_ms
            )
        )
        self.advance()
        follower.fetched(leader.log[offset : offset + most], leader.high_watermark)

    def tick(self):
        self.accept(
            self.leader.leader.tick(self.leader.end, self.leader.high_watermark, self.now_ms)
        )

    def accept(self, proposal):
        if proposal is not None:
            self.isr = proposal.isr
            self.leader.leader.accepted(proposal, self.isr, proposal.partition_epoch + 1)

    def elect(self):
        old = self.leader
        candidates = self.isr if self.is_clean else REPLICAS
        self.epoch += 1
        self.leader = self.replicas[self.random.choice(sorted(candidates))]
        if self.leader is not old:
            if self.random.random() < 0.5:  # it wrote on, not knowing that it was replaced
                old.append((self.epoch - 1, next(self.numbers)) for _ in range(2))
            old.follow()
        if not self.is_clean:
            self.isr = frozenset({self.leader.broker})
        elif self.random.random() < 0.5 and len(self.isr) > 1:
            self.isr -= {old.broker} - {self.leader.broker}
        self.leader.lead(self.epoch, self.isr, self.now_ms)

    def advance(self):
        leader = self.leader
        end = leader.leader.in_sync_end(leader.end, self.now_ms)
        leader.high_watermark = max(leader.high_watermark, end)
        if not self.is_clean:
            return
        if leader.high_watermark > len(self.committed):
            committed = leader.log[: leader.high_watermark]
            assert committed[: len(self.committed)] == self.committed
            self.committed = committed
        for broker in self.isr:
            log = self.replicas[broker].log
            assert log[: len(self.committed)] == self.committed, f"{broker} lost what was committed"

    def settle(self):
        for replica in self.replicas.values():
            if replica is self.leader:
                continue
            for _ in range(10 + 2 * self.epoch):
                self.fetch(replica.broker, most=1000)
            assert replica.log == self.leader.log, "two logs never became one"
            replica.epochs.check_invariants()


def run(seeds, cls=Replica, *, is_clean):
    for seed in seeds:
        world = World(seed, cls, is_clean=is_clean)
        for _ in range(STEPS):
            world.step()
        world.settle()


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("first", range(0, 200, 50))
def test_logs_become_one_and_nothing_committed_is_cut(first, is_clean):
    run(range(first, first + 50), is_clean=is_clean)


class CutsAtItsHighWatermark(Replica):
    """As before KIP-101."""

    def truncate(self, diverging):
        self.cut(self.high_watermark)

    def follow(self):
        super().follow()
        self.cut(self.high_watermark)

    def lead(self, epoch, isr, now_ms):
        self.cut(self.high_watermark)
        super().lead(epoch, isr, now_ms)


class NeverCuts(Replica):
    def truncate(self, diverging):
        pass


class CutsWhereTheLeaderEnds(Replica):
    """As before KIP-279: whether it has the leader's epoch is not looked at."""

    def truncate(self, diverging):
        self.cut(min(diverging.end_offset, self.end))


class HidesItsEpoch(Replica):
    """A leader that notes its epoch with its first record only."""

    def lead(self, epoch, isr, now_ms):
        before = LeaderEpochCache(self.epochs.entries)
        super().lead(epoch, isr, now_ms)
        self.epochs = before


@pytest.mark.parametrize(
    ("planted", "is_clean"),
    [
        (CutsAtItsHighWatermark, True),
        (NeverCuts, True),
        (NeverCuts, False),
        (CutsWhereTheLeaderEnds, False),
        (HidesItsEpoch, False),
    ],
)
def test_a_planted_bug_is_found(planted, is_clean):
    with pytest.raises((AssertionError, KafkaError)):
        run(range(200), planted, is_clean=is_clean)


def test_a_leader_that_cannot_tell_says_so():
    with pytest.raises(KafkaError) as refused:
        divergence(UNDEFINED, 3, 10)
    assert refused.value.code is ErrorCode.offset_out_of_range


@pytest.mark.parametrize(
    ("found", "offset", "expected"),
    [
        (EpochEnd(3, 10), 10, None),
        (EpochEnd(3, 12), 10, None),
        (EpochEnd(3, 9), 10, DivergingEpoch(3, 9)),
        (EpochEnd(2, 12), 10, DivergingEpoch(2, 12)),
    ],
)
def test_a_leader_tells_where_the_logs_part(found, offset, expected):
    assert divergence(found, 3, offset) == expected


@pytest.mark.parametrize(
    ("diverging", "expected"),
    [
        (DivergingEpoch(4, 25), 25),  # it has the epoch, and less of it
        (DivergingEpoch(4, 40), 30),  # and more of it, but later ones here are not the leader's
        (DivergingEpoch(3, 25), 20),  # the epoch is not here: the one before it ends at 20
        (DivergingEpoch(6, 33), 33),
        (DivergingEpoch(0, 5), 5),
    ],
)
def test_a_follower_cuts_there(diverging, expected):
    epochs = LeaderEpochCache([EpochStart(1, 10), EpochStart(4, 20), EpochStart(6, 30)])
    assert truncation_offset(epochs, 35, diverging) == expected


def test_a_follower_that_knows_no_epochs_takes_the_leaders_word():
    assert truncation_offset(LeaderEpochCache(), 35, DivergingEpoch(4, 25)) == 25
    assert truncation_offset(LeaderEpochCache(), 35, DivergingEpoch(4, 45)) == 35


@pytest.mark.parametrize(
    ("log_start", "log_end", "base"),
    [
        (12, 12, 10),
        (14, 14, 10),
        (10, 10, None),  # the batch begins where the log does
        (15, 15, None),  # the batch ends before
        (11, 12, None),  # the log has records: the logs diverge
        (9, 9, None),
    ],
)
def test_an_empty_log_that_starts_within_a_batch_has_to_hold_all_of_it(log_start, log_end, base):
    records = bytearray(batch(5))
    records[:8] = (10).to_bytes(8)
    assert unaligned_start(log_start, log_end, records) == base
    assert unaligned_start(log_start, log_end, records[:60]) is None
