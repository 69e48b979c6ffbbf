"""A cluster on this machine: a ZooKeeper and brokers, each in a process of its own.

    the servers and their keys           plan.py (pure)
    started, watched, stopped            supervisor.py
    whether it is complete               membership.py

`k cluster-start` runs one in the foreground; `kafka_cluster` of the pytest plugin uses the same
keys.
"""
