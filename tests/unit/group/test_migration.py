import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from kserver.errors import ErrorCode, KafkaError
from kserver.group.consumer_group import ConsumerGroup
from kserver.group.group import ClassicGroup
from kserver.group.requests import Commit, CommitOffsets, FetchOffsets
from tests.support.consumer_groups import (
    GROUP,
    SESSION_MS,
    ClassicConsumer,
    Consumer,
    Coordinator,
)

NO_DELAY = {"group_initial_rebalance_delay_ms": 0}
ROUNDS = 60
"""Steps of all members after which nothing moves any more: a classic rebalance takes five."""


def coordinator(partitions=4, **config):
    made = Coordinator(**NO_DELAY | config)
    made.set_topic("t", partitions)
    return made


def settle(coordinator, *members):
    for _ in range(ROUNDS):
        coordinator.advance(500)
        for member in members:
            (member.step if isinstance(member, ClassicConsumer) else member.beat)()


def owned(*members):
    """Sorted; a partition that two have is there twice."""
    return sorted(partition for member in members for partition in member.owned)


every_kind = pytest.mark.parametrize("cooperative", [False, True], ids=["eager", "cooperative"])


@every_kind
def test_a_group_goes_up_and_down_with_its_members(cooperative):
    c = coordinator()
    every = sorted(c.partitions("t"))
    first = ClassicConsumer(c, cooperative=cooperative)
    second = ClassicConsumer(c, cooperative=cooperative)
    settle(c, first, second)
    assert isinstance(c.shard.groups[GROUP], ClassicGroup)
    assert owned(first, second) == every
    third = Consumer(c, "new")
    third.beat()
    assert isinstance(c.shard.groups[GROUP], ConsumerGroup)
    settle(c, first, second, third)
    assert owned(first, second, third) == every
    assert c.group.state_name == "Stable"
    assert third.owned
    third.leave()
    settle(c, first, second)
    assert isinstance(c.shard.groups[GROUP], ClassicGroup)
    assert c.shard.groups[GROUP].state_name == "Stable"
    assert owned(first, second) == every


@every_kind
def test_a_classic_member_joins_a_consumer_group(cooperative):
    c = coordinator()
    consumer, classic = Consumer(c, "m"), ClassicConsumer(c, cooperative=cooperative)
    settle(c, consumer)
    settle(c, consumer, classic)
    assert isinstance(c.shard.groups[GROUP], ConsumerGroup)
    assert owned(consumer, classic) == sorted(c.partitions("t"))
    assert len(classic.owned) == 2
    classic.leave()
    settle(c, consumer)
    assert consumer.owned == c.partitions("t")


def test_a_classic_member_that_falls_silent_is_out_after_its_own_session():
    c = coordinator()
    consumer, classic = Consumer(c, "m"), ClassicConsumer(c)
    settle(c, consumer, classic)
    c.advance(SESSION_MS - 1)
    assert classic.id in c.group.members
    c.advance(2)
    assert classic.id not in c.group.members


def test_a_static_member_changes_protocol_and_keeps_what_it_had():
    c = coordinator()
    classic = ClassicConsumer(c, instance_id="i")
    other = ClassicConsumer(c)
    settle(c, classic, other)
    had = classic.owned
    again = Consumer(c, "new", instance_id="i")
    again.beat()
    assert again.owned == had
    assert classic.id not in c.group.members


def test_the_last_static_member_of_the_new_protocol_takes_the_group_down_with_it():
    c = coordinator()
    consumer, other = Consumer(c, "new", instance_id="i"), ClassicConsumer(c)
    settle(c, consumer, other)
    again = ClassicConsumer(c, instance_id="i")
    settle(c, again, other)
    assert isinstance(c.shard.groups[GROUP], ClassicGroup)
    assert owned(again, other) == sorted(c.partitions("t"))
    assert again.owned


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_a_classic_group_stays_one_where_no_upgrade_is_allowed(policy):
    c = coordinator(group_consumer_migration_policy=policy)
    classic = ClassicConsumer(c)
    settle(c, classic)
    with pytest.raises(KafkaError) as refused:
        Consumer(c, "m").beat()
    assert refused.value.code is ErrorCode.group_id_not_found
    assert "online upgrade is disabled" in refused.value.message
    assert isinstance(c.shard.groups[GROUP], ClassicGroup)


def test_a_consumer_group_stays_one_where_no_downgrade_is_allowed():
    c = coordinator(group_consumer_migration_policy="upgrade")
    consumer, classic = Consumer(c, "m"), ClassicConsumer(c)
    settle(c, consumer, classic)
    consumer.leave()
    settle(c, classic)
    assert isinstance(c.shard.groups[GROUP], ConsumerGroup)
    assert classic.owned == c.partitions("t")


def test_no_classic_member_joins_a_consumer_group_where_migration_is_disabled():
    c = coordinator(group_consumer_migration_policy="disabled")
    consumer, classic = Consumer(c, "m"), ClassicConsumer(c)
    settle(c, consumer, classic)
    assert consumer.owned == c.partitions("t")
    assert not classic.owned


def test_a_group_that_is_no_group_of_consumers_stays_classic():
    c = coordinator()
    classic = ClassicConsumer(c)
    classic.metadata = lambda: b"\0"  # as Connect's workers, it says what it likes
    settle(c, classic)
    with pytest.raises(KafkaError) as refused:
        Consumer(c, "m").beat()
    assert refused.value.code is ErrorCode.group_id_not_found
    assert "malformed" in refused.value.message
    assert isinstance(c.shard.groups[GROUP], ClassicGroup)


def test_an_empty_group_becomes_what_its_first_member_needs_and_keeps_its_offsets():
    c = coordinator()
    consumer = Consumer(c, "m")
    settle(c, consumer)
    topic = c.image.topics["t"]
    commit = Commit("t", topic.id, 0, 42, -1, "")
    codes = c.ask(CommitOffsets(GROUP, consumer.epoch, "m", None, [commit]))
    assert codes == [ErrorCode.none]
    consumer.leave()
    for member, kind in [
        (ClassicConsumer(c), ClassicGroup),
        (Consumer(c, "again"), ConsumerGroup),
        (ClassicConsumer(c), ClassicGroup),
    ]:
        settle(c, member)
        assert isinstance(c.shard.groups[GROUP], kind)
        assert member.owned == c.partitions("t")
        ((_, (fetched,)),) = c.ask(FetchOffsets(GROUP, [("t", [0])]))
        assert fetched.offset == 42
        member.leave()
        c.reload()


def test_offsets_outlive_a_load_between_one_kind_of_group_and_the_other():
    c = coordinator(group_initial_rebalance_delay_ms=3000)
    consumer, classic = Consumer(c, "m"), ClassicConsumer(c)
    settle(c, consumer)
    commit = Commit("t", c.image.topics["t"].id, 0, 42, -1, "")
    c.ask(CommitOffsets(GROUP, consumer.epoch, "m", None, [commit]))
    consumer.leave()
    for _ in range(3):
        classic.step()  # it has joined: the group is classic now, and nothing was kept of it yet
    c.reload()
    assert isinstance(c.shard.groups[GROUP], ClassicGroup)
    ((_, (fetched,)),) = c.ask(FetchOffsets(GROUP, [("t", [0])]))
    assert fetched.offset == 42


def test_who_waits_in_a_classic_group_that_goes_up_is_told_to_come_again():
    c = coordinator(group_initial_rebalance_delay_ms=3000)
    waiting = ClassicConsumer(c)
    for _ in range(3):
        waiting.step()  # it was given an id, and has joined with it
    Consumer(c, "m").beat()
    settle(c, waiting)
    assert waiting.owned


class Mixed(RuleBasedStateMachine):
    """Members of both protocols come, go and fall silent; the group is what they need."""

    members = Bundle("members")

    @initialize(interval_ms=st.sampled_from([0, 1000]))
    def begin(self, interval_ms):
        self.coordinator = coordinator(group_consumer_assignment_interval_ms=interval_ms)
        self.alive = []
        self.numbers = itertools.count(1)

    @rule(target=members)
    def join(self):
        self.alive.append(Consumer(self.coordinator, f"m{next(self.numbers)}"))
        self.alive[-1].beat()
        return self.alive[-1]

    @rule(target=members, cooperative=st.booleans())
    def join_as_classic_member(self, cooperative):
        self.alive.append(ClassicConsumer(self.coordinator, cooperative=cooperative))
        return self.alive[-1]

    @rule(member=members, times=st.integers(1, 5))
    def step(self, member, times):
        for _ in range(times):
            (member.step if isinstance(member, ClassicConsumer) else member.beat)()

    @rule(member=consumes(members))
    def leave(self, member):
        self.alive.remove(member)
        group = self.coordinator.shard.groups.get(GROUP)
        if group is not None and member.id in group.members:
            member.leave()

    @rule(member=consumes(members))
    def crash(self, member):
        self.alive.remove(member)

    @rule(ms=st.sampled_from([1, 1000, 11_000, 46_000]))
    def pass_time(self, ms):
        self.coordinator.advance(ms)

    @rule(partitions=st.integers(5, 7))
    def grow(self, partitions):
        if partitions > len(self.coordinator.image.topics["t"].partitions):
            self.coordinator.set_topic("t", partitions)

    @rule()
    def reload(self):
        self.coordinator.reload()

    @rule()
    def settle(self):
        # Longer than any session: whoever crashed is out.
        for _ in range(3):
            settle(self.coordinator, *self.alive)
        if not self.alive:
            return
        group = self.coordinator.shard.groups[GROUP]
        assert group.state_name == "Stable"
        assert group.members.keys() == {member.id for member in self.alive}
        has_consumers = any(isinstance(member, Consumer) for member in self.alive)
        assert isinstance(group, ConsumerGroup) == has_consumers
        if has_consumers:  # the leader of a classic one looks after its topics itself
            assert owned(*self.alive) == sorted(self.coordinator.partitions("t"))

    @invariant()
    def no_partition_has_two_owners(self):
        """By what members were told, as long as they are members in that generation."""
        group = getattr(self, "coordinator", None) and self.coordinator.shard.groups.get(GROUP)
        if not isinstance(group, ConsumerGroup):
            return
        owners = {}
        for member in self.alive:
            known = group.members.get(member.id)
            epoch = member.generation if isinstance(member, ClassicConsumer) else member.epoch
            if known is not None and epoch in (known.at.epoch, known.at.previous_epoch):
                for partition in member.owned:
                    assert owners.setdefault(partition, member) is member


def test_members_of_both_protocols_share_a_group_whatever_befalls_them():
    limits = settings(max_examples=25, stateful_step_count=25, deadline=None)
    run_state_machine_as_test(Mixed, settings=limits)
