"""The words of the performance tests, where no cluster is asked."""

from __future__ import annotations

import pytest

from kcli.main import main

SERVER = ["--bootstrap-server", "127.0.0.1:1"]
PRODUCER = "--topic t --num-records 10 --throughput -1 --record-size 5"
E2E = "--topic t --num-records 10 --producer-acks 1 --record-size 5"


@pytest.mark.parametrize(
    ("command", "words", "why"),
    [
        ("producer-perf-test", "", 'Missing required argument "[topic]"'),
        ("producer-perf-test", "--topic t", 'Missing required argument "[num-records]"'),
        (
            "producer-perf-test",
            "--topic t --num-records 10",
            'Missing required argument "[throughput]"',
        ),
        (
            "producer-perf-test",
            "--topic t --num-records 0 --throughput -1",
            "--num-records should be greater than zero.",
        ),
        (
            "producer-perf-test",
            "--topic t --num-records 1 --throughput -1 --record-size 0",
            "--record-size should be greater than zero.",
        ),
        (
            "producer-perf-test",
            "--topic t --num-records 1 --throughput -1",
            "Exactly one of --record-size, --payload-file, --payload-monotonic is required",
        ),
        (
            "producer-perf-test",
            f"{PRODUCER} --payload-monotonic",
            "Exactly one of --record-size, --payload-file, --payload-monotonic is required",
        ),
        (
            "producer-perf-test",
            f"{PRODUCER} --warmup-records 10",
            "The value for --warmup-records must be strictly fewer than the number of records in "
            "the test, --num-records.",
        ),
        (
            "producer-perf-test",
            f"{PRODUCER} --reporting-interval 0",
            "--reporting-interval should be greater than zero.",
        ),
        ("producer-perf-test", f"{PRODUCER} --producer-props acks", "Invalid property: acks"),
        ("producer-perf-test", f"{PRODUCER} acks=1", "unrecognized arguments: acks=1"),
        (
            "producer-perf-test",
            f"{PRODUCER} --producer-props acks=1 --command-property linger.ms=1",
            "Options --producer-props and --command-property cannot be specified together.",
        ),
        (
            "producer-perf-test",
            "--topic t --num-records 1 --record-size 1 --throughput fast",
            "Cannot parse argument 'fast' of option throughput",
        ),
        (
            "producer-perf-test",
            "--topic t --num-records 1 --record-size 1 --throughput 0",
            "--throughput 0 would send nothing; use -1 for no limit",
        ),
        (
            "producer-perf-test",
            f"--topic t --num-records 1 --throughput -1 --payload-file {__file__} "
            "--payload-delimiter (",
            "--payload-delimiter ( is an invalid regex: a group ( is not closed by )",
        ),
        (
            "producer-perf-test",
            f"{PRODUCER} --fail-if p99>+10%",
            "--fail-if p99>+10% compares with earlier runs: name their file with --baseline",
        ),
        ("consumer-perf-test", "--topic t", 'Missing required argument "[num-records]"'),
        (
            "consumer-perf-test",
            "--num-records 1",
            "Exactly one of the following arguments is required: [topic], [include]",
        ),
        (
            "consumer-perf-test",
            "--num-records 1 --topic t --include p",
            "Exactly one of the following arguments is required: [topic], [include]",
        ),
        (
            "consumer-perf-test",
            "--num-records 1 --messages 2 --topic t",
            "Options --messages and --num-records cannot be specified together.",
        ),
        (
            "consumer-perf-test",
            "--num-records 1 --topic t --reporting-interval 0",
            "--reporting-interval should be greater than zero.",
        ),
        (
            "consumer-perf-test",
            "--num-records 1 --topic t --date-format bb",
            "--date-format bb: Illegal pattern character 'b'",
        ),
        ("e2e-latency", "", 'Missing required argument "[topic]"'),
        (
            "e2e-latency",
            "a:1 t 10 1",
            "Invalid number of arguments. Expected 5 or 6 positional arguments, but got 4. Usage: "
            "bootstrap-server topic num-records producer-acks record-size [optional] "
            "command-config",
        ),
        ("e2e-latency", "a:1 t ten 1 5", "Cannot parse argument 'ten' of option num-records"),
        (
            "e2e-latency",
            "--topic t --num-records 0 --producer-acks 1 --record-size 5",
            "Value for --num-records must be a positive integer.",
        ),
        (
            "e2e-latency",
            "--topic t --num-records 1 --producer-acks 0 --record-size 5",
            "Invalid value for --producer-acks. Latency testing requires synchronous "
            "acknowledgement. Please use '1' or 'all'.",
        ),
        (
            "e2e-latency",
            f"{E2E} --num-headers -1",
            "Value for --num-headers must be a non-negative integer.",
        ),
        (
            "producer-perf-test",
            f"{PRODUCER} --transaction-duration-ms 0",
            "--transaction-duration-ms should be greater than zero.",
        ),
        (
            "e2e-latency",
            f"{E2E} --record-header-size -2",
            "Value for --record-header-size must be a non-negative integer or -1 for null header "
            "value.",
        ),
        ("perf-test", "", "no test given; choose producer, consumer or e2e"),
        ("perf-test", "disk", "there is no test 'disk'; choose producer, consumer or e2e"),
    ],
)
def test_words_that_make_no_sense_are_a_usage_error(command, words, why, capsys):
    assert main([command, *words.split()]) == 2
    assert capsys.readouterr().err.splitlines()[0] == f"k {command}: {why}"


@pytest.mark.parametrize(
    ("command", "words", "why"),
    [
        ("producer-perf-test", f"{PRODUCER} --print-metrics", "the client has no metrics"),
        (
            "consumer-perf-test",
            "--topic t --num-records 1 --print-metrics",
            "the client has no metrics",
        ),
        ("producer-perf-test", f"{PRODUCER} --baseline /no/file --fail-if p99>+1%", "/no/file"),
        ("producer-perf-test", f"{PRODUCER} --history /no/file", "/no/file"),
        (
            "producer-perf-test",
            "--topic t --num-records 1 --throughput -1 --payload-file /no/file",
            "/no/file: No such file",
        ),
        (
            "producer-perf-test",
            "--topic t --num-records 1 --throughput -1 --payload-file /dev/null",
            "/dev/null: the file is empty",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_reason(command, words, why, capsys):
    assert main([command, *SERVER, *words.split()]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert why in line


def test_each_test_can_be_asked_for_its_options(capsys):
    for test in ("producer", "consumer", "e2e"):
        assert main(["perf-test", test, "--help"]) == 0
        assert capsys.readouterr().out.startswith(f"Usage: k perf-test {test} [OPTIONS]")
