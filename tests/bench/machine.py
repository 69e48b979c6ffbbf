"""The machine that figures were taken on, and whether it had nothing else to do."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

BUSY = 0.05
"""Share of all cores; above it the machine is not quiet."""
BUSY_BETWEEN_ROWS = 0.2
"""The same while two brokers run and tidy up."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class BenchError(Exception):
    """Why a row, or the whole run, cannot be measured."""


def describe() -> dict[str, str]:
    """Names no host and no path."""
    cpu = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    found = {
        "cores": str(os.cpu_count()),
        "CPU": cpu[1] if cpu else platform.machine(),
        "memory": f"{memory_bytes / 1e9:.0f} GB",
        "kernel": platform.release(),
        "Python": platform.python_version(),
    }
    try:
        version = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr
    except OSError:
        return found
    java = re.search(r'version "(.*?)"', version)
    return found | ({"Java": java[1]} if java else {})


def disturbances() -> list[str]:
    """What else runs that would spoil a measurement; nothing when the machine is quiet."""
    busy = busy_share()
    found = [f"the cores were {busy:.0%} busy before the start"] if busy > BUSY else []
    brokers = len(list(_other_brokers()))
    if brokers:
        found.append(f"{brokers} other brokers or JVMs ran")
    return found


def busy_share(interval_s: float = 1) -> float:
    """Of all cores' time, over an interval in which this process sleeps."""
    before = cpu_times(Path("/proc/stat").read_text())
    time.sleep(interval_s)
    after = cpu_times(Path("/proc/stat").read_text())
    idle, total = (b - a for a, b in zip(before, after, strict=True))
    return 1 - idle / total if total else 0.0


def _other_brokers() -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_text().split("\0") if entry.name.isdigit() else []
        except OSError:  # it ended, or is not ours to see
            continue
        if is_broker(words) and int(entry.name) != os.getpid():
            yield int(entry.name)


def is_broker(words: list[str]) -> bool:
    """Whether a command line is that of a JVM or of one of our brokers."""
    program = os.path.basename(words[0]) if words else ""
    return program == "java" or (
        program.startswith("python") and bool({"kserver", "server-start"} & set(words))
    )


def cpu_times(stat: str) -> tuple[int, int]:
    """Idle and all ticks of all cores, from the text of /proc/stat."""
    ticks = [int(word) for word in stat.split("\n", 1)[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def process_cpu_s(stat: str) -> float:
    """User and system time of a process and all its threads, from the text of /proc/PID/stat."""
    fields = stat.rpartition(")")[2].split()  # a name may hold spaces and brackets
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def resident_mb(status: str) -> float:
    """Resident memory in units of 10^6 bytes, from the text of /proc/PID/status."""
    found = re.search(r"^VmRSS:\s*(\d+) kB$", status, re.M)
    assert found, "a process without memory"
    return int(found[1]) * 1024 / 1e6
