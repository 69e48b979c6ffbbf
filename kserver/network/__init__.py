"""Sockets to frames, answers to sockets."""
