"""Apache's ZooKeeper, which `k zookeeper-server-start` starts for ensembles, and where it is asked.

what the file says of it      plan.py (pure)
Java, the jars, the process   launch.py
"""
