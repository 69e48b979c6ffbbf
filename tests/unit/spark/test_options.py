"""What a query may be told: each option taken, or refused by its name with the remedy."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcli.spark.options import (
    AllPartitions,
    Assign,
    ByOffset,
    ByTime,
    Subscribe,
    SubscribePattern,
    batch_options,
    checkpoint_of,
    offsets_of,
    read_offsets,
    stream_options,
)
from kserver.errors import ConfigError
from kserver.model import TopicPartition
from kserver.wire.special_offsets import EARLIEST, LATEST

BASE = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def refused(options: dict[str, str], take=batch_options) -> str:
    with pytest.raises(ConfigError) as caught:
        take(options)
    return str(caught.value)


def test_the_defaults_are_those_of_spark():
    batch, stream = batch_options(BASE), stream_options(BASE)
    assert (batch.start, batch.end) == (AllPartitions(EARLIEST), AllPartitions(LATEST))
    assert stream.start == AllPartitions(LATEST)
    for read in (batch, stream):
        assert read.fail_on_data_loss
        assert not read.include_headers
        assert read.max_trigger_delay_ms == 15 * 60_000
        assert read.min_partitions is read.max_records_per_partition is None
        assert read.max_offsets_per_trigger is read.min_offsets_per_trigger is None


def test_names_are_read_in_any_case():
    read = batch_options(BASE | {"INCLUDEHEADERS": "true", "failondataloss": "False"})
    assert read.include_headers
    assert not read.fail_on_data_loss


def test_topics_are_named_in_one_of_three_ways():
    rest = {"kafka.bootstrap.servers": "h:1"}
    assert batch_options(rest | {"subscribe": " a, b ,a"}).selection == Subscribe(("a", "b"))
    assign = batch_options(rest | {"assign": '{"t":[1,0]}'}).selection
    assert assign == Assign((T0, T1))
    pattern = batch_options(rest | {"subscribePattern": "t.*"}).selection
    assert pattern == SubscribePattern("t.*")
    assert "subscribe, subscribePattern, assign" in refused(rest)
    assert "not assign and subscribe" in refused(BASE | {"assign": '{"t":[0]}'})


@pytest.mark.parametrize(
    ("option", "text", "told"),
    [
        ("subscribe", " , ", "option subscribe names no topic"),
        ("subscribePattern", "(", "option subscribePattern: ( is an invalid regex"),
        ("subscribePattern", " ", "option subscribePattern is empty"),
        ("assign", "[]", "option assign is not a JSON object"),
        ("assign", "{", "option assign is not JSON"),
        ("assign", "{}", "option assign names no partition"),
        ("assign", '{"t":["0"]}', "option assign has no list of partitions for 't'"),
        ("assign", '{"t":[true]}', "option assign has no list of partitions for 't'"),
    ],
)
def test_what_names_no_topics_is_refused(option, text, told):
    assert told in refused({"kafka.bootstrap.servers": "h:1", option: text})


@pytest.mark.parametrize(
    ("option", "text", "told"),
    [
        ("failOnDataLoss", "yes", "option failOnDataLoss must be true or false, not 'yes'"),
        ("includeHeaders", "1", "option includeHeaders must be true or false, not '1'"),
        ("minPartitions", "0", "option minPartitions must be a whole number from 1 to 2147483647"),
        ("maxRecordsPerPartition", "x", "option maxRecordsPerPartition must be a whole number"),
        ("maxOffsetsPerTrigger", "-1", "option maxOffsetsPerTrigger must be a whole number"),
        ("minOffsetsPerTrigger", "1e3", "option minOffsetsPerTrigger must be a whole number"),
        ("maxTriggerDelay", "15x", "option maxTriggerDelay must be a number with ms, s, m, h or d"),
        ("startingTimestamp", "-1", "option startingTimestamp must be a time in ms since 1970"),
        ("endingTimestamp", "now", "option endingTimestamp must be a time in ms since 1970"),
        ("startingOffsetsByTimestamp", '{"t":{"0":-1}}', "option startingOffsetsByTimestamp has"),
        ("startingOffsetsByTimestampStrategy", "skip", "must be error or latest, not 'skip'"),
        ("startingOffsets", "last", "option startingOffsets is not JSON"),
        ("startingOffsets", '{"t":[1]}', "option startingOffsets has no partitions for 't'"),
        ("startingOffsets", '{"t":{"x":1}}', "option startingOffsets has no partition 'x'"),
        ("startingOffsets", '{"t":{"0":-3}}', "has -3 for t-0"),
        ("startingOffsets", '{"t":{"0":1.5}}', "has 1.5 for t-0"),
        ("kafka.auto.offset.reset", "latest", "set startingOffsets instead"),
        ("kafka.key.deserializer", "x", "keys are read as bytes"),
        ("kafka.value.deserializer", "x", "values are read as bytes"),
        ("kafka.key.serializer", "x", "keys are bytes"),
        ("kafka.value.serializer", "x", "values are bytes"),
        ("kafka.enable.auto.commit", "true", "Spark keeps the offsets"),
        ("kafka.interceptor.classes", "x", "which no interceptor sees"),
        ("startingOfsets", "latest", "did you mean startingOffsets?"),
        ("bootstrap.servers", "h:1", "did you mean kafka.bootstrap.servers"),
        ("topic", "t", "option topic is for writing; read with subscribe"),
        ("path", "t", "not by load(path)"),
    ],
)
def test_what_cannot_be_taken_is_refused_by_name(option, text, told):
    for take in (batch_options, stream_options):
        if take is batch_options or not option.startswith("ending"):
            assert told in refused(BASE | {option: text}, take)


def test_the_brokers_are_required():
    assert "option kafka.bootstrap.servers is required" in refused({"subscribe": "t"})


def test_a_time_for_all_goes_before_times_and_these_before_offsets():
    given_ = BASE | {"startingOffsets": "latest"}
    assert stream_options(given_).start == AllPartitions(LATEST)
    given_ |= {"startingOffsetsByTimestamp": '{"t":{"0":5}}'}
    assert stream_options(given_).start == ByTime("startingOffsetsByTimestamp", {T0: 5}, False)
    given_ |= {"startingTimestamp": "7", "startingOffsetsByTimestampStrategy": "latest"}
    assert stream_options(given_).start == ByTime("startingTimestamp", 7, True)
    ends = BASE | {"endingOffsets": '{"t":{"0":-1,"1":3}}'}
    assert batch_options(ends).end == ByOffset("endingOffsets", {T0: LATEST, T1: 3})
    ends |= {"endingOffsetsByTimestamp": '{"t":{"0":5}}'}
    assert batch_options(ends).end == ByTime("endingOffsetsByTimestamp", {T0: 5}, True)
    assert batch_options(ends | {"endingTimestamp": "9"}).end == ByTime("endingTimestamp", 9, True)


def test_a_batch_neither_starts_at_the_end_nor_ends_at_the_start():
    for name, word, number in (
        ("startingOffsets", "latest", -1),
        ("endingOffsets", "earliest", -2),
    ):
        assert f"option {name} cannot be {word} in a batch" in refused(BASE | {name: word})
        listed = json.dumps({"t": {"0": number}})
        assert f"cannot be {number} ({word}) for t-0" in refused(BASE | {name: listed})


def test_a_stream_has_no_end():
    for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
        assert f"option {name} is for batches" in refused(BASE | {name: "1"}, stream_options)


def test_offsets_list_every_assigned_partition():
    assigned = {"kafka.bootstrap.servers": "h:1", "assign": '{"t":[0,1]}'}
    told = refused(assigned | {"startingOffsets": '{"t":{"0":5},"u":{"3":1}}'})
    assert "it leaves out t-1 and names u-3, not read here; -2 is earliest" in told


def test_the_least_of_a_trigger_is_no_more_than_its_most():
    told = refused(BASE | {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"})
    assert told == "option minOffsetsPerTrigger (9) is more than maxOffsetsPerTrigger (8)"


@pytest.mark.parametrize(
    ("text", "ms"), [("15m", 900_000), ("2 s", 2000), ("250", 250), ("3MS", 3), ("1h", 3_600_000)]
)
def test_delays_are_read_as_spark_reads_them(text, ms):
    assert stream_options(BASE | {"maxTriggerDelay": text}).max_trigger_delay_ms == ms


def test_settings_of_the_client_lose_their_prefix():
    read = batch_options(BASE | {"kafka.isolation.level": "read_committed", "kafka.group.id": "g"})
    assert read.client == {
        "bootstrap.servers": "h:1",
        "isolation.level": "read_committed",
        "group.id": "g",
    }


def test_what_only_sparks_own_consumers_have_does_no_harm():
    batch_options(BASE | {"kafkaConsumer.pollTimeoutMs": "1", "fetchOffset.numRetries": "3"})


partitions = st.builds(TopicPartition, st.text(min_size=1, max_size=4), st.integers(0, 12))


@given(st.dictionaries(partitions, st.integers(-2, (1 << 63) - 1)))
def test_offsets_come_back_from_their_json_in_order(offsets):
    text = json.dumps(checkpoint_of(offsets))
    assert read_offsets(text, "x") == offsets_of(json.loads(text)) == offsets
    assert list(offsets_of(json.loads(text))) == sorted(offsets)
    assert text == json.dumps(checkpoint_of(dict(reversed(offsets.items()))))
