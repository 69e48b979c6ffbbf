"""`k transactions`: what its words mean together, and its table."""

import pytest

from kcli.commands import transactions
from kcli.main import main


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("", "name exactly one action: list, describe, "),
        ("nonsense", "name exactly one action: "),
        ("list describe", "name exactly one action: "),
        ("describe", "argument --transactional-id is required"),
        ("describe --transactional-id x --topic t", "--topic is not allowed with describe"),
        ("describe-producers --topic t", "argument --partition is required"),
        ("list --partition 0", "--partition is not allowed with list"),
        ("find-hanging", "The `find-hanging` command requires either --topic or --broker-id"),
        ("find-hanging --broker-id 0 --partition 0", "The --partition argument requires --topic"),
        ("abort --topic t --partition 0", "The transaction to abort must be identified either"),
        (
            "abort --topic t --partition 0 --producer-id 0 --producer-epoch 0",
            "Missing required argument --coordinator-epoch",
        ),
        ("abort --topic t --partition 0 --producer-epoch 99999", "Cannot parse argument '99999'"),
        ("forceTerminateTransaction", "argument --transactional-id is required"),
        ("forceTerminateTransaction --transactionalId x -o json", "--output is not allowed with"),
    ],
)
def test_words_that_make_no_sense_are_a_usage_error(words, why, capsys):
    assert main(["transactions", *words.split()]) == 2
    assert capsys.readouterr().err.startswith(f"k transactions: {why}")


@pytest.mark.parametrize(("text", "ms"), [("60000", 60_000), ("1m", 60_000), ("-1", -1)])
def test_a_duration_is_in_milliseconds_or_has_a_unit(text, ms):
    context = transactions.transactions.make_context("k", ["list", "--duration-filter", text])
    assert context.params["duration_filter"] == ms


def test_an_unknown_state_is_refused_with_those_known(capsys):
    assert main(["transactions", "list", "--state", "ongoing,bogus"]) == 1
    assert "'bogus' is not a state of a transaction: Ongoing, " in capsys.readouterr().err


def test_the_table_is_kafkas():
    shape = transactions.HANGING
    row = dict.fromkeys(shape.names, 7) | {"topic": "a-long-topic", "coordinator_epoch": None}
    lines = list(transactions._table(transactions.HEADS[shape], [transactions._cells(shape, row)]))
    assert [line.split("\t") for line in lines] == [
        [
            *("Topic       ", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch"),
            *("StartOffset", "LastTimestamp", "Duration(min)", ""),
        ],
        [
            *("a-long-topic", "7        ", "7         ", "7            ", "-1              "),
            *("7          ", "7            ", "7            ", ""),
        ],
    ]


@pytest.mark.parametrize("shape", transactions.HEADS)
def test_each_field_has_a_column(shape):
    assert len(transactions.HEADS[shape]) == len(shape.fields)
