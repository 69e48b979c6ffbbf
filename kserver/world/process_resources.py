"""This process's use of resources: /proc, and the CPU clocks.

Each function returns None if the kernel does not provide the value: outside of Linux, or in a
container that hides it.
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
"""Index among the fields of /proc/self/stat that follow the program's name."""
_MAX_RESERVED_FILES = 64


monotonic_s = time.monotonic
"""The clock of asyncio's loops, which read it through a call into Python."""


def cpu_s() -> float:
    """Return user and system time of all threads, including ended ones."""
    return time.process_time()


def thread_cpu_s() -> float:
    """Return the CPU time of the calling thread."""
    return time.thread_time()


def age_s() -> float | None:
    """Return the age of the process in seconds, to a hundredth."""
    try:
        with open("/proc/self/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[_BEGAN_AT]) / _TICKS_A_SECOND


def began_s() -> float | None:
    """Return the start of the process in seconds since 1970."""
    age = age_s()
    return None if age is None else time.time() - age


def memory_bytes() -> tuple[int, int] | None:
    """Return virtual and resident memory."""
    try:
        with open("/proc/self/statm") as file:
            total, resident = file.read().split()[:2]
    except OSError:
        return None
    return int(total) * _PAGE_BYTES, int(resident) * _PAGE_BYTES


def disk_bytes() -> tuple[int, int] | None:
    """Return the bytes that this process has read from disks and written to them; hits in the page
    cache do not count, dirty pages do.  None if the kernel does not tell.
    """
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
    """Return the maximum number of open files."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def files_left() -> int:
    """Return how many files new connections and partitions may open. The rest is reserved for
    existing logs, which roll segments and write checkpoints.
    """
    most = most_files()
    return most - (open_files() or 0) - min(_MAX_RESERVED_FILES, most // 4)


def can_open(files: int) -> bool:
    """Whether `files` more may be opened now."""
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
        for descriptor in tried:
            os.close(descriptor)
    return True


def boot_id() -> str:
    """Return the kernel's id of this boot of the machine. If there is none, return a unique one, so
    that no two starts appear to be of the same boot.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return uuid4().hex
