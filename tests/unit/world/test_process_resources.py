"""What the process takes of the machine, beside what else tells it."""

from __future__ import annotations

import os
import resource
import time

import pytest

from kserver.world import process_resources


def test_an_open_file_more_is_one_more():
    before = process_resources.open_files()
    with open(os.devnull):
        assert process_resources.open_files() == before + 1
    assert process_resources.open_files() == before < process_resources.most_files()


def test_work_takes_time_of_its_thread_and_of_the_process():
    thread, process = process_resources.thread_cpu_s(), process_resources.cpu_s()
    while process_resources.thread_cpu_s() - thread < 0.01:
        pass
    assert process_resources.cpu_s() - process >= 0.009


def test_the_process_began_before_now_and_after_the_machine():
    age, began = process_resources.age_s(), process_resources.began_s()
    assert 0 < age <= time.clock_gettime(time.CLOCK_BOOTTIME)
    assert began == pytest.approx(time.time() - age, abs=1)


def test_memory_in_ram_is_part_of_what_is_taken_and_near_its_peak():
    total, resident = process_resources.memory_bytes()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert 1 << 20 < resident <= min(total, peak * 1.1)


def test_bytes_of_disks_only_grow():
    before = process_resources.disk_bytes()
    after = process_resources.disk_bytes()
    assert all(0 <= b <= a for b, a in zip(before, after, strict=True))
