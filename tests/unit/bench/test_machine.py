from __future__ import annotations

import pytest

from tests.bench.machine import (
    TICKS_PER_S,
    cpu_times,
    is_broker,
    process_cpu_s,
    resident_mb,
    stolen,
)


def test_idle_time_counts_waiting_for_the_disk_and_stolen_time_counts_as_busy():
    # user nice system idle iowait irq softirq steal guest guest_nice
    found = cpu_times("cpu  10 1 20 500 40 2 3 4 9 9\ncpu0 1 1 1 1\n")
    assert found == (540, 4, 580)
    assert found.busy_share == pytest.approx(40 / 580)


def test_shares_are_of_the_time_between_two_looks():
    before, after = (cpu_times(f"cpu  0 0 0 {n} 0 0 0 {n // 4}\n") for n in (100, 300))
    assert after.since(before).stolen_share == 50 / 250
    assert before.since(before).stolen_share == before.since(before).busy_share == 0


def test_what_other_machines_took_is_told_for_all_rows_in_one_sentence():
    assert stolen({"a": 0.0, "b": 0.019}) == []
    assert stolen({"a": 0.1, "b": 0.0}) == [
        "other machines took CPU time during 1 row, 10% during a"
    ]
    assert stolen({"a": 0.03, "b": 0.25, "c": 0.01}) == [
        "other machines took CPU time during 2 of 3 rows, 25% during b"
    ]


def test_the_cpu_time_of_a_process_is_found_behind_any_name():
    fields = ["S", "1", "2", "3", "0", "-1", "0", "0", "0", "0", "0"]
    times = [str(3 * TICKS_PER_S), str(TICKS_PER_S // 2), "77", "88", "20"]
    assert process_cpu_s(f"42 (a ) name) {' '.join(fields + times)}") == 3.5


def test_resident_memory_is_in_units_of_a_million_bytes():
    assert resident_mb("Name:\tx\nVmHWM:\t   9 kB\nVmRSS:\t   62500 kB\n") == 64.0


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["/usr/bin/java", "-Xmx1G", "kafka.Kafka"], True),
        (["/usr/bin/python3", "-m", "kserver"], True),
        (["python", "/usr/bin/k", "server-start"], True),
        (["python", "-m", "pytest"], False),
        (["grep", "java"], False),
        ([""], False),
        ([], False),
    ],
)
def test_brokers_and_jvms_are_told_by_their_command_lines(words, found):
    assert is_broker(words) is found
