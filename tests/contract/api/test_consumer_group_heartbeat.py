"""Test ConsumerGroupHeartbeat requests, in every served version, against our broker or Apache's."""

import itertools
import uuid

import pytest

from kserver.api import consumer_group_heartbeat as module
from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from tests.contract.api.calls import consumer_heartbeat, coordinated
from tests.support.brokers import until

KEY, VERSIONS = module.KEY, module.VERSIONS
pytestmark = pytest.mark.usefixtures("since_4")
every_version = pytest.mark.parametrize("version", VERSIONS)
FIRST_WITH_PATTERNS = 1
UPGRADE, SAFE_DOWNGRADE = 1, 2
GROUPS = (f"heartbeats-{n}" for n in itertools.count())


@pytest.fixture
def group(client):
    return coordinated(client, next(GROUPS))


def assigned(answer):
    return {
        (topic.topic_id, partition)
        for topic in answer.assignment.topic_partitions
        for partition in topic.partitions
    }


@pytest.fixture
def member(client, topic, group):
    """member(version, id, ...) joins the group and returns the response."""

    def join(version, member_id, **fields):
        fields = {"subscribed_topic_names": [topic.name]} | fields
        answer = consumer_heartbeat(client, version, group, member_id, 0, **fields)
        assert answer.error_code is ErrorCode.none, answer.error_message
        return answer

    return join


@every_version
def test_the_first_member_is_given_all(make_topic, client, group, version):
    topic = make_topic(3)
    names = [topic.name]
    answer = consumer_heartbeat(client, version, group, "m", 0, subscribed_topic_names=names)
    assert answer.error_code is ErrorCode.none
    assert (answer.member_id, answer.member_epoch) == ("m", 2)
    assert answer.heartbeat_interval.total_seconds() == 5
    assert assigned(answer) == {(topic.id, n) for n in range(3)}


@every_version
def test_a_member_that_says_nothing_new_is_told_nothing_new(client, group, member, version):
    epoch = member(version, "m").member_epoch
    answer = consumer_heartbeat(client, version, group, "m", epoch)
    assert (answer.error_code, answer.member_epoch) == (ErrorCode.none, epoch)
    assert answer.assignment is None


@every_version
def test_a_member_that_says_all_is_told_all(client, topic, group, member, version):
    epoch = member(version, "m").member_epoch
    answer = consumer_heartbeat(
        client,
        version,
        group,
        "m",
        epoch,
        full=True,
        subscribed_topic_names=[topic.name],
        topic_partitions=[{"topic_id": topic.id, "partitions": [0]}],
    )
    assert assigned(answer) == {(topic.id, 0)}


@every_version
def test_a_second_member_is_given_what_the_first_gives_back(make_topic, client, group, version):
    topic = make_topic(2)
    owned = {"first": {(topic.id, 0), (topic.id, 1)}, "second": set()}
    epochs = {}
    for member_id in owned:
        answer = consumer_heartbeat(
            client, version, group, member_id, 0, subscribed_topic_names=[topic.name]
        )
        epochs[member_id] = answer.member_epoch

    def shared():
        for member_id, partitions in owned.items():
            numbers = sorted(n for _, n in partitions)
            answer = consumer_heartbeat(
                client,
                version,
                group,
                member_id,
                epochs[member_id],
                topic_partitions=[{"topic_id": topic.id, "partitions": numbers}],
            )
            assert answer.error_code is ErrorCode.none, answer.error_message
            epochs[member_id] = answer.member_epoch
            if answer.assignment is not None:
                owned[member_id] = assigned(answer)
        assert not owned["first"] & owned["second"]
        return [len(partitions) for partitions in owned.values()] == [1, 1]

    until(shared)
    assert owned["first"] | owned["second"] == {(topic.id, 0), (topic.id, 1)}


@every_version
def test_who_leaves_is_told_so_and_is_none_any_more(client, group, member, version):
    member(version, "m")
    answer = consumer_heartbeat(client, version, group, "m", -1)
    assert (answer.error_code, answer.member_epoch) == (ErrorCode.none, -1)
    answer = consumer_heartbeat(client, version, group, "m", 1)
    assert answer.error_code is ErrorCode.unknown_member_id


@every_version
def test_a_static_member_comes_back_to_what_it_had(client, topic, group, member, version):
    member(version, "before", instance_id="i")
    answer = consumer_heartbeat(client, version, group, "before", -2, instance_id="i")
    assert (answer.error_code, answer.member_epoch) == (ErrorCode.none, -2)
    answer = member(version, "after", instance_id="i")
    assert assigned(answer) == {(topic.id, 0)}


@every_version
def test_what_a_static_member_was_to_give_back_is_free_once_it_leaves(
    make_topic, client, group, version
):
    topic = make_topic(2)
    fields = {"subscribed_topic_names": [topic.name]}
    first = consumer_heartbeat(client, version, group, "a", 0, instance_id="i", **fields)
    epoch = consumer_heartbeat(client, version, group, "b", 0, **fields).member_epoch
    kept = set()

    def is_told():
        answer = consumer_heartbeat(
            client,
            version,
            group,
            "a",
            first.member_epoch,
            topic_partitions=[{"topic_id": topic.id, "partitions": [0, 1]}],
        )
        kept.update(assigned(answer) if answer.assignment is not None else ())
        return kept

    until(is_told)
    assert len(kept) == 1
    answer = consumer_heartbeat(client, version, group, "a", -2, instance_id="i")
    assert answer.error_code is ErrorCode.none
    answer = consumer_heartbeat(client, version, group, "b", epoch)
    assert assigned(answer) == {(topic.id, 0), (topic.id, 1)} - kept


@every_version
def test_an_instance_id_that_is_in_use_is_not_given_away(client, topic, group, member, version):
    member(version, "one", instance_id="i")
    answer = consumer_heartbeat(
        client, version, group, "two", 0, instance_id="i", subscribed_topic_names=[topic.name]
    )
    assert answer.error_code is ErrorCode.unreleased_instance_id


@every_version
@pytest.mark.parametrize("epoch", [7, 100])
def test_a_member_ahead_of_the_coordinator_is_fenced(client, group, member, version, epoch):
    member(version, "m")
    answer = consumer_heartbeat(client, version, group, "m", epoch)
    assert answer.error_code is ErrorCode.fenced_member_epoch


@every_version
def test_who_is_no_member_is_told_so(client, group, member, version):
    member(version, "m")
    answer = consumer_heartbeat(client, version, group, "other", 1)
    assert answer.error_code is ErrorCode.unknown_member_id


@every_version
def test_a_group_that_there_is_not_is_not_found(client, group, version):
    answer = consumer_heartbeat(client, version, group, "m", 1)
    assert answer.error_code is ErrorCode.group_id_not_found


@every_version
def test_an_unknown_assignor_is_refused(client, topic, group, version):
    answer = consumer_heartbeat(
        client, version, group, "m", 0, server_assignor="x", subscribed_topic_names=[topic.name]
    )
    assert answer.error_code is ErrorCode.unsupported_assignor
    assert "uniform, range" in answer.error_message


@every_version
@pytest.mark.parametrize(
    "fields",
    [
        {"instance_id": ""},
        {"rack_id": " "},
        {"subscribed_topic_names": None},
        {"topic_partitions": None},
        {"topic_partitions": [{"topic_id": uuid.UUID(int=1), "partitions": [0]}]},
        {"member_epoch": -3},
        {"member_epoch": -2},
        {"member_epoch": 1, "member_id": ""},
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(client, topic, group, version, fields):
    asked = {"member_id": "m", "member_epoch": 0, "subscribed_topic_names": [topic.name]} | fields
    answer = consumer_heartbeat(
        client, version, group, asked.pop("member_id"), asked.pop("member_epoch"), **asked
    )
    assert answer.error_code is ErrorCode.invalid_request
    assert answer.error_message


@every_version
@pytest.mark.parametrize(
    ("field", "error"),
    [("group_id", ErrorCode.invalid_request), ("member_id", ErrorCode.unknown_server_error)],
)
def test_what_no_record_can_hold_is_refused(client, only_ours, topic, group, version, field, error):
    """Apache's broker closes the connection instead."""
    named = {"group_id": group, "member_id": "m"} | {field: "x" * 40_000}
    answer = consumer_heartbeat(
        client,
        version,
        named["group_id"],
        named["member_id"],
        0,
        subscribed_topic_names=[topic.name],
    )
    assert answer.error_code is error
    answer = consumer_heartbeat(client, version, group, "m", 0, subscribed_topic_names=[topic.name])
    assert answer.error_code is ErrorCode.none


@pytest.fixture
def _switched_off(only_ours, client):
    """Set `group.version` to its level before KIP-848."""

    def set_to(level, how):
        update = {"feature": "group.version", "max_version_level": level, "upgrade_type": how}
        answer = client.call(ApiKey.UPDATE_FEATURES, 1, feature_updates=[update])
        assert answer.error_code is ErrorCode.none, answer.error_message

    set_to(0, SAFE_DOWNGRADE)
    yield
    set_to(1, UPGRADE)


@every_version
@pytest.mark.usefixtures("_switched_off")
def test_without_its_feature_the_protocol_is_not_served(client, topic, version):
    answer = consumer_heartbeat(
        client, version, "switched-off", "m", 0, subscribed_topic_names=[topic.name]
    )
    assert answer.error_code is ErrorCode.unsupported_version
    assert answer.error_message == "The consumer group protocol is not enabled."


def test_before_v1_a_member_is_given_an_id(client, topic, group, member):
    assert member(0, "").member_id


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= FIRST_WITH_PATTERNS])
class TestPatterns:
    def test_topics_are_found_by_pattern(self, client, topic, group, version):
        pattern = f"{topic.name[:-1]}[{topic.name[-1]}]"
        found = []

        def is_set():
            answer = consumer_heartbeat(
                client, version, group, "m", 0, subscribed_topic_regex=pattern
            )
            found[:] = assigned(answer)
            return found

        until(is_set)  # Apache's broker resolves the pattern after its first response
        assert found == [(topic.id, 0)]

    def test_a_pattern_of_another_dialect_is_refused(self, client, group, version):
        answer = consumer_heartbeat(client, version, group, "m", 0, subscribed_topic_regex="(?=a)")
        assert answer.error_code is ErrorCode.invalid_regular_expression
        assert "(?=a)" in answer.error_message

    def test_the_id_is_the_member_s_own(self, client, topic, group, version):
        answer = consumer_heartbeat(
            client, version, group, "", 0, subscribed_topic_names=[topic.name]
        )
        assert answer.error_code is ErrorCode.invalid_request
