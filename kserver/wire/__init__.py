"""Bytes on the wire: frames, messages, record batches."""
