"""Completion: of words (completion), of values (completion_values), from the cluster
(cluster_names)."""
