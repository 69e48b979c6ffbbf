"""Partitions moved between brokers and log directories: plans as files (plans), the actions of
Kafka's tool (actions, states, throttles); plans made here (placement, planner), shown and executed
(planned, mover, journal).
"""
