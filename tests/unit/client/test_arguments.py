"""A client refuses an argument of the wrong kind with a sentence that names it."""

from __future__ import annotations

import pytest

from kcli.client import arguments
from kcli.client.config import ConsumerConfig
from kcli.client.errors import ClientError
from kserver.errors import ConfigError
from kserver.model import TopicPartition
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
