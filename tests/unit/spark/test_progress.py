"""What Spark tells of batches, added up."""

from __future__ import annotations

import json
from types import SimpleNamespace

from kcli.spark.progress import Totals, lag, line, metrics


def event(batch: int, rows: int, latest: int = 10, end: int = 4, landed: int | None = None):
    found = {
        "batchId": batch,
        "numInputRows": rows,
        "processedRowsPerSecond": rows / 2,
        "durationMs": {"triggerExecution": 2000},
        "sources": [
            {
                "endOffset": json.dumps({"t": {"0": end}}),
                "latestOffset": json.dumps({"t": {"0": latest, "1": 5}}),
            }
        ],
    }
    if landed is not None:
        row = SimpleNamespace(asDict=lambda: {"rows": landed})
        found["observedMetrics"] = {"landed": row}
    return found


def test_a_batch_is_counted_once_however_often_it_is_told():
    totals = Totals()
    assert totals.add([event(3, 100, landed=90)])
    assert not totals.add([event(3, 100, landed=90)])
    assert totals.add([event(3, 100, landed=90), event(4, 0, landed=0), event(5, 7, landed=7)])
    assert (totals.rows_in, totals.observed, totals.batches, totals.batch) == (
        107,
        {"rows": 97},
        2,
        5,
    )


def test_lag_is_what_the_topics_hold_beyond_the_batch():
    assert lag(event(1, 1, latest=10, end=4)) == 6
    assert lag(event(1, 1, latest=4, end=4)) == 0
    assert lag(event(1, 1, latest=3, end=4)) == 0  # told before the batch ended
    assert lag({"sources": [{"endOffset": None, "latestOffset": None}]}) is None
    assert lag({"sources": [{"endOffset": "7", "latestOffset": "9"}]}) is None
    assert lag({}) is None


def test_the_line_says_where_each_query_is():
    landed = Totals()
    assert line({"landed": landed}, stopping=False) == "landed: starting"
    landed.add([event(12, 3000)])
    text = "landed: batch 12, 3,000 rows, 1,500/s, 6 behind, 2.0 s a batch"
    assert line({"landed": landed}, stopping=False) == text
    assert line({"landed": landed, "late": Totals()}, stopping=True) == (
        f"stopping after this batch; {text}; late: starting"
    )


def test_metrics_are_those_of_sparks_own_source():
    source = {
        "endOffset": json.dumps({"t": {"0": 4, "1": 9}, "u": {"0": 1}}),
        "latestOffset": json.dumps({"t": {"0": 10, "1": 9}, "u": {"0": 2}, "new": {"0": 5}}),
    }
    assert metrics(source) == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "6",
        "avgOffsetsBehindLatest": str(7 / 3),
    }
    assert lag({"sources": [source, source]}) == 14
    assert metrics({"endOffset": None, "latestOffset": "{}"}) == {}
    assert metrics({"endOffset": "{}", "latestOffset": "{}"}) == {}
