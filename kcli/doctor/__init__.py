"""A snapshot of a cluster (snapshot), and its problems (checks), each with its remedy."""
