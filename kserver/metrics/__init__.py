"""Metrics of a broker: the counters, their names, and their text format."""
