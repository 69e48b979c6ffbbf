"""A client refuses an argument of the wrong kind with a sentence that names it."""

from __future__ import annotations

import asyncio

import pytest

from kcli.client import arguments
from kcli.client.admin.admin import Admin
from kcli.client.admin.quotas import Match, QuotaComponent
from kcli.client.admin.scram import NewCredential, ScramMechanism
from kcli.client.config import ConsumerConfig
from kcli.client.errors import ClientError
from kserver.errors import ConfigError
from kserver.model import QuotaEntity, TopicPartition
from tests.support import producing
from tests.support.consuming import T0, run

LONE = "caf\udce9"
"""Of bytes that are not UTF-8, as Python reads them from a command line."""
TEXT = r"the topic name 'caf\\udce9' cannot be encoded in UTF-8"


def test_partitions_and_offsets_of_the_wrong_kind_are_named():
    not_a_partition = r"a partition is TopicPartition\(topic, number\), not "
    group_calls = {
        f"{not_a_partition}1": lambda c: c.commit({1: 2}),
        "the offset of t-0 is a whole number or a CommittedOffset, not '5'": lambda c: c.commit(
            {T0: "5"}
        ),
        f"{not_a_partition}'t'": lambda c: c.committed("t"),
        "partitions are a list or another iterable, not 5": lambda c: c.committed(5),
    }
    calls = {
        "offset is 0 or more, not -5": lambda c: c.seek(T0, -5),
        f"{not_a_partition}'t'": lambda c: c.beginning_offsets("t"),
        f"{not_a_partition}1": lambda c: c.end_offsets([1]),
        "partitions are a list or another iterable, not 6": lambda c: c.end_offsets(6),
        r"times_ms is a mapping .*, not \[1\]": lambda c: c.offsets_for_times([1]),
        "the time of t-0 is in whole milliseconds, not 'x'": lambda c: c.offsets_for_times(
            {T0: "x"}
        ),
        "the name of a topic is a str that is not empty, not 5": lambda c: c.partitions_for(5),
        TEXT: lambda c: c.end_offsets([TopicPartition(LONE, 0)]),
    }

    async def scenario(consumer, server):
        for told, call in [*group_calls.items(), *calls.items()]:
            with pytest.raises(ClientError, match=told):
                await call(consumer)

    run(scenario, group_id="g")


SHA_256 = ScramMechanism.SCRAM_SHA_256
ANN = QuotaEntity(user="ann")
ONE_NAME = r"names are a list of str: \['orders'\], not 'orders'"
ADMIN_CALLS = [
    (lambda a: a.describe_topics("orders"), ONE_NAME),
    (lambda a: a.delete_topics("orders"), ONE_NAME),
    (lambda a: a.delete_topics([5]), "names are of type str; this one is not: 5"),
    (lambda a: a.delete_topics_by_id(["x"]), "ids are of type UUID; this one is not: 'x'"),
    (lambda a: a.describe_topics_by_id(5), "ids are a list or another iterable, not 5"),
    (lambda a: a.create_topics(["t"]), "topics are of type NewTopic; this one is not: 't'"),
    (lambda a: a.create_partitions(["t"]), r"topics is a mapping by str, not \['t'\]"),
    (
        lambda a: a.create_partitions({"t": 3}),
        "the values of topics are of type NewPartitions; this one is not: 3",
    ),
    (lambda a: a.list_reassignments(["t"]), "a partition is TopicPartition.*, not 't'"),
    (lambda a: a.alter_reassignments({"t": [1]}), "a partition is TopicPartition.*, not 't'"),
    (lambda a: a.elect_leaders(0, ["t"]), "a partition is TopicPartition.*, not 't'"),
    (lambda a: a.list_offsets([T0]), "specs is a mapping by TopicPartition, not "),
    (lambda a: a.delete_records({"t": 5}), "a partition is TopicPartition.*, not 't'"),
    (lambda a: a.record_times(5), "offsets is a mapping by TopicPartition, not 5"),
    (lambda a: a.describe_configs(["t"]), "a resource is a type and a name, .*, not 't'"),
    (lambda a: a.alter_configs({"t": {}}), "a resource is a type and a name, .*, not 't'"),
    (lambda a: a.find_coordinators("g"), r"keys are a list of str: \['g'\], not 'g'"),
    (lambda a: a.groups.describe("g"), r"groups are a list of str: \['g'\], not 'g'"),
    (lambda a: a.groups.offsets("g"), r"groups are a list of str: \['g'\], not 'g'"),
    (lambda a: a.groups.delete("g"), r"groups are a list of str: \['g'\], not 'g'"),
    (lambda a: a.groups.commit("g", {T0: "5"}), "the offset of t-0 is a whole number or "),
    (lambda a: a.groups.delete_offsets("g", [5]), "a partition is TopicPartition.*, not 5"),
    (lambda a: a.transactions.describe("x"), r"transactional_ids are a list of str: \['x'\]"),
    (lambda a: a.transactions.fence("x"), r"transactional_ids are a list of str: \['x'\]"),
    (lambda a: a.describe_client_quotas(["user"]), "components are of type QuotaComponent; "),
    (lambda a: a.alter_client_quotas({"ann": {}}), "the keys of changes are of type QuotaEntity; "),
    (
        lambda a: a.alter_client_quotas({ANN: 5}),
        "the change of .*ann.* is a mapping by str",
    ),
    (
        lambda a: a.alter_client_quotas({ANN: {"producer_byte_rate": "9"}}),
        "the bound producer_byte_rate of .*ann.* is a number or None, not '9'",
    ),
    (
        lambda a: a.alter_client_quotas({QuotaEntity(user=5): {}}),
        "the names of a QuotaEntity are str or None, not 5",
    ),
    (
        lambda a: a.describe_client_quotas([QuotaComponent(5)]),
        "the type of a component is a str, not 5",
    ),
    (
        lambda a: a.describe_client_quotas([QuotaComponent("user", "exact", "ann")]),
        "the match of a component is a Match, not 'exact'",
    ),
    (
        lambda a: a.describe_client_quotas([QuotaComponent("user", Match.EXACT)]),
        r"the name of a component with Match\.EXACT is a str, not None",
    ),
    (lambda a: a.describe_user_scram_credentials("ann"), r"users are a list of str: \['ann'\]"),
    (lambda a: a.alter_user_scram_credentials(["ann"]), "credentials are of type NewCredential; "),
    (
        lambda a: a.alter_user_scram_credentials(deletions=["ann"]),
        "a deletion is a user and a mechanism, .*, not 'ann'",
    ),
    (
        lambda a: a.alter_user_scram_credentials([NewCredential(5, SHA_256, "secret")]),
        "the user of a credential is a str, not 5",
    ),
    (
        lambda a: a.alter_user_scram_credentials([NewCredential("ann", "SHA", "secret")]),
        "the mechanism of 'ann' is a ScramMechanism, not 'SHA'",
    ),
    (
        lambda a: a.alter_user_scram_credentials([NewCredential("ann", SHA_256, b"secret")]),
        "the password of 'ann' is a str, not bytes$",
    ),
    (
        lambda a: a.alter_user_scram_credentials([NewCredential("ann", SHA_256, "secret", 0)]),
        "the iterations of 'ann' are 1 or more, not 0",
    ),
    (
        lambda a: a.alter_replica_log_dirs("1", {T0: "/d"}),
        "broker is the id of a broker, an int, not '1'",
    ),
    (lambda a: a.describe_log_dirs(1), "brokers are a list or another iterable, not 1"),
    (lambda a: a.describe_log_dirs(["1"]), "brokers are of type int; this one is not: '1'"),
    (lambda a: a.alter_replica_log_dirs(1, {T0: 5}), "the path of t-0 is a str, not 5"),
    (lambda a: a.alter_replica_log_dirs(1, ["t"]), "paths is a mapping by TopicPartition, not "),
    (lambda a: a.transactions.producers(["t"]), "a partition is TopicPartition.*, not 't'"),
]


@pytest.mark.parametrize(("call", "told"), ADMIN_CALLS, ids=range(len(ADMIN_CALLS)))
def test_what_the_admin_client_is_handed_is_checked_before_anything_is_sent(call, told):
    async def scenario():
        # No broker is asked: none is there.
        async with Admin({"bootstrap.servers": "127.0.0.1:1"}) as admin:
            with pytest.raises(ClientError, match=told):
                await asyncio.wait_for(call(admin), 30)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("(", r"pattern '\(' is not a regular expression: "),
        (5, "pattern is a str, an re.Pattern or a SubscriptionPattern, not 5"),
    ],
)
def test_a_pattern_of_the_wrong_kind_is_named(pattern, told):
    with pytest.raises(ClientError, match=told):
        arguments.pattern(pattern)


def test_a_topic_name_that_is_not_utf_8_does_not_end_the_producer():
    async def scenario(producer, broker, topic):
        for call in (producer.send(LONE, b"v"), producer.partitions_for(LONE)):
            with pytest.raises(ClientError, match=TEXT):
                await call
        await (await producer.send("t", b"v"))
        assert len(topic.log) == 1

    producing.run(scenario)


def test_the_key_of_a_setting_is_a_text():
    with pytest.raises(ConfigError, match="the key of a setting is a str, not 1"):
        ConsumerConfig.of({1: 2})
