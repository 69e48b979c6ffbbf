"""Special offsets of ListOffsets: negative timestamps that stand for an offset of the log."""

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
"""Offset of the record with the largest timestamp (KIP-734)."""
EARLIEST_LOCAL = -4
"""First offset on the broker's own disk (KIP-405)."""
LATEST_TIERED = -5
"""Last offset in tiered storage (KIP-1005)."""
EARLIEST_PENDING_UPLOAD = -6
"""First offset that is not in tiered storage yet (KIP-1023)."""
