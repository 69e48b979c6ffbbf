"""Partitions moved between brokers and log directories: plans as files (plans), what Kafka's tool
does with them (actions, states, throttles); plans made here (placement, planner), shown and carried
out (planned, mover, journal)."""
