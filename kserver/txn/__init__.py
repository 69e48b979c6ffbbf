"""Producer ids; transactions are to follow."""
