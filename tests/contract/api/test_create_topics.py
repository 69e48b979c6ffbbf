"""Test CreateTopics requests, in every served version, against our broker or Apache's."""

import pytest

from kserver.api import create_topics as module
from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from tests.contract.api.calls import Topic, batch, partition_count, produce, topic_id
from tests.support.brokers import until
from tests.support.wire_client import milliseconds

KEY, VERSIONS = module.KEY, module.VERSIONS
every_version = pytest.mark.parametrize("version", VERSIONS)
TIMEOUT = milliseconds(30_000)


def create(client, version, *topics, validate_only=False):
    """Create topics, given as dicts with one partition and one replica by default; return the
    responses."""
    full = [{"num_partitions": 1, "replication_factor": 1} | topic for topic in topics]
    answer = client.call(KEY, version, topics=full, timeout=TIMEOUT, validate_only=validate_only)
    return list(answer.topics)


@every_version
@pytest.mark.usefixtures("only_ours")
def test_a_topic_can_be_written_to_when_the_answer_comes(client, name, version):
    (made,) = create(client, version, {"name": name})
    assert made.error_code is ErrorCode.none
    topic = Topic(name, topic_id(client, name))
    assert produce(client, 9, topic, batch(b"a")).base_offset == 0


@every_version
def test_a_topic_has_the_partitions_that_were_asked_for(client, name, version):
    (made,) = create(client, version, {"name": name, "num_partitions": 3})
    assert (made.name, made.error_code) == (name, ErrorCode.none)
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (3, 1)
    until(lambda: partition_count(client, name) == 3)
    if version >= 7:
        assert made.topic_id == topic_id(client, name)


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= 5])
def test_all_configs_of_the_topic_are_answered_with_their_sources(client, name, version):
    configs = [{"name": "retention.ms", "value": "12345"}, {"name": "flush.ms", "value": "7"}]
    (made,) = create(client, version, {"name": name, "configs": configs})
    told = {c.name: (c.value, c.config_source) for c in made.configs}
    dynamic_topic, default = 1, 5
    assert list(told) == sorted(told)
    assert told["retention.ms"] == ("12345", dynamic_topic)
    assert told["flush.ms"] == ("7", dynamic_topic)
    assert told["cleanup.policy"] == ("delete", default)
    assert len(told) > 20


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= 4])
def test_minus_one_stands_for_the_brokers_defaults(client, name, version):
    (made,) = create(
        client, version, {"name": name, "num_partitions": -1, "replication_factor": -1}
    )
    assert made.error_code is ErrorCode.none
    until(lambda: partition_count(client, name) == 2)


@every_version
def test_replicas_may_be_assigned_by_hand(client, name, version):
    (node,) = client.call(ApiKey.METADATA, 1, topics=[]).brokers
    given = {
        "name": name,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [{"partition_index": p, "broker_ids": (node.node_id,)} for p in range(4)],
    }
    (made,) = create(client, version, given)
    assert made.error_code is ErrorCode.none
    until(lambda: partition_count(client, name) == 4)


@every_version
@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"num_partitions": 0}, ErrorCode.invalid_partitions),
        ({"num_partitions": -2}, ErrorCode.invalid_partitions),
        ({"replication_factor": 2}, ErrorCode.invalid_replication_factor),
        ({"replication_factor": 0}, ErrorCode.invalid_replication_factor),
        ({"name": "no/slash"}, ErrorCode.invalid_topic_exception),
        ({"name": "."}, ErrorCode.invalid_topic_exception),
        ({"configs": [{"name": "no.such.key", "value": "1"}]}, ErrorCode.invalid_config),
        ({"configs": [{"name": "retention.ms", "value": "soon"}]}, ErrorCode.invalid_config),
        ({"configs": [{"name": "cleanup.policy", "value": "keep"}]}, ErrorCode.invalid_config),
        (
            {
                "num_partitions": -1,
                "replication_factor": -1,
                "assignments": [{"partition_index": 1, "broker_ids": (0,)}],
            },
            ErrorCode.invalid_replica_assignment,
        ),
        (
            {
                "num_partitions": -1,
                "replication_factor": -1,
                "assignments": [{"partition_index": 0, "broker_ids": (77,)}],
            },
            ErrorCode.invalid_replica_assignment,
        ),
        (
            {
                "num_partitions": -1,
                "replication_factor": -1,
                "assignments": [{"partition_index": 0, "broker_ids": (0,)}] * 2,
            },
            ErrorCode.invalid_replica_assignment,
        ),
        ({"configs": [{"name": "retention.ms", "value": None}]}, ErrorCode.invalid_config),
    ],
    ids=str,
)
def test_what_is_wrong_is_refused_beside_what_is_right(client, name, version, wrong, code):
    right = f"{name}-right"
    bad, good = create(client, version, {"name": name} | wrong, {"name": right})
    if bad.name == right:
        bad, good = good, bad
    assert bad.error_code is code
    assert bad.error_message
    assert good.error_code is ErrorCode.none
    assert partition_count(client, wrong.get("name", name)) is None


@every_version
def test_a_topic_that_exists_or_is_named_twice_is_refused(client, topic, name, version):
    (there,) = create(client, version, {"name": topic.name})
    assert there.error_code is ErrorCode.topic_already_exists
    twice = create(client, version, {"name": name}, {"name": name})
    assert [(t.name, t.error_code) for t in twice] == [(name, ErrorCode.invalid_request)]
    assert partition_count(client, name) is None


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= 5])
def test_a_topic_that_is_refused_has_no_configs(client, topic, version):
    (there,) = create(client, version, {"name": topic.name})
    assert there.configs == ()


@every_version
def test_names_that_differ_in_dots_and_underscores_alone_collide(client, name, version):
    (first,) = create(client, version, {"name": f"{name}.a"})
    (second,) = create(client, version, {"name": f"{name}_a"})
    assert first.error_code is ErrorCode.none
    assert second.error_code is ErrorCode.invalid_topic_exception


@every_version
def test_validation_alone_makes_nothing(client, name, version):
    (valid,) = create(client, version, {"name": name}, validate_only=True)
    (invalid,) = create(client, version, {"name": name, "num_partitions": 0}, validate_only=True)
    assert valid.error_code is ErrorCode.none
    assert invalid.error_code is ErrorCode.invalid_partitions
    assert partition_count(client, name) is None
