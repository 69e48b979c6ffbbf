"""Encoding and decoding: frames, messages, record batches."""
