"""The exit statuses of `k`."""

DONE = 0
FAILED = 1
"""Refused, or any item failed."""
USAGE = 2
"""The words of the command line make no sense."""
FOUND = 3
"""A check that was asked for found something."""
TIMED_OUT = 124
"""--timeout ran out, or the cluster could not be reached in time."""
INTERRUPTED = 130
"""Ctrl-C."""
