"""What decides over the cluster: topics, their placement and leadership."""
