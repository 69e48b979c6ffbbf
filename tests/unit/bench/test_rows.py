from __future__ import annotations

from tests.bench.load import outcome
from tests.bench.rows import CPU_REQUEST, MESSAGES_S, REQUESTS_S, ROWS, every_figure


def test_rows_have_names_of_their_own_and_say_what_they_are():
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert all(row.about and row.aims for row in ROWS)


def test_a_message_rate_counts_the_records_of_each_batch():
    found = every_figure(
        outcome('{"seconds": 2, "requests": 100, "bytes": 1, "p50_us": 1, "p99_us": 1}', 0.01),
        "50",
    )
    assert found[REQUESTS_S] == 50
    assert found[MESSAGES_S] == 2500
    assert found[CPU_REQUEST] == 100
