import itertools

import pytest
from hypothesis import Phase, settings
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
from kserver.group import reconciliation
from kserver.group.consumer_events import ConsumerGroupPartitionMetadata
from kserver.group.consumer_requests import DescribeConsumerGroup
from kserver.group.requests import DeleteGroup, DescribeGroup, ListedGroup, ListGroups
from tests.support.consumer_groups import GROUP, REBALANCE_MS, Consumer, Coordinator

SUBSCRIPTIONS = [("t",), ("t", "u"), ("u",), ("v", "missing")]
PATTERNS = ["t|u", ".*", "v.*"]
ROUNDS = 12
"""Heartbeats of all members after which nothing moves any more, if nothing happens between."""


def coordinator(**config):
    made = Coordinator(**{"group_consumer_assignment_interval_ms": 0} | config)
    made.set_topic("t", 4)
    return made


def settle(coordinator, *members):
    for _ in range(ROUNDS):
        for member in members:
            member.beat()


def refused(code, ask, *args):
    with pytest.raises(KafkaError) as error:
        ask(*args)
    assert error.value.code is code
    return error.value.message


def test_partitions_are_given_on_only_once_they_are_given_back():
    c = coordinator()
    first, second = Consumer(c, "a"), Consumer(c, "b")
    first.beat()
    assert first.owned == c.partitions("t")
    second.beat()
    assert not second.owned
    first.beat(lags=True)  # it is told to give two back, and does not yet
    assert len(first.told) == 2
    second.beat()
    assert not second.owned
    first.reconcile()
    second.beat()
    assert not second.owned  # nobody said so yet
    first.beat()
    second.beat()
    assert second.owned == c.partitions("t") - first.owned
    assert c.group.state_name == "Stable"


def test_who_does_not_give_back_in_its_time_is_out():
    c = coordinator(group_consumer_session_timeout_ms=10 * REBALANCE_MS)
    first, second = Consumer(c, "a"), Consumer(c, "b")
    first.beat()
    second.beat()
    first.beat(lags=True)
    c.advance(REBALANCE_MS - 1)
    first.beat(lags=True)
    assert "a" in c.group.members
    c.advance(1)
    assert "a" not in c.group.members
    second.beat()
    assert second.owned == c.partitions("t")


def test_the_time_to_give_back_begins_anew_when_the_group_is_loaded():
    c = coordinator(group_consumer_session_timeout_ms=10 * REBALANCE_MS)
    first, second = Consumer(c, "a"), Consumer(c, "b")
    first.beat()
    second.beat()
    first.beat(lags=True)
    c.advance(REBALANCE_MS - 1)
    c.reload()
    c.advance(REBALANCE_MS - 1)
    first.beat(lags=True)
    assert "a" in c.group.members
    c.advance(1)
    assert "a" not in c.group.members


def test_who_is_silent_for_its_session_is_out():
    c = coordinator()
    member = Consumer(c, "a")
    member.beat()
    c.advance(44_999)
    assert c.group.members
    c.advance(1)
    assert c.group.state_name == "Empty"


def test_sessions_begin_anew_when_the_group_is_loaded():
    c = coordinator()
    Consumer(c, "a").beat()
    c.advance(40_000)
    c.reload()
    c.advance(44_999)
    assert c.group.members
    c.advance(1)
    assert not c.group.members


def test_a_group_s_own_settings_count():
    c = coordinator()
    c.image = c.image.with_group_config(GROUP, {"consumer.session.timeout.ms": "60000"})
    c.set_topic("u", 1)
    Consumer(c, "a").beat()
    c.advance(59_999)
    assert c.group.members
    c.advance(1)
    assert not c.group.members


def test_targets_are_computed_no_more_often_than_is_said():
    c = coordinator(group_consumer_assignment_interval_ms=1000)
    first, second = Consumer(c, "a"), Consumer(c, "b")
    first.beat()
    c.advance(999)
    second.beat()
    assert c.group.state_name == "Assigning"
    assert not c.group.target("b")
    c.advance(1)
    second.beat()
    assert len(c.group.target("b")) == 2


def test_what_is_unsubscribed_is_given_back_before_there_are_new_targets():
    c = coordinator(group_consumer_assignment_interval_ms=1000)
    c.set_topic("u", 2)
    member = Consumer(c, "a", ("t", "u"))
    member.beat()
    assert member.owned == c.partitions("t", "u")
    member.topics, member.is_to_say_all = ("u",), True
    member.beat()
    assert member.told == c.partitions("u")
    assert c.group.state_name == "Assigning"


def test_an_answer_that_was_lost_is_given_again():
    c = coordinator()
    member, other = Consumer(c, "a"), Consumer(c, "b")
    member.beat()
    other.beat()
    member.beat()
    member.beat(is_lost=True)  # the answer that it is in the new epoch
    assert member.epoch < c.group.members["a"].at.epoch
    heard = member.beat()
    assert heard.epoch == member.epoch == c.group.epoch


def test_an_assignment_whose_response_was_lost_is_sent_again_even_if_the_request_is_not_full():
    c = coordinator()
    member, other = Consumer(c, "a"), Consumer(c, "b")
    settle(c, member, other)
    other.leave()
    member.beat(is_lost=True)
    assert c.group.members["a"].at.assigned.keys() == c.partitions("t")
    member.is_to_say_all = False  # the Java client would send a full request
    member.beat()
    assert member.epoch == c.group.epoch
    assert member.owned == c.partitions("t")


def test_an_epoch_whose_answers_are_lost_again_and_again_is_still_the_next():
    """Meanwhile the member is given more in that epoch, piece by piece."""
    c = coordinator()
    c.set_topic("t", 6)
    member, *others = Consumer(c, "a", ("v",)), Consumer(c, "b"), Consumer(c, "c")
    settle(c, member, *others)
    epoch = member.epoch
    member.topics, member.is_to_say_all = ("t",), True
    member.beat(is_lost=True)
    for other in others:
        other.beat()
        other.beat()
        member.beat(is_lost=True)
        assert member.epoch == epoch < c.group.members["a"].at.epoch, "it is not fenced"
    assert member.beat().epoch == c.group.epoch
    assert member.owned == c.partitions("t") - others[0].owned - others[1].owned


def test_a_member_behind_that_has_more_than_it_was_left_is_fenced():
    c = coordinator()
    member, other = Consumer(c, "a"), Consumer(c, "b")
    member.beat()
    had = member.owned
    other.beat()
    member.beat()
    member.beat(is_lost=True)
    member.owned = had
    refused(ErrorCode.fenced_member_epoch, c.ask, member.request())


def test_a_member_that_joins_again_is_told_what_it_has():
    c = coordinator()
    member = Consumer(c, "a")
    member.beat()
    member.start_anew()
    assert member.beat().assigned == c.partitions("t")


def test_there_are_no_more_members_than_there_may_be():
    c = coordinator(group_consumer_max_size=1)
    first = Consumer(c, "a")
    first.beat()
    text = refused(ErrorCode.group_max_size_reached, Consumer(c, "b").beat)
    assert "maximum capacity of 1 members" in text
    first.beat()


def test_the_assignor_that_most_ask_for_is_taken():
    c = coordinator()
    c.set_topic("u", 4)
    topics = ("t", "u")
    members = [
        Consumer(c, "a", topics, assignor="range"),
        Consumer(c, "b", topics, assignor="range"),
        Consumer(c, "c", topics, assignor="uniform"),
    ]
    settle(c, *members)
    sizes = sorted(len(member.owned) for member in members)
    assert sizes == [2, 2, 4]  # uniform would have it 2, 3, 3


def test_topics_that_come_grow_and_go_are_followed():
    c = coordinator()
    named, matching = Consumer(c, "a", ("t", "u")), Consumer(c, "b", None, pattern="t|u.*")
    settle(c, named, matching)
    epoch = c.group.epoch
    for topic, partitions in [("u", 2), ("u2", 3), ("t", 6), ("u", 0)]:
        c.set_topic(topic, partitions)
        settle(c, named, matching)
        epoch += 1
        assert c.group.epoch == epoch
        assert named.owned | matching.owned == c.partitions("t", "u", "u2")
    c.set_topic("other", 1)
    settle(c, named, matching)
    assert c.group.epoch == epoch


def test_a_pattern_that_nobody_has_any_more_is_forgotten():
    c = coordinator()
    member = Consumer(c, "a", None, pattern="t.*")
    member.beat()
    assert c.group.patterns == {"t.*": {"t"}}
    member.topics, member.pattern, member.is_to_say_all = ("t",), "", True
    member.beat()
    assert not c.group.patterns


def test_a_bad_pattern_changes_nothing():
    c = coordinator()
    member = Consumer(c, "a", None, pattern="t.*", instance_id="i")
    member.beat()
    before = c.group.snapshot()
    member.pattern, member.is_to_say_all = "[", True
    refused(ErrorCode.invalid_regular_expression, member.beat)
    assert c.group.snapshot() == before


def test_what_an_older_broker_kept_of_topics_is_dropped_with_the_next_epoch():
    c = coordinator()
    c.shard.replay(ConsumerGroupPartitionMetadata(GROUP, True))
    Consumer(c, "a").beat()
    assert not c.group.has_topics_record


def test_a_static_member_that_will_be_back_keeps_its_partitions_as_long_as_its_session():
    c = coordinator()
    leaving, other = Consumer(c, "a", instance_id="i"), Consumer(c, "b")
    settle(c, leaving, other)
    had = leaving.owned
    leaving.leave_for_a_while()
    settle(c, other)
    assert not had & other.owned
    c.advance(30_000)
    other.beat()
    c.advance(30_000)
    settle(c, other)
    assert other.owned == c.partitions("t")


def test_commits_are_let_in_by_epoch_and_by_partition():
    c = coordinator()
    member, other = Consumer(c, "a"), Consumer(c, "b")
    member.beat()
    first_epoch = member.epoch
    other.beat()
    settle(c, member, other)
    group, (kept, *_), (lost, *_) = c.group, sorted(member.owned), sorted(other.owned)
    assert group.check_commit("a", None, member.epoch, transactional=False) is None
    check = group.check_commit("a", None, first_epoch, transactional=False)
    assert check(*kept) is ErrorCode.none
    assert check(*lost) is ErrorCode.stale_member_epoch

    def commit(member_id, epoch, *, transactional=False, knows=True):
        return group.check_commit(
            member_id,
            None,
            epoch,
            transactional=transactional,
            knows_stale_member_epoch=knows,
        )

    refused(ErrorCode.stale_member_epoch, commit, "a", member.epoch + 1)
    refused(ErrorCode.unknown_member_id, commit, "x", 1)
    refused(ErrorCode.unknown_member_id, commit, "", -1)
    assert commit("", -1, transactional=True) is None
    with pytest.raises(KafkaError) as old:
        commit("a", member.epoch, knows=False)
    assert old.value.code is ErrorCode.unsupported_version
    refused(ErrorCode.stale_member_epoch, group.check_fetch, "a", first_epoch)
    group.check_fetch("a", member.epoch)
    group.check_fetch(None, -1)


def test_a_group_is_listed_as_what_it_is():
    c = coordinator()
    Consumer(c, "a").beat()
    (listed,) = c.ask(ListGroups(frozenset({"stable"}), frozenset({"consumer"})))
    assert listed == ListedGroup(GROUP, "consumer", "Stable", "consumer")
    assert not c.ask(ListGroups(frozenset(), frozenset({"classic"})))
    refused(ErrorCode.group_id_not_found, c.ask, DescribeGroup(GROUP))


def test_a_group_is_deleted_with_all_that_was_kept_of_it():
    c = coordinator()
    member = Consumer(c, "a", None, pattern="t.*")
    member.beat()
    refused(ErrorCode.non_empty_group, c.ask, DeleteGroup(GROUP))
    member.leave()
    c.ask(DeleteGroup(GROUP))
    assert GROUP not in c.shard.groups
    last = dict(c.log)
    assert not any(last.values())
    refused(ErrorCode.group_id_not_found, c.ask, DescribeConsumerGroup(GROUP))


class Members(RuleBasedStateMachine):
    """Members come, go, lag and lose answers; topics grow; the coordinator is loaded anew."""

    consumers = Bundle("consumers")

    @initialize(interval_ms=st.sampled_from([0, 1000]))
    def begin(self, interval_ms):
        self.coordinator = Coordinator(group_consumer_assignment_interval_ms=interval_ms)
        self.coordinator.set_topic("t", 4)
        self.coordinator.set_topic("u", 3)
        self.alive = []
        self.numbers = itertools.count(1)

    def add(self, consumer):
        self.alive.append(consumer)
        consumer.beat()
        return consumer

    @rule(
        target=consumers,
        topics=st.sampled_from(SUBSCRIPTIONS),
        assignor=st.sampled_from([None, None, "uniform", "range"]),
    )
    def join(self, topics, assignor):
        member_id = f"m{next(self.numbers)}"
        return self.add(Consumer(self.coordinator, member_id, topics, assignor=assignor))

    @rule(target=consumers, pattern=st.sampled_from(PATTERNS))
    def join_by_pattern(self, pattern):
        member_id = f"p{next(self.numbers)}"
        return self.add(Consumer(self.coordinator, member_id, None, pattern=pattern))

    @rule(target=consumers)
    def join_as_static_member(self):
        number = next(self.numbers)
        return self.add(Consumer(self.coordinator, f"s{number}", instance_id=f"i{number}"))

    @rule(consumer=consumers, is_lost=st.booleans(), lags=st.booleans())
    def beat(self, consumer, is_lost, lags):
        consumer.beat(is_lost=is_lost, lags=lags)

    @rule(consumer=consumers)
    def reconcile(self, consumer):
        consumer.reconcile()

    @rule(consumer=consumers, topics=st.sampled_from(SUBSCRIPTIONS))
    def subscribe_to_others(self, consumer, topics):
        consumer.topics, consumer.pattern = topics, ""
        consumer.is_to_say_all = True
        consumer.beat()

    @rule(consumer=consumes(consumers))
    def leave(self, consumer):
        self.alive.remove(consumer)
        if consumer.id in self.known():
            consumer.leave()

    @rule(consumer=consumes(consumers))
    def crash(self, consumer):
        self.alive.remove(consumer)

    @rule(target=consumers, consumer=consumes(consumers))
    def come_back_under_another_id(self, consumer):
        if consumer.instance_id is None or consumer.id not in self.known():
            return consumer
        consumer.leave_for_a_while()
        self.alive.remove(consumer)
        again = Consumer(
            self.coordinator,
            f"s{next(self.numbers)}",
            consumer.topics,
            pattern=consumer.pattern,
            instance_id=consumer.instance_id,
        )
        return self.add(again)

    @rule(name=st.sampled_from(["t", "u", "v", "v2"]), partitions=st.integers(0, 6))
    def change_topic(self, name, partitions):
        known = self.coordinator.image.topics.get(name)
        if not partitions or known is None or partitions > len(known.partitions):
            self.coordinator.set_topic(name, partitions)

    @rule(ms=st.sampled_from([1, 500, 1000, 5000, 20_000, 46_000]))
    def pass_time(self, ms):
        self.coordinator.advance(ms)

    @rule()
    def reload(self):
        self.coordinator.reload()

    @rule()
    def settle(self):
        """Once all have been heard a few times, each has its target, and all is owned."""
        for _ in range(ROUNDS):
            self.coordinator.advance(1000)
            for consumer in self.alive:
                consumer.beat()
        self.coordinator.advance(46_000 - 1000 * ROUNDS)  # whoever crashed is out
        for _ in range(ROUNDS):
            self.coordinator.advance(1000)
            for consumer in self.alive:
                consumer.beat()
        if not self.alive:
            return
        group = self.coordinator.group
        assert group.state_name == "Stable"
        assert group.members.keys() == {consumer.id for consumer in self.alive}
        for consumer in self.alive:
            assert consumer.owned == group.target(consumer.id)
        owned = frozenset().union(*(consumer.owned for consumer in self.alive))
        assert owned == self.coordinator.partitions(*group.all_subscribed_topics())

    def known(self):
        group = self.coordinator.shard.groups.get(GROUP)
        return () if group is None else group.members

    @invariant()
    def no_partition_has_two_owners(self):
        """By what members were told and have not given back, as long as they are members."""
        owners = {}
        for consumer in getattr(self, "alive", []):
            member = self.known() and self.known().get(consumer.id)
            if member and consumer.epoch in (member.at.epoch, member.at.previous_epoch):
                for partition in consumer.owned:
                    assert owners.setdefault(partition, consumer.id) == consumer.id
                    assert partition in {*member.at.assigned, *member.at.revoking}

    @invariant()
    def who_owns_a_partition_may_commit_it(self):
        """Also when it was not told yet that its epoch has changed."""
        for consumer in getattr(self, "alive", []):
            member = self.known() and self.known().get(consumer.id)
            if member and 0 < consumer.epoch <= member.at.epoch:
                check = self.coordinator.group.check_commit(
                    consumer.id, None, consumer.epoch, transactional=False
                )
                for partition in consumer.owned & {*member.at.assigned, *member.at.revoking}:
                    assert check is None or check(*partition) is ErrorCode.none


LIMITS = settings(max_examples=25, stateful_step_count=30, deadline=None)
PLANTED = settings(LIMITS, max_examples=200, phases=[Phase.generate], derandomize=True)


def test_one_owner_at_a_time_and_all_is_owned_in_the_end():
    run_state_machine_as_test(Members, settings=LIMITS)


def test_that_test_sees_a_member_that_is_given_what_another_still_has(monkeypatch):
    planted = reconciliation._toward
    monkeypatch.setattr(
        reconciliation, "_toward", lambda now, goal, owned, free: planted(now, goal, owned, bool)
    )
    with pytest.raises((AssertionError, BaseExceptionGroup)):
        run_state_machine_as_test(Members, settings=PLANTED)


def test_that_test_sees_a_member_that_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(reconciliation, "_has_any", lambda owned, partitions: False)
    with pytest.raises((AssertionError, BaseExceptionGroup)):
        run_state_machine_as_test(Members, settings=PLANTED)
