"""The exit statuses of `k`."""

DONE = 0
FAILED = 1
"""Refused, or any item failed."""
USAGE = 2
"""Invalid command line."""
FOUND = 3
"""A requested check found something."""
TIMED_OUT = 124
"""--timeout expired, or the cluster could not be reached in time."""
INTERRUPTED = 130
"""Ctrl-C."""
