"""`k topics`: which options go together, and the lines that describe topics."""

from uuid import UUID

import pytest

from kcli.command.options import Refused
from kcli.commands import topics
from kcli.main import main
from kcli.rows.topic_ids import id_text, topic_id

ID = UUID(bytes=bytes(range(16)))


def test_an_assignment_is_a_list_of_replicas_for_each_partition():
    assert topics._assignments("1:2, 2 :3") == [[1, 2], [2, 3]]
    assert topics._assignments(None) == topics._assignments("") == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1:1", "Partition replica lists may not contain duplicate entries: 1"),
        ("1:2,3", "Partition 1 has different replication factor: [3]"),
        ("1,a", 'For input string: "a"'),
    ],
)
def test_a_wrong_assignment_is_refused(text, why):
    with pytest.raises(Refused) as caught:
        topics._assignments(text)
    assert str(caught.value) == why


def test_settings_are_key_and_value():
    assert topics._topic_config(["a = b", "c=d"]) == {"a": "b", "c": "d"}


@pytest.mark.parametrize("pair", ["a", "a=", "a=b=c"])
def test_settings_without_one_equals_sign_are_refused(pair):
    with pytest.raises(Refused, match=r'must be in the format "key=val"\.'):
        topics._topic_config([pair])


def test_topic_ids_are_url_safe_base64():
    assert topic_id(id_text(ID)) == ID
    assert topic_id("A" * 22) is None


@pytest.mark.parametrize("text", ["abc", "!" * 22, "", "A" * 30])
def test_what_is_no_topic_id_is_refused(text):
    with pytest.raises(Refused):
        topic_id(text)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("", "Command must include exactly one action: --list, --describe, --create, --alter"),
        ("--list --create --topic a", "Command must include exactly one action"),
        ("--create", 'Missing required argument "[topic]"'),
        ("--delete", 'Missing required argument "[topic]"'),
        ("--alter --topic a", 'Missing required argument "[partitions]"'),
        ("--describe --if-exists", "--topic or --topic-id is required to describe a topic"),
        ("--list --partitions 2", 'Option "[partitions]" can\'t be used with option "[list]"'),
        (
            "--create --topic a --replica-assignment 1 --partitions 2",
            'Option "[replica-assignment]" can\'t be used with option "[partitions]"',
        ),
        (
            "--alter --topic a --partitions 2 --config a=b",
            'Option combination "[[config], [bootstrap-server]]" can\'t be used with option '
            '"[alter]" (To alter topic configurations, the kafka-configs tool can be used.)',
        ),
        (
            "--list --under-min-isr-partitions",
            'Option "[under-min-isr-partitions]" can\'t be used with option "[list]"',
        ),
        (
            "--describe --under-min-isr-partitions --topics-with-overrides",
            'Option "[under-min-isr-partitions]" can\'t be used with option '
            '"[topics-with-overrides]"',
        ),
        (
            "--create --topic a --if-exists",
            'Option "[if-exists]" can\'t be used with option "[create]"',
        ),
        (
            "--list --if-not-exists",
            'Option "[if-not-exists]" can\'t be used with option "[list]"',
        ),
        ("--list --zookeeper h:2181", "--zookeeper is not supported; use"),
    ],
)
def test_options_that_do_not_go_together_are_a_usage_error(words, why, capsys, monkeypatch):
    monkeypatch.delenv("K_BOOTSTRAP_SERVER", raising=False)
    assert main(["topics", *words.split()]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"k topics: {why}")


def test_what_the_cluster_need_not_be_asked_for_is_refused_in_kafkas_words(capsys):
    assert main(["topics", "--create", "--topic", "a.b", "--partitions", "0"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        topics.COLLISION,
        "Error while executing topic command : The partitions must be greater than 0",
    ]


def test_an_unreachable_cluster_ends_with_124(capsys, tmp_path, free_port):
    config = tmp_path / "admin.properties"
    config.write_text("default.api.timeout.ms=200\nrequest.timeout.ms=100\n")
    server = f"127.0.0.1:{free_port}"
    words = ["topics", "--list", "--command-config", str(config), "--bootstrap-server", server]
    assert main(words) == 124
    assert capsys.readouterr().out == (
        "Error while executing topic command : "
        "Timed out waiting for a node assignment. Call: listTopics\n"
    )


def test_timeout_ends_the_whole_command_with_124(capsys, free_port):
    server = f"127.0.0.1:{free_port}"
    words = ["topics", "--list", "--bootstrap-server", server, "--timeout", "0.2"]
    assert main(words) == 124
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "k topics: not done within 0.2 s" in shown.err
