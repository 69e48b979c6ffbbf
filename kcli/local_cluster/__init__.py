"""A cluster on this machine: a ZooKeeper and brokers, each in a process of its own.

    what is started, with which keys     plan.py (pure)
    started, watched, stopped            supervisor.py
    whether it is complete               membership.py

`k cluster-start` runs one in the foreground; the pytest plugin's `kafka_cluster` has its keys here
too.
"""
