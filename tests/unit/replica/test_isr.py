"""What a leader calls committed, no election can lose; and a follower that can keep up gets in.

A controller, a leader and followers whose messages are late, lost or answered twice, by seed.  The
followers' logs are their end offsets: within one leader epoch nothing diverges.
"""

import random

import pytest

from kserver.replica.isr import FollowerState, Leader, SessionClock

LAG_MAX_MS = 100
ME = 1
REPLICAS = (1, 2, 3)
STEPS = 300


def a_leader(
    cls=Leader, isr=REPLICAS, *, epoch_start=0, now_ms=0, live=REPLICAS, lag_max_messages=None
):
    return cls(
        ME,
        REPLICAS,
        isr,
        0,
        epoch_start=epoch_start,
        lag_max_ms=LAG_MAX_MS,
        now_ms=now_ms,
        is_live=live.__contains__,
        lag_max_messages=lag_max_messages,
    )


class World:
    def __init__(self, seed, cls):
        self.random = random.Random(seed)
        self.now_ms = 0
        self.isr = frozenset(REPLICAS if self.random.random() < 0.5 else (ME,))
        self.partition_epoch = 0
        self.ends = {broker: self.random.randrange(3) for broker in REPLICAS}
        self.ends[ME] = max(self.ends.values())
        self.leader = a_leader(cls, self.isr, epoch_start=self.ends[ME])
        # Whoever leads has what was committed before, and so has everyone in sync.
        self.high_watermark = min(self.ends[broker] for broker in self.isr)
        self.stopped = set()
        self.proposals = []
        self.to_leader = []

    def step(self):
        self.now_ms += self.random.choice((0, 1, 5, 40))
        act = self.random.choice(
            (self.append, self.fetch, self.fetch, self.tick, self.decide, self.deliver, self.meddle)
        )
        act()
        self.advance()

    def append(self):
        self.ends[ME] += self.random.randint(1, 3)

    def fetch(self, broker=None):
        broker = broker or self.random.choice(REPLICAS[1:])
        if broker in self.stopped:
            return
        end = self.ends[ME]
        self.proposed(
            self.leader.fetched(broker, self.ends[broker], end, self.high_watermark, self.now_ms)
        )
        if self.random.random() < 0.8:  # else the answer is lost
            self.ends[broker] = self.random.randint(self.ends[broker], end)

    def tick(self):
        self.proposed(self.leader.tick(self.ends[ME], self.high_watermark, self.now_ms))

    def proposed(self, proposal):
        if proposal is not None:
            self.proposals.append(proposal)

    def decide(self):
        """The controller takes a proposal, perhaps not for the first time: a sender repeats what
        was not answered."""
        if not self.proposals:
            return
        proposal = self.random.choice(self.proposals)
        if proposal.isr == self.isr or proposal.partition_epoch == self.partition_epoch:
            if proposal.isr != self.isr and self.random.random() < 0.5:
                self.proposals.remove(proposal)
                self.to_leader.append((self.leader.refused, proposal))
                return
            self.write(proposal.isr)
            self.to_leader.append((self.leader.accepted, proposal, self.isr, self.partition_epoch))

    def meddle(self):
        """A follower stops or comes back, the controller writes of itself or repeats itself."""
        broker = self.random.choice(REPLICAS[1:])
        if self.random.random() < 0.5:
            self.stopped ^= {broker}
        elif broker in self.stopped:
            self.write(self.isr - {broker})
        self.to_leader.append((self.leader.update, self.isr, self.partition_epoch))

    def write(self, isr):
        if isr != self.isr:
            self.isr, self.partition_epoch = isr, self.partition_epoch + 1

    def deliver(self):
        if self.to_leader:
            at = self.random.randrange(len(self.to_leader))
            call, *news = self.to_leader.pop(at)
            if call == self.leader.accepted:
                self.proposals.clear()
            if self.random.random() < 0.8:
                call(*news)

    def advance(self):
        self.leader.check()
        found = self.leader.in_sync_end(self.ends[ME], self.now_ms)
        self.high_watermark = max(self.high_watermark, found)
        for broker in self.isr:
            assert self.ends[broker] >= self.high_watermark, (
                f"{broker} could be elected and lacks what was committed"
            )

    def settle(self):
        """All is well from now on, but appends never end: everyone gets in and is committed."""
        self.stopped.clear()
        appended = self.ends[ME]
        for _ in range(20):
            self.now_ms += 10
            for broker in REPLICAS[1:]:
                self.proposed(
                    self.leader.fetched(
                        broker, self.ends[broker], self.ends[ME], self.high_watermark, self.now_ms
                    )
                )
                self.ends[broker] = self.ends[ME]
                self.append()
            if (proposal := self.leader.proposed) is not None:
                if proposal.partition_epoch == self.partition_epoch:
                    self.write(proposal.isr)
                self.leader.accepted(proposal, self.isr, self.partition_epoch)
            self.leader.update(self.isr, self.partition_epoch)
            self.advance()
        assert self.leader.isr == self.isr == frozenset(REPLICAS), "a follower is kept out"
        assert self.high_watermark >= appended, "nothing is committed any more"


def run(seeds, cls=Leader):
    for seed in seeds:
        world = World(seed, cls)
        for _ in range(STEPS):
            world.step()
        world.settle()


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_nothing_committed_is_lost_and_nobody_is_kept_out(first):
    run(range(first, first + 50))


class ForgetsItsProposal(Leader):
    __slots__ = ()

    @property
    def maximal_isr(self):
        return self.isr


class TrustsItsProposal(Leader):
    __slots__ = ()

    @property
    def maximal_isr(self):
        return self.isr if self.proposed is None else self.proposed.isr


class LetsAnyoneIn(Leader):
    __slots__ = ()

    def fetched(self, broker, offset, end, high_watermark, now_ms, broker_epoch=-1, session=None):
        self.epoch_start = 0
        return super().fetched(broker, offset, end, 0, now_ms, broker_epoch)


class BelievesOldNews(Leader):
    __slots__ = ()

    def update(self, isr, partition_epoch):
        self._decided(isr, partition_epoch)


class BelievesAnyRefusal(Leader):
    __slots__ = ()

    def refused(self, proposal):
        self.proposed = None


class BelievesAnyAcceptance(Leader):
    """Also one of an earlier proposal, which news have overtaken."""

    __slots__ = ()

    def accepted(self, proposal, isr, partition_epoch):
        super().accepted(self.proposed, isr, partition_epoch)


class NeverPutsOut(Leader):
    __slots__ = ()

    def fetched(self, broker, offset, end, high_watermark, now_ms, broker_epoch=-1, session=None):
        self.followers[broker].fetched(offset, end, now_ms)
        if offset < end or broker in self.isr:
            return None
        return self._propose(self.isr | {broker})


class NeverWaits(Leader):
    """Each time the follower has come to the high watermark, the leader has gone on."""

    __slots__ = ()

    def in_sync_end(self, end, now_ms):
        for broker in self.maximal_isr - {ME}:
            end = min(end, self.followers[broker].end)
        return end


@pytest.mark.parametrize(
    "planted",
    [
        ForgetsItsProposal,
        TrustsItsProposal,
        LetsAnyoneIn,
        BelievesOldNews,
        BelievesAnyRefusal,
        BelievesAnyAcceptance,
        NeverPutsOut,
        NeverWaits,
    ],
)
def test_a_planted_bug_is_found(planted):
    with pytest.raises(AssertionError):
        run(range(400), planted)


def test_a_follower_that_keeps_up_with_a_stream_stays():
    leader = a_leader()
    end = 0
    for now_ms in range(0, 10 * LAG_MAX_MS, LAG_MAX_MS // 2):
        for broker in (2, 3):
            assert leader.fetched(broker, end, end + 5, 0, now_ms) is None
        end += 5
        assert leader.tick(end + 5, 0, now_ms) is None
    assert leader.in_sync_end(end + 5, now_ms) == end - 5


def test_a_follower_that_lags_goes_and_comes_back():
    leader = a_leader()
    leader.fetched(2, 10, 10, 0, 0)
    leader.fetched(3, 10, 10, 0, 0)
    assert leader.tick(10, 0, LAG_MAX_MS + 1) is None, "nobody lags where nothing was appended"
    leader.fetched(2, 20, 20, 10, LAG_MAX_MS)
    assert leader.tick(20, 0, LAG_MAX_MS) is None
    without = leader.tick(20, 0, LAG_MAX_MS + 1)
    assert without[:2] == (frozenset({1, 2}), 0)
    assert leader.in_sync_end(20, LAG_MAX_MS + 1) == 10, "it may be written or not"
    assert leader.fetched(3, 10, 20, 10, LAG_MAX_MS + 1) is None, "one proposal at a time"
    leader.accepted(without, {1, 2}, 1)
    assert leader.in_sync_end(20, 3 * LAG_MAX_MS) == 20
    assert leader.fetched(3, 19, 30, 20, 4 * LAG_MAX_MS) is None
    assert leader.fetched(3, 20, 30, 20, 4 * LAG_MAX_MS)[:2] == (frozenset(REPLICAS), 1)


def test_a_follower_that_catches_up_while_another_joins_is_next():
    """Where nothing is appended, the fetches of its session do not name the partition again."""
    live = {1, 2, 3}
    leader, session = a_leader(isr=(ME,), epoch_start=7, live=live), SessionClock()
    first = leader.fetched(2, 7, 7, 7, 1, session=session)
    assert leader.fetched(3, 7, 7, 7, 2, session=session) is None, "one proposal at a time"
    assert leader.tick(7, 7, 3) is None
    leader.accepted(first, {1, 2}, 1)
    session.ms = 5 * LAG_MAX_MS
    assert leader.tick(7, 8, session.ms) is None, "it lacks a committed record"
    assert leader.tick(7, 7, session.ms + LAG_MAX_MS + 1) is None, "it fetches no more"
    live.remove(3)
    assert leader.tick(7, 7, session.ms) is None
    live.add(3)
    assert leader.tick(7, 7, session.ms)[:2] == (frozenset(REPLICAS), 1)


@pytest.mark.parametrize("how", ["decided", "left its session"])
def test_a_follower_that_was_removed_has_to_fetch_again(how):
    """Its disk may have failed: it is alive, and has not lagged."""
    leader, session = a_leader(), SessionClock()
    for broker in (2, 3):
        leader.fetched(broker, 7, 7, 7, 1, session=session)
    leader.update({1, 2}, 1)
    session.ms = 2
    assert leader.tick(7, 7, 2) is None
    if how == "decided":
        assert leader.fetched(3, 7, 7, 7, 3, session=session).isr == set(REPLICAS)
    else:
        leader.refused(leader.fetched(3, 7, 7, 7, 3, session=session))
        leader.followers[3].left_session()
        assert leader.tick(7, 7, 4) is None


def test_a_follower_joins_at_the_epochs_start_and_alive():
    live = {1, 3}
    leader = a_leader(isr=(ME,), epoch_start=7, live=live)
    assert leader.fetched(2, 6, 9, 5, 0) is None
    assert leader.fetched(2, 7, 9, 5, 1) is None
    live.add(2)
    proposal = leader.fetched(2, 7, 9, 5, 2)
    assert proposal[:2] == (frozenset({1, 2}), 0)
    leader.refused(proposal)
    again = leader.fetched(2, 7, 9, 5, 3)
    leader.refused(proposal)
    assert leader.proposed is again, "another one was refused"


def test_a_restarted_leader_waits_for_nobody_that_was_out_of_sync():
    leader = a_leader(isr=(1, 2), now_ms=1000)
    leader.fetched(2, 50, 50, 0, 1001)
    assert leader.in_sync_end(50, 1001) == 50


def test_a_follower_was_caught_up_when_it_had_what_was_there():
    follower = FollowerState(0)
    follower.fetched(5, 10, 100)
    follower.fetched(9, 20, 200)
    assert follower.caught_up_ms == 0
    follower.fetched(20, 30, 300)
    assert follower.caught_up_ms == 200


def test_a_follower_that_lost_its_disk_leaves_at_its_first_fetch():
    leader = a_leader()
    for broker in (2, 3):
        leader.fetched(broker, 50, 50, 0, 1, broker_epoch=7)
    without = leader.fetched(2, 0, 50, 50, 2, broker_epoch=8)
    assert without == (frozenset({1, 3}), 0, {3: 7})
    leader.accepted(without, {1, 3}, 1)
    assert leader.fetched(2, 50, 50, 50, 3, broker_epoch=7) is None, "an earlier life's fetch"
    assert leader.fetched(2, 40, 50, 50, 4, broker_epoch=8) is None
    again = leader.fetched(2, 50, 50, 50, 5, broker_epoch=8)
    assert again == (frozenset(REPLICAS), 1, {2: 8, 3: 7})


def test_a_follower_that_restarts_with_all_that_is_committed_stays():
    leader = a_leader()
    leader.fetched(2, 50, 50, 0, 1, broker_epoch=7)
    assert leader.fetched(2, 50, 60, 50, 2, broker_epoch=8) is None
    assert leader.tick(60, 0, LAG_MAX_MS) is None


def test_a_new_leader_finds_out_who_lacks_what_it_knows_to_be_committed():
    leader = a_leader(epoch_start=50)
    assert leader.fetched(2, 0, 50, 50, 1, broker_epoch=8).isr == {1, 3}


def test_a_proposal_has_the_epochs_in_which_its_members_were_seen():
    leader = a_leader(isr=(ME,))
    proposal = leader.fetched(2, 0, 0, 0, 1, broker_epoch=7)
    leader.fetched(2, 0, 0, 0, 2, broker_epoch=8)
    assert leader.proposed is proposal
    assert proposal.broker_epochs == {2: 7}, "the controller is to refuse it"


def test_a_follower_of_a_broker_that_tells_no_epoch_is_followed_on():
    leader = a_leader(isr=(ME,))
    leader.fetched(2, 0, 10, 5, 1, broker_epoch=7)
    proposal = leader.fetched(2, 10, 10, 5, 2)
    assert proposal == (frozenset({1, 2}), 0, {})


def test_a_follower_that_is_too_many_records_behind_leaves_and_is_not_waited_for():
    leader = a_leader(lag_max_messages=10)
    for broker in (2, 3):
        leader.fetched(broker, 20, 20, 0, 1)
    leader.fetched(3, 31, 31, 20, 2)
    assert leader.tick(30, 0, 2) is None
    without = leader.tick(31, 0, 2)
    assert without.isr == {1, 3}
    leader.accepted(without, {1, 3}, 1)
    assert leader.in_sync_end(31, 3) == 31
    assert leader.fetched(2, 30, 31, 31, 4) is None
    assert leader.fetched(2, 31, 31, 31, 5).isr == set(REPLICAS)


def test_a_session_s_fetch_counts_for_partitions_that_have_not_moved():
    leader, session = a_leader(), SessionClock()
    leader.fetched(2, 10, 10, 0, 0, session=session)
    leader.fetched(3, 10, 10, 0, 0)
    session.ms = 5 * LAG_MAX_MS
    assert leader.tick(11, 0, 5 * LAG_MAX_MS + 1).isr == {1, 2}, "two fetched a moment ago"


def test_a_session_s_fetch_counts_no_more_for_a_partition_that_has_left_it():
    leader, session = a_leader(), SessionClock()
    for broker in (2, 3):
        leader.fetched(broker, 10, 10, 0, 0, session=session)
    leader.followers[3].left_session()
    session.ms = 5 * LAG_MAX_MS
    assert leader.tick(11, 0, 5 * LAG_MAX_MS + 1).isr == {1, 2}


def test_a_session_s_fetch_does_not_count_for_a_partition_that_is_behind():
    leader, session = a_leader(), SessionClock()
    for broker in (2, 3):
        leader.fetched(broker, 9, 10, 0, 0, session=session)
    session.ms = 5 * LAG_MAX_MS
    assert leader.tick(10, 0, 5 * LAG_MAX_MS + 1).isr == {1}


def test_who_is_no_replica_any_more_is_in_no_isr_though_the_controller_names_him():
    leader = a_leader(isr=(*REPLICAS, 4))
    assert leader.isr == set(REPLICAS)
    for broker in (2, 3):
        leader.fetched(broker, 5, 5, 0, 0)
    assert leader.in_sync_end(5, 0) == 5
    leader.update((ME, 2, 4), 1)
    assert leader.isr == {ME, 2}
    assert leader.fetched(3, 5, 5, 5, 0).isr == set(REPLICAS)
