"""Hosted partitions of a broker: their roles, replication, and the requests that wait on them."""
