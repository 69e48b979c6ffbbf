"""What the process takes of the machine, beside what else tells it."""

from __future__ import annotations

import os
import resource
import time

import pytest

from kserver.world import usage


def test_an_open_file_more_is_one_more():
    before = usage.open_files()
    with open(os.devnull):
        assert usage.open_files() == before + 1
    assert usage.open_files() == before < usage.most_files()


def test_work_takes_time_of_its_thread_and_of_the_process():
    thread, process = usage.thread_cpu_s(), usage.cpu_s()
    while usage.thread_cpu_s() - thread < 0.01:
        pass
    assert usage.cpu_s() - process >= 0.009


def test_the_process_began_before_now_and_after_the_machine():
    age, began = usage.age_s(), usage.began_s()
    assert 0 < age <= time.clock_gettime(time.CLOCK_BOOTTIME)
    assert began == pytest.approx(time.time() - age, abs=1)


def test_memory_in_ram_is_part_of_what_is_taken_and_near_its_peak():
    total, resident = usage.memory_bytes()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert 1 << 20 < resident <= min(total, peak * 1.1)


def test_bytes_of_disks_only_grow():
    before = usage.disk_bytes()
    after = usage.disk_bytes()
    assert all(0 <= b <= a for b, a in zip(before, after, strict=True))
