"""Random lives of one group: whatever happens, its invariants hold, nobody is answered twice, and
what was kept is there again."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from kserver.errors import ErrorCode
from kserver.group.group import DEAD, EMPTY, VALID_PREVIOUS_STATES, ClassicGroupState
from kserver.group.requests import DeleteGroup, DeleteOffsets, JoinGroupResult, SyncGroupResult
from tests.support.classic_groups import (
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    Groups,
    commit,
    commit_in_transaction,
    heartbeat,
    join,
    leave,
    subscription,
    sync,
)

PLACES = st.integers(0, 4)
"""Of members, in the order in which they came; those that are not there are nobody's."""
PARTITIONS = st.tuples(st.sampled_from("tu"), st.integers(0, 2))
PROTOCOLS = [("range", subscription("t")), ("sticky", subscription("u")), ("sticky", b"")]
TIMES_MS = [0, 1, 1000, 3000, SESSION_MS - 1, SESSION_MS, REBALANCE_MS, 600_000, 86_400_000]


def test_every_state_is_reached_and_left_but_the_last():
    assert set(VALID_PREVIOUS_STATES) == set(ClassicGroupState)
    assert {before for states in VALID_PREVIOUS_STATES.values() for before in states} == set(
        ClassicGroupState
    )
    assert not any(
        DEAD in states for state, states in VALID_PREVIOUS_STATES.items() if state is not DEAD
    )
    assert VALID_PREVIOUS_STATES[DEAD] >= {EMPTY}


class Life(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.groups = Groups(group_max_size=4, offsets_retention_minutes=60)
        self.joins = {}
        """Tickets of joins that were not looked at yet, with who sent them."""
        self.syncs = {}
        self.members = []
        """As they were told last that they are."""

    def one(self, place):
        if place < len(self.members):
            return self.members[place]
        return JoinGroupResult("nobody", generation=1, leader="other")

    def send_join(self, request):
        self.joins[self.groups.send(request)] = request.member_id

    @rule(
        protocols=st.lists(st.sampled_from(PROTOCOLS), min_size=1, max_size=2),
        instance_id=st.sampled_from([None, None, "i", "j"]),
        must_know_id=st.booleans(),
        may_skip=st.booleans(),
        timeouts=st.sampled_from([(SESSION_MS, REBALANCE_MS), (30_000, 8000)]),
    )
    def come(self, protocols, instance_id, must_know_id, may_skip, timeouts):
        session_ms, rebalance_ms = timeouts
        request = join(
            protocols=tuple(protocols),
            instance_id=instance_id,
            must_know_id=must_know_id,
            may_skip_assignment=may_skip,
            session_ms=session_ms,
            rebalance_ms=rebalance_ms,
        )
        self.send_join(request)

    @rule(place=PLACES, protocol=st.sampled_from(PROTOCOLS[:2]))
    def come_again(self, place, protocol):
        self.send_join(join(self.one(place).member_id, protocols=(protocol,)))

    @rule(place=PLACES)
    def ask_for_its_part(self, place):
        one = self.one(place)
        assignments = None
        if one.member_id == one.leader:
            assignments = {m.id: f"{one.generation} {m.id}".encode() for m in one.members}
        self.syncs[self.groups.send(sync(one, assignments))] = one

    @rule()
    def all_ask_for_their_parts(self):
        for place in range(len(self.members)):
            self.ask_for_its_part(place)

    @rule(place=PLACES)
    def beat(self, place):
        self.groups.send(heartbeat(self.one(place)))

    @rule(place=PLACES, instance_id=st.sampled_from([None, None, "i"]))
    def go(self, place, instance_id):
        member_id = self.one(place).member_id if instance_id is None else ""
        self.groups.send(leave((member_id, instance_id)))

    @rule(place=PLACES | st.none(), at=PARTITIONS, offset=st.integers(0, 99))
    def commit(self, place, at, offset):
        one = None if place is None else self.one(place)
        self.groups.send(commit((*at, offset), joined=one))

    @rule(producer=st.integers(0, 2), at=PARTITIONS, offset=st.integers(0, 99))
    def commit_in_transaction(self, producer, at, offset):
        self.groups.send(commit_in_transaction(producer, (*at, offset)))

    @rule(producer=st.integers(0, 2), committed=st.booleans())
    def end_transaction(self, producer, committed):
        self.groups.end_transaction(producer, committed=committed)

    @rule(at=PARTITIONS)
    def delete_offset(self, at):
        self.groups.send(DeleteOffsets(GROUP, [at]))

    @rule()
    def delete(self):
        self.groups.send(DeleteGroup(GROUP))

    @rule(names=st.sampled_from(["t", "u", "tu"]))
    def change_topics(self, names):
        self.groups.set_topics(*names)

    @rule(ms=st.sampled_from(TIMES_MS))
    def wait(self, ms):
        self.groups.advance(ms)

    @rule()
    def reload(self):
        self.groups.reload()
        self.joins, self.syncs = {}, {}

    @invariant()
    def answers_are_what_was_asked_for(self):
        answers = self.groups.answers
        for ticket in self.joins.keys() & answers.keys():
            joined = answers[ticket]
            asked = self.joins.pop(ticket)
            assert asked in ("", joined.member_id) or joined.error is not ErrorCode.none
            if joined.error is ErrorCode.none:
                known = [m for m in self.members if m.member_id != joined.member_id]
                self.members = [joined, *known][:5]
                assert joined.generation > 0
            elif joined.error is ErrorCode.member_id_required:
                self.members = [joined, *self.members][:5]
        for ticket in self.syncs.keys() & answers.keys():
            one = self.syncs.pop(ticket)
            answer = answers[ticket]
            if isinstance(answer, SyncGroupResult) and answer.assignment:
                # Nobody reads by another generation's assignment.
                generation, member_id = answer.assignment.decode().split(" ", 1)
                assert int(generation) == one.generation
                assert member_id == one.member_id or one.leader == "" or "-" in member_id

    @invariant()
    def everyone_is_answered_in_the_end(self):
        waits_to_join = set(self.joins) - set(self.groups.answers)
        waits_to_sync = set(self.syncs) - set(self.groups.answers)
        group = self.groups.shard.groups.get(GROUP)
        members = [] if group is None else group.members.values()
        assert waits_to_join == {m.join_ticket for m in members} - {None}
        assert waits_to_sync == {m.sync_ticket for m in members} - {None}

    def teardown(self):
        self.groups.advance(3 * 86_400_000)
        assert not set(self.joins) - set(self.groups.answers)
        assert not set(self.syncs) - set(self.groups.answers)
        self.groups.reload()
        super().teardown()


def test_a_group_lives_through_whatever_happens():
    run_state_machine_as_test(Life, settings=settings(max_examples=60, stateful_step_count=50))
