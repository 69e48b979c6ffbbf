from __future__ import annotations

import re

import pytest

from kcli.perf.tally import Tally

# The forms of kafka-producer-perf-test.sh 4.3.1; test_perf_apache.py holds the script to them.
WINDOW = re.compile(
    r"\d+ records sent, \d+\.\d records/sec \(\d+\.\d\d MB/sec\), (\d+\.\d|NaN) ms avg latency, "
    r"\d+\.\d ms max latency\."
)
TOTAL = re.compile(
    r"\d+( steady state)? records sent, \d+\.\d{6} records/sec \(\d+\.\d\d MB/sec\), "
    r"(\d+\.\d\d|NaN) ms avg latency, \d+\.\d\d ms max latency, \d+ ms 50th, \d+ ms 95th, "
    r"\d+ ms 99th, \d+ ms 99\.9th\."
)


def test_lines_are_kafkas():
    tally = Tally(100.0)
    tally.add(2_500, 900, 900 << 10)
    tally.add(40_200, 100, 100 << 10)
    told = tally.sum(102.0)
    assert told.window_line() == (
        "1000 records sent, 500.0 records/sec (0.49 MB/sec), 6.3 ms avg latency, "
        "40.2 ms max latency."
    )
    assert told.total_line() == (
        "1000 records sent, 500.000000 records/sec (0.49 MB/sec), 6.27 ms avg latency, "
        "40.20 ms max latency, 2 ms 50th, 40 ms 95th, 40 ms 99th, 40 ms 99.9th."
    )
    assert told.total_line(" steady state").startswith("1000 steady state records sent, ")


@pytest.mark.parametrize("records", [0, 1, 12345])
def test_lines_keep_kafkas_form_whatever_was_met(records):
    tally = Tally(0.0)
    if records:
        tally.add(123_456_789, records, records)
    told = tally.sum(0.5)
    assert WINDOW.fullmatch(told.window_line())
    assert TOTAL.fullmatch(told.total_line())


def test_what_was_not_measured_is_told_as_java_tells_it():
    assert Tally(5.0).sum(5.0).total_line() == (
        "0 records sent, 0.000000 records/sec (0.00 MB/sec), NaN ms avg latency, "
        "0.00 ms max latency, 0 ms 50th, 0 ms 95th, 0 ms 99th, 0 ms 99.9th."
    )
