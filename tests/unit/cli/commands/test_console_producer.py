"""`k console-producer`: which settings reach the producer and the reader."""

from types import SimpleNamespace

import pytest

from kcli.commands.console_producer import _producer_properties, console_producer
from kcli.main import main


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "producer.properties"
    path.write_text("linger.ms=7\nacks=1\ncompression.type=lz4\nclient.id=file\n")
    return str(path)


def properties(*words: str) -> dict[str, str]:
    with console_producer.make_context("k", ["--topic", "t", *words]) as context:
        return _producer_properties(SimpleNamespace(**context.params))


def test_defaults_are_those_of_the_tool(monkeypatch):
    monkeypatch.delenv("K_BOOTSTRAP_SERVER", raising=False)
    assert properties() == {
        "linger.ms": "1000",
        "batch.size": "65536",
        "client.id": "console-producer",
        "bootstrap.servers": "127.0.0.1:9092",
    }


def test_an_option_wins_over_a_property_over_a_file_over_a_default(file):
    assert properties("--producer.config", file)["linger.ms"] == "7"
    found = properties(
        "--command-config", file, "--producer-property", "linger.ms=8", "--request-timeout-ms", "9"
    )
    assert (found["linger.ms"], found["acks"], found["request.timeout.ms"]) == ("8", "1", "9")
    assert properties("--command-property", "linger.ms=8", "--timeout", "6")["linger.ms"] == "6"


def test_codecs_are_gzip_where_no_name_follows(file):
    assert properties("--compression-codec")["compression.type"] == "gzip"
    assert properties("--compression-codec", "--sync")["compression.type"] == "gzip"
    assert properties("--compression-codec", "zstd")["compression.type"] == "zstd"
    assert properties("--producer.config", file)["compression.type"] == "lz4"


def test_the_older_batch_size_wins():
    words = ["--batch-size", "1", "--max-partition-memory-bytes", "2"]
    assert properties(*words)["batch.size"] == "2"


def test_brokers_come_from_the_option_or_its_older_spelling():
    words = ["--command-property", "bootstrap.servers=c:3"]
    assert properties("--broker-list", "a:1")["bootstrap.servers"] == "a:1"
    assert properties("--broker-list", "a:1", "--bootstrap-server", "b:2")["bootstrap.servers"] == (
        "b:2"
    )
    assert properties(*words)["bootstrap.servers"] == "c:3"
    assert properties(*words, "--bootstrap-server", "b:2")["bootstrap.servers"] == "b:2"


@pytest.mark.parametrize(
    ("rate", "per_second"), [("1000", 1000), ("1000/s", 1000), ("90/m", 1.5), ("0.5", 0.5)]
)
def test_a_rate_is_by_second_unless_it_says_otherwise(rate, per_second):
    with console_producer.make_context("k", ["--rate", rate]) as context:
        assert context.params["rate"] == per_second


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        ([], 2, 'Missing required argument "[topic]"'),
        (
            ["--topic", "t", "--batch-size", "x"],
            2,
            "Cannot parse argument 'x' of option batch-size",
        ),
        (["--topic", "t", "--line-reader", "com.Mine"], 1, "com.Mine is not supported; use"),
        (
            ["--topic", "t", "--property", "null.marker=:"],
            1,
            "null.marker and headers.key.separator may not be equal",
        ),
        (
            ["--topic", "t", "--property", "a=b", "--reader-property", "a=b"],
            2,
            "Options --property and --reader-property cannot be specified together.",
        ),
        (["--topic", "t", "--input-format", "xml"], 2, "'xml' is not an input format; formats are"),
        (["--topic", "t", "--key-encoding", "octal"], 2, "'octal' is not an encoding; encodings"),
        (["--input-format", "hex"], 2, 'Missing required argument "[topic]"'),
        (
            ["--input-format", "json", "--property", "parse.key=true"],
            2,
            "--reader-property is only allowed with --input-format lines, not json",
        ),
        (
            ["--topic", "t", "--rate", "fast"],
            2,
            "'fast' is not a rate; use a form such as 1000, 1000/s, or 90/m",
        ),
        (["--topic", "t", "--rate", "0"], 2, "'0' is not a rate"),
        (["--topic", "t", "--rate", "1/w"], 2, "'1/w' is not a rate"),
        (["--topic", "t", "--request-required-acks", "7"], 1, "Invalid value 7 for configuration"),
        (["--topic", "t", "--bootstrap-server", "nohost"], 1, "Invalid url in bootstrap.servers"),
    ],
)
def test_what_makes_no_sense_ends_before_anything_is_sent(words, status, why, capsys):
    assert main(["console-producer", *words]) == status
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"k console-producer: {why}")
