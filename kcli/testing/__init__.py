"""Brokers for the tests of other projects: fixtures of pytest, and the process that forks the
brokers.
"""
