"""Producer ids, and what is kept of transactions; the coordinator is to follow."""
