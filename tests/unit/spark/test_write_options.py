"""What a write is told: known, checked, or refused by name with what to do."""

from __future__ import annotations

import pytest

from kcli.spark.write_options import columns_of, write_options
from kserver.errors import ConfigError

SERVERS = {"kafka.bootstrap.servers": "h:1"}
ALL = {
    "key": "string",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "headers": "array<struct<key:string,value:binary>>",
    "timestamp": "timestamp",
}


def test_what_is_said_is_taken_in_any_case():
    options = write_options(
        SERVERS | {"TOPIC": " t ", "DlqTopic": "d", "exactlyonce": "TRUE", "kafka.acks": "all"}
    )
    assert (options.topic, options.dlq_topic, options.exactly_once) == ("t", "d", True)
    assert options.transactional_id_prefix == "k"
    assert options.client["acks"] == "all"
    assert options.client["transaction.timeout.ms"] == "900000"
    assert options.client["batch.size"] == "131072"
    assert write_options(SERVERS | {"kafka.batch.size": "5"}).client["batch.size"] == "5"
    assert "transaction.timeout.ms" not in write_options(SERVERS).client


def test_what_spark_hands_on_with_the_others_is_passed_over():
    write_options(SERVERS | {"checkpointLocation": "/c", "queryName": "q"})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"topics": "t"}, "option topics is not known; did you mean topic"),
        ({"bootstrap.servers": "h:1"}, "did you mean kafka.bootstrap.servers"),
        ({"subscribe": "t"}, "option subscribe is for reading"),
        ({"startingOffsets": "latest"}, "option startingoffsets is for reading"),
        ({"path": "t"}, "option path cannot be set: the topic is named by the option topic"),
        ({"kafka.key.serializer": "x"}, "option kafka.key.serializer cannot be set"),
        ({"kafka.value.serializer": "x"}, "option kafka.value.serializer cannot be set"),
        ({"kafka.transactional.id": "x"}, "set exactlyOnce to true"),
        ({"exactlyOnce": "yes"}, "option exactlyOnce must be true or false, not 'yes'"),
        ({"topic": " "}, "option topic is empty"),
        ({"kafka.acks": "2"}, "acks"),
        ({"exactlyOnce": "true", "kafka.acks": "1"}, "without also enabling idempotence"),
    ],
)
def test_the_rest_is_refused_by_name(given, told):
    with pytest.raises(ConfigError) as refused:
        write_options(SERVERS | given)
    assert told in str(refused.value)


def test_servers_are_required():
    with pytest.raises(ConfigError, match=r"option kafka\.bootstrap\.servers is required"):
        write_options({"topic": "t"})


def test_columns_are_those_of_sparks_own_sink():
    options = write_options(SERVERS)
    assert set(columns_of(ALL | {"more": "double"}, options)) == ALL.keys() - {"timestamp"}
    assert set(columns_of({"value": "string", "topic": "string"}, options)) == {"value", "topic"}
    named = write_options(SERVERS | {"topic": "t"})
    assert columns_of({"value": "string", "topic": "int"}, named) == ("value",)
    keeping = write_options(SERVERS | {"topic": "t", "keepTimestamps": "true"})
    assert set(columns_of(ALL, keeping)) == ALL.keys() - {"topic"}


@pytest.mark.parametrize(
    ("types", "told"),
    [
        ({"value": "string"}, "topic option required when no 'topic' attribute is present"),
        ({"topic": "string"}, "Required attribute 'value' not found"),
        (ALL | {"topic": "int"}, "topic attribute unsupported type int. topic must be a(n) string"),
        (ALL | {"key": "int"}, "key attribute unsupported type int. key must be a(n) string or"),
        (ALL | {"value": "double"}, "value attribute unsupported type double"),
        (ALL | {"partition": "bigint"}, "partition attribute unsupported type bigint"),
        (ALL | {"headers": "map<string,binary>"}, "headers attribute unsupported type map<"),
    ],
)
def test_columns_of_other_types_are_refused(types, told):
    with pytest.raises(ConfigError) as refused:
        columns_of(types, write_options(SERVERS))
    assert told in str(refused.value)


def test_timestamps_to_keep_are_to_be_there():
    with pytest.raises(ConfigError, match="requires a column named timestamp"):
        columns_of(
            {"value": "string"}, write_options(SERVERS | {"topic": "t", "keepTimestamps": "true"})
        )
