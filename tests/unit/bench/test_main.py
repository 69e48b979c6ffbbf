from __future__ import annotations

import pytest

from tests.bench.__main__ import arguments, command_line


def test_the_command_is_told_without_paths_and_without_defaults():
    words = [
        "start",
        "micro",
        "--rounds",
        "7",
        "--dir",
        "/somewhere",
        "--json",
        "/there",
        "--write",
    ]
    assert command_line(arguments(words)) == "python -m tests.bench start micro --rounds 7"
    assert command_line(arguments([])) == "python -m tests.bench"


@pytest.mark.parametrize("words", [["no-such-row"], ["--rounds", "0"], ["--seconds", "0"]])
def test_what_cannot_be_run_is_refused_before_anything_starts(words, capsys):
    with pytest.raises(SystemExit) as refused:
        arguments(words)
    assert refused.value.code == 2
