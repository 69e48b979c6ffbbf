from __future__ import annotations

import json

from tests.bench.figures import lines
from tests.bench.shapes import MESSAGE_BYTES
from tests.bench.spark_rows import CONNECTOR, MINUTES, K, figures, orders, rows_cpu, rows_s, times
from tests.bench.sparks import Took


def test_orders_are_json_of_one_size_over_an_hour():
    found = [json.loads(value) for _, _, value, _ in orders(300)]
    assert {len(value) for _, _, value, _ in orders(300)} <= set(range(190, MESSAGE_BYTES + 1))
    assert len({order["at"] for order in found}) == MINUTES


def test_figures_count_rows_by_the_clock_and_by_the_processors():
    found = figures({K: Took(2, 4)}, 8_000_000)
    assert found == {rows_s(K): 4, rows_cpu(K): 2}


def test_aims_are_multiples_of_the_connectors_figure():
    aims = times(1.2, K, wall=2)
    sample = figures({K: Took(1, 1), CONNECTOR: Took(1.9, 1.3)}, 1_000_000)
    short = {line.figure: line.is_short for line in lines("row", aims, [sample])}
    assert short == {rows_cpu(K): False, rows_s(K): True}
