"""Servers that commands start, watch and restart."""
