"""`k reassign-partitions`: which words go with which action."""

from __future__ import annotations

import pytest

from kcli.main import main

PLAN = "--reassignment-json-file plan.json"
TOPICS = "--topics-to-move-json-file topics.json --broker-list 1"
ONE_ACTION = (
    "Command must include exactly one action: --generate, --execute, --verify, --cancel, --list"
)


def cannot(option, action):
    return f'Option "[{option}]" can\'t be used with action "[{action}]"'


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("", ONE_ACTION),
        ("--list --verify", ONE_ACTION),
        (
            "--list --zookeeper z:2181",
            "--zookeeper is not supported; use --bootstrap-server",
        ),
        (
            "--list --bootstrap-server b:1 --bootstrap-controller c:1",
            "Please don't specify both --bootstrap-server and --bootstrap-controller",
        ),
        ("--execute", 'Missing required argument "[reassignment-json-file]"'),
        ("--verify", 'Missing required argument "[reassignment-json-file]"'),
        ("--cancel", 'Missing required argument "[reassignment-json-file]"'),
        ("--generate --broker-list 1", 'Missing required argument "[topics-to-move-json-file]"'),
        (
            "--generate --topics-to-move-json-file t.json",
            'Missing required argument "[broker-list]"',
        ),
        ("--list --throttle 1", cannot("throttle", "list")),
        ("--list --throttle 0", cannot("throttle", "list")),
        (f"--list {PLAN}", cannot("reassignment-json-file", "list")),
        ("--list --timeout 5", cannot("timeout", "list")),
        (f"--verify {PLAN} --additional", cannot("additional", "verify")),
        (f"--verify {PLAN} --bootstrap-controller c:1", cannot("bootstrap-controller", "verify")),
        (f"--execute {PLAN} --preserve-throttles", cannot("preserve-throttles", "execute")),
        (f"--execute {PLAN} -o json", cannot("output", "execute")),
        (
            f"--cancel {PLAN} --replica-alter-log-dirs-throttle 1",
            cannot("replica-alter-log-dirs-throttle", "cancel"),
        ),
        (f"--generate {TOPICS} {PLAN}", cannot("reassignment-json-file", "generate")),
        (f"--generate {TOPICS} --dry-run", cannot("dry-run", "generate")),
        (
            f"--verify {PLAN} --disallow-replication-factor-change",
            cannot("disallow-replication-factor-change", "verify"),
        ),
        (f"--execute {PLAN} --throttle x", "Cannot parse argument 'x' of option throttle"),
    ],
)
def test_words_that_do_not_go_together_are_a_usage_error(words, why, capsys):
    assert main(["reassign-partitions", *words.split()]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"k reassign-partitions: {why}\n")


@pytest.mark.parametrize(
    ("words", "text", "why"),
    [
        (f"--execute {PLAN}", None, "Unable to read file plan.json: No such file or directory"),
        (f"--verify {PLAN}", b"\xff", "plan.json: The input string is not a valid JSON: 'utf-8' "),
        (f"--cancel {PLAN}", b"{", "plan.json: The input string is not a valid JSON: line 1, "),
        (f"--execute {PLAN}", b"{}", "Partition reassignment list cannot be empty"),
    ],
)
def test_a_file_that_is_not_as_it_should_be_is_told_on_standard_output(
    words, text, why, tmp_path, monkeypatch, capsys
):
    """As by Kafka's tool, which has its errors there."""
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / "plan.json").write_bytes(text)
    server = ["--bootstrap-server", "127.0.0.1:1"]
    assert main(["reassign-partitions", *words.split(), *server]) == 1
    told = capsys.readouterr()
    assert told.out.startswith(f"Error: {why}")
    assert told.err == ""
