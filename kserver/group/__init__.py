"""What is kept of consumer groups; the coordinator is to follow."""
