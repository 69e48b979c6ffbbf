"""What Prometheus' own parser reads is what was measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from kserver.metrics.meters import Histogram
from kserver.metrics.names import GAUGE, JMX, METER, REPORTER, SUMMARY, Metric
from kserver.metrics.text import PIECE_SAMPLES, QUANTILES, Metrics

COUNT = Metric("kafka.server", "Things", "DonePerSec", METER, ("topic",), "Things\nthat \\ are")
SIZE = Metric("kafka.log", "Log", "Size", GAUGE, ("topic", "partition"), "Bytes")
TIMES = Metric("kafka.network", "RequestMetrics", "TotalTimeMs", SUMMARY, ("request",), "Time")


def parsed(metrics: Metrics, naming: str = JMX):
    families = text_string_to_metric_families("".join(metrics.text(naming)))
    return [sample for family in families for sample in family.samples]


@given(st.dictionaries(st.text(), st.integers() | st.floats(allow_nan=False)))
def test_any_label_and_any_number_come_back(values):
    metrics = Metrics()
    metrics.add(COUNT, lambda: [((topic,), number) for topic, number in values.items()])
    read = {sample.labels["topic"]: float(sample.value) for sample in parsed(metrics)}
    assert read == {topic: float(number) for topic, number in values.items()}


def test_a_sample_may_have_no_label_or_all():
    metrics = Metrics()
    metrics.add(SIZE, lambda: [((), 1), (("a", "0"), 2)])
    assert [(s.labels, s.value) for s in parsed(metrics)] == [
        ({}, 1),
        ({"topic": "a", "partition": "0"}, 2),
    ]


@pytest.mark.parametrize(("naming", "half"), [(JMX, "0.50"), (REPORTER, "0.5")])
def test_a_summary_has_quantiles_sum_and_count(naming, half):
    metrics, histogram = Metrics(), Histogram()
    histogram.add(100)
    metrics.add(TIMES, lambda: [(("Fetch",), histogram)])
    *quantiles, total, count = parsed(metrics, naming)
    assert [s.labels["quantile"] for s in quantiles] == [half, *map(str, QUANTILES[1:])]
    assert all(100 <= s.value < 120 and s.labels["request"] == "Fetch" for s in quantiles)
    assert (total.name[-4:], total.value, total.labels) == ("_sum", 100, {"request": "Fetch"})
    assert (count.name[-6:], count.value) == ("_count", 1)


def test_a_large_text_comes_in_pieces_that_are_made_one_by_one():
    metrics = Metrics()
    metrics.add(SIZE, lambda: [(("a", str(n)), n) for n in range(4 * PIECE_SAMPLES)])
    pieces = list(metrics.text())
    assert len(pieces) == 5
    assert max(piece.count("\n") for piece in pieces) <= PIECE_SAMPLES
    assert len(parsed(metrics)) == 4 * PIECE_SAMPLES


def test_a_metric_with_no_sample_is_named_and_nothing_else():
    metrics = Metrics()
    metrics.add(COUNT, list)
    assert "".join(metrics.text()) == (
        "# HELP kafka_server_things_done_total Things\\nthat \\\\ are"
        " (kafka.server:type=Things,name=DonePerSec,topic=*)\n"
        "# TYPE kafka_server_things_done_total counter\n"
    )
