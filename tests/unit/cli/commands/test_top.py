"""The words of `k top`."""

from __future__ import annotations

import pytest

from kcli.main import main


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ("--once --count 2", "--once and --count cannot be used together"),
        ("--count 0", "--count must be a positive number"),
        ("--interval soon", "Cannot parse argument 'soon' of option interval"),
    ],
)
def test_words_that_make_no_sense(words, wrong, capsys):
    assert main(["top", *words.split()]) == 2
    assert f"k top: {wrong}\n" in capsys.readouterr().err


def test_a_pattern_that_is_none(capsys):
    assert main(["top", "--topic", "("]) == 1
    assert capsys.readouterr().err == (
        "k top: ( is an invalid regex: a group ( is not closed by )\n"
    )
