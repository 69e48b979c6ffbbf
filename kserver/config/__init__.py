"""Configs: one declaration per key, used by the broker, DescribeConfigs, `k` and the man page."""
