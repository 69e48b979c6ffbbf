"""Settings: one declaration a key, read by the broker, DescribeConfigs, `k` and the man page."""
