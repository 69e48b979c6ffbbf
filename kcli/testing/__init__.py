"""Brokers for the tests of other projects: pytest's fixture, and the process that forks them."""
