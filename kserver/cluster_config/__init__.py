"""What every broker reads and writes of the cluster in ZooKeeper: settings, quotas, features."""
