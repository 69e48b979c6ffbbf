"""What a broker hosts: partitions, their roles, who waits on them."""
