"""Describe the machine of a run, and detect other load on it."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

BUSY = 0.05
"""Share of all cores; above it the machine is not idle."""
BUSY_BETWEEN_ROWS = 0.2
"""The same while two brokers run and clean up."""
STOLEN = 0.02
"""Share of all cores taken by other virtual machines (steal); above it figures are too low."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


PLAIN_BYTES = 1 << 28
_PIECE = bytes(1 << 20)


class BenchError(Exception):
    """Raised if a row, or the whole run, cannot be measured."""


def describe() -> dict[str, str]:
    """Return a description without names of host or paths."""
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
    """Return warnings about other processes that would disturb a measurement."""
    busy = busy_share()
    found = [f"the cores were {busy:.0%} busy before the start"] if busy > BUSY else []
    brokers = len(list(_other_brokers()))
    if brokers:
        found.append(f"{brokers} other brokers or JVMs ran")
    return found


def busy_share(interval_s: float = 1) -> float:
    """Return the busy share of all cores over an interval in which this process sleeps."""
    before = cpu_times_now()
    time.sleep(interval_s)
    return cpu_times_now().since(before).busy_share


def cpu_times_now() -> CpuTimes:
    return cpu_times(Path("/proc/stat").read_text())


def stolen(shares: Mapping[str, float]) -> list[str]:
    """Return a warning about other virtual machines, from the share they took during each row."""
    found = {name: share for name, share in shares.items() if share > STOLEN}
    if not found:
        return []
    worst = max(found, key=lambda name: found[name])
    rows = "1 row" if len(found) == 1 else f"{len(found)} of {len(shares)} rows"
    return [f"other machines took CPU time during {rows}, {found[worst]:.0%} during {worst}"]


def touch(directory: Path, size: int) -> float:
    """Make `size` bytes of recently freed memory available; return the MB/s of a plain write.

    A hypervisor takes freed pages back after some seconds and provides each again when it is
    written. A plain write of 1.5 GB ran at 4.5 GB/s into recently freed pages, and at 0.47 GB/s
    into pages that were never touched. Without this, a row that writes would measure that
    difference.
    """
    path = directory / "touched"
    try:
        _write(path, size)
        path.unlink()
        began = time.perf_counter()
        _write(path, PLAIN_BYTES)
        return PLAIN_BYTES / (time.perf_counter() - began) / 1e6
    finally:
        path.unlink(missing_ok=True)


def _write(path: Path, size: int) -> None:
    with open(path, "wb", buffering=0) as file:
        for _ in range(size // len(_PIECE)):
            file.write(_PIECE)


def _other_brokers() -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_text().split("\0") if entry.name.isdigit() else []
        except OSError:  # it has ended, or belongs to another user
            continue
        if is_broker(words) and int(entry.name) != os.getpid():
            yield int(entry.name)


def is_broker(words: list[str]) -> bool:
    """Return whether a command line is that of a JVM or of one of our brokers."""
    program = os.path.basename(words[0]) if words else ""
    return program == "java" or (
        program.startswith("python") and bool({"kserver", "server-start"} & set(words))
    )


class CpuTimes(NamedTuple):
    """Ticks of all cores. `all` includes the time that the hypervisor gave to other machines
    (steal)."""

    idle: int
    stolen: int
    all: int

    def since(self, before: CpuTimes) -> CpuTimes:
        return CpuTimes(*(b - a for a, b in zip(before, self, strict=True)))

    @property
    def busy_share(self) -> float:
        return 1 - self.idle / self.all if self.all else 0.0

    @property
    def stolen_share(self) -> float:
        return self.stolen / self.all if self.all else 0.0


def cpu_times(stat: str) -> CpuTimes:
    """Parse the text of /proc/stat."""
    ticks = [int(word) for word in stat.split("\n", 1)[0].split()[1:9]]
    return CpuTimes(ticks[3] + ticks[4], ticks[7], sum(ticks))


def process_cpu_s(stat: str) -> float:
    """Return user and system time of a process with its threads, from the text of
    /proc/PID/stat."""
    fields = stat.rpartition(")")[2].split()  # a process name may contain spaces and brackets
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def resident_mb(status: str) -> float:
    """Return resident memory in units of 10^6 bytes, from the text of /proc/PID/status."""
    found = re.search(r"^VmRSS:\s*(\d+) kB$", status, re.M)
    assert found, "a process without memory"
    return int(found[1]) * 1024 / 1e6
