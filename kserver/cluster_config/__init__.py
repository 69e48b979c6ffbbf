"""Cluster-wide configuration in ZooKeeper, used by every broker: configs, quotas, features."""
