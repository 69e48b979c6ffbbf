from __future__ import annotations

import pytest

from kserver.wire.batch import RecordBatch
from tests.bench.load import RECORDS, batch, outcome

OUTPUT = (
    '{"seconds": 2.0, "requests": 1000, "errors": 0, "bytes": 500000000, "requests_s": 500.0, '
    '"mb_s": 250.0, "p50_us": 90.5, "p99_us": 200.0, "p999_us": 1.0, "max_us": 1.0, '
    '"client_cpu_s": 0.5}\n'
)


def test_a_run_of_the_generator_gives_rates_and_the_brokers_cpu_time():
    found = outcome(OUTPUT, broker_cpu_s=0.25)
    assert (found.megabytes_s, found.requests_s) == (250, 500)
    assert (found.p50_us, found.p99_us) == (90.5, 200)
    assert (found.cpu_s_per_gb, found.cpu_us_per_request) == (0.5, 250)


@pytest.mark.parametrize(("name", "size"), [("16k", 16 << 10), ("64k", 64 << 10), ("1m", 1 << 20)])
def test_batches_are_as_large_as_their_names_say_and_no_larger_than_a_megabyte(name, size):
    data = batch(RECORDS[name])
    assert 0.98 * size < len(data) < 1.01 * size
    assert len(data) <= 1 << 20


def test_a_batch_is_the_same_each_time_but_for_its_time_and_holds_what_it_says():
    one, two = (RecordBatch(batch(3)) for _ in range(2))
    values = [[record.value for record in each.records()] for each in (one, two)]
    assert values[0] == values[1]
    assert [len(value or b"") for value in values[0]] == [200] * 3
    assert one.is_valid_crc()
