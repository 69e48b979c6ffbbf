"""`k verifiable-producer`: what its words mean."""

import pytest

from kcli.main import main


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("", "argument --topic is required"),
        ("--topic t --throughput 0", "--throughput 0 would send nothing"),
        ("--topic t --acks 2", "argument --acks: invalid choice: '2' (choose from {0,1,-1})"),
        ("--topic t --repeating-keys 0", "--repeating-keys should be greater than zero"),
        ("--topic t --max-messages x", "Cannot parse argument 'x' of option max-messages"),
    ],
)
def test_words_that_make_no_sense_are_a_usage_error(words, why, capsys):
    assert main(["verifiable-producer", *words.split()]) == 2
    assert capsys.readouterr().err.startswith(f"k verifiable-producer: {why}")
