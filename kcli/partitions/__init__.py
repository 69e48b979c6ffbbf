"""Elections of partitions, comparisons of their replicas, files that name partitions."""
