import uuid

import pytest

from kserver.config.setting import MINUTE_MS
from kserver.coordinator.shard import MAX_BATCH_BYTES
from kserver.errors import ErrorCode, KafkaError
from kserver.group.consumer_events import ConsumerGroupMetadata
from kserver.group.events import OffsetDeleted
from kserver.group.group import EMPTY
from kserver.group.requests import (
    Commit,
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    FetchedOffset,
    FetchOffsets,
    ListedGroup,
    ListGroups,
)
from kserver.group.shard import MAX_DELETED
from tests.support.classic_groups import (
    GROUP,
    SESSION_MS,
    Groups,
    commit,
    commit_in_transaction,
    fetched,
    heartbeat,
    join,
    leave,
    stable,
    subscription,
    sync,
)

HOUR_MS = 60 * MINUTE_MS
NOTHING = FetchedOffset(0)


def code(call, *arguments):
    with pytest.raises(KafkaError) as caught:
        call(*arguments)
    return caught.value.code


def forgetful(**settings):
    """Offsets are kept for an hour, and looked through every minute."""
    interval = {"offsets_retention_check_interval_ms": MINUTE_MS}
    return Groups(offsets_retention_minutes=60, **interval, **settings)


# Committed and fetched


def test_the_last_commit_counts():
    groups = Groups()
    assert fetched(groups) == NOTHING
    assert groups.ask(commit(("t", 0, 5), ("t", 1, 6))) == [ErrorCode.none] * 2
    groups.ask(commit(("t", 0, 3)))
    groups.reload()
    assert fetched(groups).offset == 3
    request = FetchOffsets(GROUP, None)
    assert groups.ask(request) == [("t", [FetchedOffset(0, 3), FetchedOffset(1, 6)])]
    assert groups.ask(request._replace(group_id="other")) == []


def test_a_commit_says_more_than_an_offset():
    groups = Groups()
    one = Commit("t", uuid.UUID(int=sum(b"t")), 0, 5, 7, "m")
    groups.ask(CommitOffsets(GROUP, -1, "", None, [one, one._replace(partition=1, metadata=None)]))
    assert fetched(groups) == FetchedOffset(0, 5, 7, "m")
    assert fetched(groups, partition=1).metadata == ""


def test_too_long_a_text_refuses_that_partition_alone():
    groups = Groups(offset_metadata_max_bytes=3)
    commits = [Commit("t", uuid.UUID(int=0), n, 5, -1, "m" * (3 + n)) for n in (0, 1)]
    codes = groups.ask(CommitOffsets(GROUP, -1, "", None, commits))
    assert codes == [ErrorCode.none, ErrorCode.offset_metadata_too_large]
    assert fetched(groups, partition=1) == FetchedOffset(1)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"generation": 2}, ErrorCode.illegal_generation),
        ({"member_id": "other"}, ErrorCode.unknown_member_id),
        ({"generation": -1, "member_id": ""}, ErrorCode.unknown_member_id),
        ({"instance_id": "i"}, ErrorCode.unknown_member_id),
        ({"group_id": "other"}, ErrorCode.group_id_not_found),
        ({"group_id": "other", "knows_group_id_not_found": False}, ErrorCode.illegal_generation),
    ],
)
def test_only_members_of_this_generation_commit_where_there_are_members(fields, error):
    groups = Groups()
    (one,) = stable(groups, join())
    request = commit(("t", 0, 1), joined=one)
    assert code(groups.ask, request._replace(**fields)) is error
    assert groups.ask(request) == [ErrorCode.none]


def test_before_they_have_their_parts_members_do_not_commit():
    groups = Groups()
    (one,) = stable(groups, join())
    joined = groups.ask(join(one.member_id))
    error = code(groups.ask, commit(("t", 0, 1), joined=joined))
    assert error is ErrorCode.rebalance_in_progress
    groups.ask(sync(joined, {}))
    assert groups.ask(commit(("t", 0, 1), joined=joined)) == [ErrorCode.none]


def test_members_commit_while_a_rebalance_waits_for_them():
    groups = Groups()
    (one,) = stable(groups, join())
    groups.send(join())
    assert groups.ask(commit(("t", 0, 1), joined=one)) == [ErrorCode.none]


def test_who_takes_no_part_in_groups_makes_one_that_is_empty():
    groups = Groups()
    groups.ask(commit(("t", 0, 1)))
    everything = ListGroups(frozenset(), frozenset())
    listed = [ListedGroup(GROUP, "", "Empty", "classic")]
    assert groups.ask(everything) == listed
    groups.reload()
    assert groups.ask(everything) == listed
    (one,) = stable(groups, join())
    assert groups.ask(heartbeat(one)) is None


# Deleted


def test_offsets_of_topics_that_no_member_reads_are_deleted_on_demand():
    groups = Groups()
    (one,) = stable(groups, join())
    groups.ask(commit(("t", 0, 1), ("u", 0, 2), joined=one))
    asked = DeleteOffsets(GROUP, [("t", 0), ("u", 0), ("u", 1)])
    assert groups.ask(asked) == [ErrorCode.group_subscribed_to_topic, *[ErrorCode.none] * 2]
    groups.reload()
    assert fetched(groups).offset == 1
    assert fetched(groups, "u") == NOTHING
    assert groups.values()[-1] == OffsetDeleted(GROUP, "u", 0), "the other never was"


@pytest.mark.parametrize("kind", ["connect", "consumer"])
def test_while_it_is_not_known_what_members_read_nothing_is_deleted(kind):
    groups = Groups()
    protocols = (("range", b"what is this"),)
    (one,) = stable(groups, join(protocol_type=kind, protocols=protocols))
    groups.ask(commit(("t", 0, 1), joined=one))
    asked = DeleteOffsets(GROUP, [("t", 0)])
    if kind == "consumer":
        assert groups.ask(asked) == [ErrorCode.group_subscribed_to_topic]
    else:
        assert code(groups.ask, asked) is ErrorCode.non_empty_group
    groups.ask(leave(one.member_id))
    if kind == "connect":
        assert groups.ask(asked) == [ErrorCode.none]


def test_a_group_is_deleted_with_its_offsets_once_it_is_empty():
    groups = Groups()
    (one,) = stable(groups, join())
    groups.ask(commit(("t", 0, 1), joined=one))
    assert code(groups.ask, DeleteGroup(GROUP)) is ErrorCode.non_empty_group
    groups.ask(leave(one.member_id))
    group = groups.group
    assert groups.ask(DeleteGroup(GROUP)) is None
    assert group.state_name == "Dead"
    groups.reload()
    assert not groups.shard.groups
    assert not groups.shard.offsets
    for request in (DeleteGroup(GROUP), DeleteOffsets(GROUP, [])):
        assert code(groups.ask, request) is ErrorCode.group_id_not_found


# Forgotten in time


def test_offsets_of_who_takes_no_part_in_groups_are_kept_from_each_commit_on():
    groups = forgetful()
    groups.ask(commit(("t", 0, 1)))
    groups.advance(HOUR_MS // 2)
    groups.ask(commit(("t", 1, 1)))
    groups.advance(HOUR_MS // 2)
    assert (fetched(groups).offset, fetched(groups, partition=1).offset) == (-1, 1)
    groups.advance(HOUR_MS // 2)
    assert not groups.shard.groups
    groups.reload()
    assert not groups.shard.groups


def test_while_there_are_members_offsets_of_what_they_read_are_kept():
    groups = forgetful()
    (one,) = stable(groups, join())
    groups.ask(commit(("t", 0, 1), ("u", 0, 1), joined=one))
    for _ in range(3 * HOUR_MS // (SESSION_MS - 1)):
        groups.advance(SESSION_MS - 1)
        groups.ask(heartbeat(one))
    assert fetched(groups).offset == 1
    assert fetched(groups, "u").offset == -1, "nobody reads it"


def test_of_an_empty_group_everything_is_kept_from_its_end_on():
    groups = forgetful()
    (one,) = stable(groups, join())
    groups.ask(commit(("t", 0, 1), joined=one))
    for _ in range(HOUR_MS // (SESSION_MS - 1)):
        groups.advance(SESSION_MS - 1)
        groups.ask(heartbeat(one))
    groups.ask(leave(one.member_id))
    assert groups.group.state is EMPTY
    groups.advance(HOUR_MS - MINUTE_MS)
    groups.reload()
    assert fetched(groups).offset == 1
    groups.advance(2 * MINUTE_MS)
    assert not groups.shard.groups


def test_of_groups_that_are_no_consumers_everything_is_kept_while_there_are_members():
    groups = forgetful()
    (one,) = stable(groups, join(protocol_type="connect", protocols=(("v", b""),)))
    groups.ask(commit(("u", 0, 1), joined=one))
    for _ in range(3 * HOUR_MS // (SESSION_MS - 1)):
        groups.advance(SESSION_MS - 1)
        groups.ask(heartbeat(one))
    assert fetched(groups, "u").offset == 1


def test_a_commit_may_say_itself_how_long_it_is_kept():
    groups = forgetful()
    groups.ask(commit(("t", 0, 1), retention_ms=5 * MINUTE_MS))
    groups.ask(commit(("t", 1, 1), retention_ms=100 * HOUR_MS))
    groups.reload()
    groups.advance(6 * MINUTE_MS)
    assert fetched(groups).offset == -1
    groups.advance(10 * HOUR_MS)
    assert fetched(groups, partition=1).offset == 1


def test_an_id_that_was_given_out_for_a_new_group_is_no_group_for_long():
    groups = forgetful()
    groups.ask(join(must_know_id=True, protocols=(("range", subscription("t")),)))
    assert GROUP in groups.shard.groups
    groups.advance(2 * MINUTE_MS)
    assert not groups.shard.groups


# Topics that go


def test_offsets_go_with_their_topic_whoever_is_there():
    groups = Groups()
    (one,) = stable(groups, join())
    groups.ask(commit(("t", 0, 1), ("u", 0, 2), joined=one))
    groups.ask(commit_in_transaction(7, ("t", 1, 1)))
    groups.set_topics("u")
    groups.end_transaction(7, committed=True)
    groups.reload()
    assert groups.ask(FetchOffsets(GROUP, None)) == [("u", [FetchedOffset(0, 2)])]


def test_offsets_go_with_their_topic_when_another_has_its_name_by_now():
    groups = Groups()
    before = groups.image.topics["t"].id
    kept = CommitOffsets(GROUP, -1, "", None, [Commit("t", before, 0, 1, -1, "")])
    groups.ask(kept)
    for _ in range(2):
        groups.set_topics("t", "u")
        assert fetched(groups).offset == 1
    groups.set_topics("t", "u", id_of={"t": 99})
    assert fetched(groups) == NOTHING
    groups.ask(kept)
    groups.set_topics("t", "u")
    assert fetched(groups).offset == 1


def test_what_went_while_no_coordinator_was_there_is_deleted_when_it_is_loaded():
    groups = Groups()
    groups.ask(commit(("t", 0, 1)))
    groups.image = groups.image.with_topics({}, frozenset({"t"}))
    groups.reload()
    assert fetched(groups) == NOTHING


def test_offsets_stay_while_their_topic_is_not_named():
    """Its znodes may be unreadable, and then it is there again."""
    groups = Groups()
    groups.ask(commit(("t", 0, 1), ("u", 0, 1)))
    topic = groups.image.topics["t"]
    groups.set_image(groups.image.with_topics({}, unnamed={"t"}))
    assert fetched(groups).offset == 1
    groups.reload()
    groups.set_image(groups.image.with_topics({"t": topic}))
    assert fetched(groups).offset == 1
    groups.set_image(groups.image.with_topics({}, {"t"}))
    assert fetched(groups) == NOTHING


def test_many_offsets_are_deleted_in_steps_of_which_each_fits_into_a_batch():
    groups = Groups(offsets_retention_minutes=1)
    many = 2 * MAX_DELETED + 1
    groups.ask(commit(*[("t", n, 1) for n in range(many)]))
    groups.ask(commit(*[("u", n, 1) for n in range(many)]))
    before = len(groups.log)
    groups.set_topics("u")
    assert len(groups.log) == before + MAX_DELETED
    groups.advance(0)
    assert len(groups.shard.offsets) == many
    groups.advance(groups.config.offsets_retention_check_interval_ms)
    assert not groups.shard.groups


class Steps(Groups):
    """Groups that know what was decided in one go."""

    def __init__(self, **settings):
        self.steps = []
        super().__init__(**settings)

    def _carry_out(self, outcome):
        self.steps.append(outcome.events)
        super()._carry_out(outcome)


def test_however_long_the_names_what_is_deleted_in_a_step_fits_into_a_batch():
    groups = Steps(offsets_retention_minutes=1)
    ids = [f"{n}".ljust(30_000, "g") for n in range(20)]
    for group_id in ids:
        groups.ask(commit(("t", 0, 1), ("u", 0, 1), group_id=group_id))
    groups.steps.clear()
    groups.set_topics("u")
    groups.advance(0)
    assert len(groups.shard.offsets) == len(ids)
    groups.advance(groups.config.offsets_retention_check_interval_ms)
    assert not groups.shard.groups
    sizes = [sum(len(event.encode()[0]) for event in events) for events in groups.steps]
    assert sum(sizes) > 3 * len(ids) * 30_000
    assert max(sizes) <= MAX_BATCH_BYTES


def test_groups_that_nothing_is_left_of_go_in_such_steps_too():
    groups = Steps(offsets_retention_check_interval_ms=MINUTE_MS)
    for n in range(MAX_DELETED):
        groups.shard.replay(ConsumerGroupMetadata(f"g{n}", 1))
    groups.advance(2 * MINUTE_MS)
    assert not groups.shard.groups
    assert max(map(len, groups.steps)) == MAX_DELETED


# In transactions


@pytest.mark.parametrize("committed", [True, False])
def test_what_a_transaction_commits_counts_once_it_is_committed(committed):
    groups = Groups()
    groups.ask(commit(("t", 0, 1)))
    assert groups.ask(commit_in_transaction(7, ("t", 0, 2), ("t", 1, 3))) == [ErrorCode.none] * 2
    groups.reload()
    assert fetched(groups).offset == 1
    for partition in (0, 1):
        unstable = FetchedOffset(partition, error=ErrorCode.unstable_offset_commit)
        assert fetched(groups, partition=partition, require_stable=True) == unstable
    groups.end_transaction(8, committed=True)
    groups.end_transaction(7, committed=committed)
    groups.reload()
    assert fetched(groups, require_stable=True).offset == (2 if committed else 1)
    assert fetched(groups, partition=1, require_stable=True).offset == (3 if committed else -1)


def test_of_two_commits_the_later_one_stays_whenever_its_transaction_ends():
    groups = Groups()
    groups.ask(commit_in_transaction(7, ("t", 0, 1)))
    groups.ask(commit_in_transaction(8, ("t", 0, 2), ("t", 1, 2)))
    groups.ask(commit(("t", 1, 3)))
    groups.end_transaction(8, committed=True)
    groups.end_transaction(7, committed=True)
    groups.reload()
    assert (fetched(groups).offset, fetched(groups, partition=1).offset) == (2, 3)


def test_offsets_of_open_transactions_are_not_forgotten_but_deleted_on_demand():
    groups = forgetful()
    groups.ask(commit(("t", 0, 1)))
    groups.ask(commit_in_transaction(7, ("t", 0, 2), ("u", 0, 2)))
    groups.advance(2 * HOUR_MS)
    assert fetched(groups).offset == 1
    assert groups.ask(DeleteOffsets(GROUP, [("t", 0)])) == [ErrorCode.none]
    groups.end_transaction(7, committed=True)
    groups.reload()
    assert (fetched(groups).offset, fetched(groups, "u").offset) == (-1, 2)


def test_a_group_is_deleted_with_what_open_transactions_wrote():
    groups = Groups()
    groups.ask(commit_in_transaction(7, ("t", 0, 2)))
    groups.ask(DeleteGroup(GROUP))
    groups.end_transaction(7, committed=True)
    groups.reload()
    assert not groups.shard.offsets


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"generation": 2, "member_id": "c-1"}, ErrorCode.illegal_generation),
        ({"generation": 1, "member_id": "other"}, ErrorCode.unknown_member_id),
        ({"generation": 1, "member_id": "c-1", "instance_id": "i"}, ErrorCode.unknown_member_id),
        ({"generation": 1, "group_id": "other"}, ErrorCode.illegal_generation),
        ({"group_id": ""}, ErrorCode.invalid_group_id),
    ],
)
def test_who_says_in_a_transaction_which_member_it_is_is_held_to_it(fields, error):
    groups = Groups()
    stable(groups, join())
    request = commit_in_transaction(7, ("t", 0, 1))
    assert code(groups.ask, request._replace(**fields)) is error


def test_a_transaction_of_an_old_client_says_nothing_of_members():
    groups = Groups()
    (one,) = stable(groups, join())
    assert groups.ask(commit_in_transaction(7, ("t", 0, 1))) == [ErrorCode.none]
    groups.send(join())
    groups.send(join(one.member_id))
    member = {"generation": 2, "member_id": one.member_id}
    request = commit_in_transaction(7, ("t", 0, 2), **member)
    assert groups.ask(request) == [ErrorCode.none], "before the group has its parts too"
