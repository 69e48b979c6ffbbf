from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcli.perf.criteria import findings, parse

METRICS = ("records", "records_per_s", "avg_ms", "p99_ms", "p999_ms")


def findings_of(
    text: str, now: dict[str, float], baseline: dict[str, float] | None = None
) -> list[str]:
    return findings(parse(text, METRICS), now, baseline or {})


@pytest.mark.parametrize(
    ("text", "now", "fails"),
    [
        ("p99>+10%", {"p99_ms": 11.01}, True),
        ("p99>+10%", {"p99_ms": 10.99}, False),
        ("p99 > +10 %", {"p99_ms": 11.5}, True),
        ("p99<-10%", {"p99_ms": 8.9}, True),
        ("p99<-10%", {"p99_ms": 9.1}, False),
        ("p99_ms>50", {"p99_ms": 50.1}, True),
        ("p99>50ms", {"p99_ms": 50}, False),
        ("p99>1.5s", {"p99_ms": 1501}, True),
        ("p99>200us", {"p99_ms": 0.21}, True),
        ("p99.9>5ms", {"p999_ms": 6}, True),
        ("records<1000", {"records": 999}, True),
        ("records_per_s<-5%", {"records_per_s": 94.0}, True),
        ("records_per_s<-5%", {"records_per_s": 96.0}, False),
        ("p99>+10%,avg>3ms", {"p99_ms": 1, "avg_ms": 3.5}, True),
    ],
)
def test_a_run_fails_beyond_a_bound(text, now, fails):
    baseline = {"p99_ms": 10.0, "records_per_s": 100.0}
    assert bool(findings_of(text, now, baseline)) == fails


def test_a_finding_names_metric_now_and_baseline():
    criteria = parse("p99>+10%", METRICS)
    assert findings(criteria, {"p99_ms": 15.25}, {"p99_ms": 10.0}, "1 run in perf.jsonl") == [
        "p99>+10%: p99_ms is 15.25 now, +52.5% on the baseline of 10 (1 run in perf.jsonl)"
    ]
    assert findings_of("avg>2s", {"avg_ms": 2000.5}) == ["avg>2s: avg_ms is 2000.5 now"]


def test_each_of_several_finds_for_itself():
    found = findings_of("p99>1ms, avg>1ms,p99.9>1ms", {"p99_ms": 2, "avg_ms": 0.5, "p999_ms": 9})
    assert [one.partition(":")[0] for one in found] == ["p99>1ms", "p99.9>1ms"]


def test_what_was_not_measured_fails_every_check_of_it():
    assert findings_of("avg>1s", {"avg_ms": math.nan}) == findings_of("avg>1s", {})
    assert findings_of("avg<1s", {"avg_ms": math.nan})


def test_without_a_baseline_a_share_of_it_finds_nothing():
    assert findings_of("p99>+10%", {"p99_ms": 1e9}) == []


def test_from_a_baseline_of_nothing_all_is_more():
    assert findings_of("p99>+10%", {"p99_ms": 0.0}, {"p99_ms": 0.0}) == []
    (found,) = findings_of("p99>+10%", {"p99_ms": 0.1}, {"p99_ms": 0.0})
    assert found.startswith("p99>+10%: p99_ms is 0.1 now, the baseline of 0")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("p99", "is not METRIC>BOUND"),
        ("", "is not METRIC>BOUND"),
        ("p99>+10%,", "is not METRIC>BOUND"),
        ("p99>=10", "is not METRIC>BOUND"),
        ("p99>ten", "is not METRIC>BOUND"),
        ("p98>10", "unknown metric 'p98'; metrics are records, records_per_s, avg, p99, p999"),
        ("p99>10%", "use +10% for above the baseline"),
        ("p99>+10ms", "a share of the baseline"),
        ("records>10ms", "records is not a time"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_remedy(text, why):
    with pytest.raises(ValueError) as refused:
        parse(text, METRICS)
    assert why in str(refused.value)


@given(st.text())
def test_any_text_is_either_read_or_refused(text):
    with contextlib.suppress(ValueError):
        assert parse(text, METRICS)
