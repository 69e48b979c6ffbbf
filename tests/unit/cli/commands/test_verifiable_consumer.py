"""`k verifiable-consumer`: what its words mean."""

from types import SimpleNamespace

import pytest

from kcli.commands import verifiable_consumer as module
from kcli.main import main

NEEDED = "--topic t --group-id g"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("", "argument --topic is required"),
        ("--topic t", "argument --group-id is required"),
        (f"{NEEDED} --group-protocol old", "argument --group-protocol: invalid choice: 'old'"),
        (f"{NEEDED} --reset-policy now", "argument --reset-policy: invalid choice: 'now'"),
        (f"{NEEDED} --max-messages x", "Cannot parse argument 'x' of option max-messages"),
    ],
)
def test_words_that_make_no_sense_are_a_usage_error(words, why, capsys):
    assert main(["verifiable-consumer", *words.split()]) == 2
    assert capsys.readouterr().err.startswith(f"k verifiable-consumer: {why}")


@pytest.mark.parametrize(
    ("words", "properties"),
    [
        (
            "",
            {
                "enable.auto.commit": "false",
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": module.RANGE,
                "session.timeout.ms": "30000",
            },
        ),
        (
            "--enable-autocommit --reset-policy none --group-instance-id i --session-timeout 9s"
            " --assignment-strategy sticky",
            {
                "enable.auto.commit": "true",
                "auto.offset.reset": "none",
                "group.instance.id": "i",
                "partition.assignment.strategy": "sticky",
                "session.timeout.ms": "9000",
            },
        ),
        (
            "--group-protocol CONSUMER --group-remote-assignor uniform",
            {
                "enable.auto.commit": "false",
                "auto.offset.reset": "earliest",
                "group.protocol": "consumer",
                "group.remote.assignor": "uniform",
            },
        ),
    ],
)
def test_options_are_settings_of_the_consumer(words, properties):
    words = [*NEEDED.split(), *words.split()]
    with module.verifiable_consumer.make_context("k", words) as context:
        told = module._properties(SimpleNamespace(**context.params))
    del told["bootstrap.servers"]
    assert told == {"group.id": "g"} | properties
