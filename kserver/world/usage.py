"""What this process takes of the machine: /proc, and the clocks of its threads.

Each function gives None where the kernel does not tell: outside of Linux, or in a container that
hides it.
"""

from __future__ import annotations

import errno
import os
import resource
import time
from uuid import uuid4

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_BEGAN_AT = 19
"""Among the fields of /proc/self/stat that follow the program's name."""
_MOST_RESERVED_FILES = 64


monotonic_s = time.monotonic
"""The clock of asyncio's loops, which tell it through a call into Python."""


def cpu_s() -> float:
    """User and system time of all threads that have been."""
    return time.process_time()


def thread_cpu_s() -> float:
    """The CPU time of the thread that asks."""
    return time.thread_time()


def age_s() -> float | None:
    """How long ago the process began, to a hundredth."""
    try:
        with open("/proc/self/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[_BEGAN_AT]) / _TICKS_A_SECOND


def began_s() -> float | None:
    """When that was, in seconds since 1970."""
    age = age_s()
    return None if age is None else time.time() - age


def memory_bytes() -> tuple[int, int] | None:
    """Addresses that are taken, and how much of that is in RAM."""
    try:
        with open("/proc/self/statm") as file:
            total, resident = file.read().split()[:2]
    except OSError:
        return None
    return int(total) * _PAGE_BYTES, int(resident) * _PAGE_BYTES


def disk_bytes() -> tuple[int, int] | None:
    """Read from disks, and written to them or about to be; the page cache's hits are neither."""
    try:
        with open("/proc/self/io") as file:
            fields = dict(line.rstrip().split(": ") for line in file)
    except OSError:
        return None
    return int(fields["read_bytes"]), int(fields["write_bytes"])


def open_files() -> int | None:
    try:
        # One is the directory that is read.
        return len(os.listdir("/proc/self/fd")) - 1
    except OSError:
        return None


def most_files() -> int:
    """How many may be open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def files_left() -> int:
    """How many connections and new partitions may open.  The rest is kept for the logs that are
    there, which roll segments and write checkpoints."""
    most = most_files()
    return most - (open_files() or 0) - min(_MOST_RESERVED_FILES, most // 4)


def can_open(files: int) -> bool:
    """Whether so many more may be open, now."""
    tried: list[int] = []
    try:
        tried.append(os.open("/", os.O_PATH | os.O_CLOEXEC))
        for _ in range(files - 1):
            tried.append(os.dup(tried[0]))
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        return False
    finally:
        for one in tried:
            os.close(one)
    return True


def boot_id() -> str:
    """The kernel's id of this boot of the machine; one that no other call gives where the kernel
    tells none, so that no two starts are taken for the same boot."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return uuid4().hex
