"""One look at a cluster (snapshot), and what is wrong with it (checks), each with its remedy."""
