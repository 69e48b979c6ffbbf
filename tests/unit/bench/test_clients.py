from __future__ import annotations

import pytest

from tests.bench.clients import perf_test_rate
from tests.bench.machine import BenchError

OUTPUT = """\
Warmup first 200000 records. Steady state results will print after the complete test summary.
91717 records sent, 18317.8 records/sec (3.49 MB/sec), 3116.3 ms avg latency, 3428.0 ms max latency.
In steady state.
600000 records sent, 34616.050309 records/sec (6.60 MB/sec), 2837.95 ms avg latency
400000 steady state records sent, 36506.342977 records/sec (6.96 MB/sec), 3391.53 ms avg latency
"""


def test_the_rate_of_a_java_producer_is_that_of_its_steady_state():
    assert perf_test_rate(OUTPUT) == 36506.342977


def test_a_tool_that_reached_no_steady_state_has_no_rate():
    with pytest.raises(BenchError, match="no rate"):
        perf_test_rate(OUTPUT.rpartition("400000")[0])
