"""Apache's ZooKeeper, which `k zookeeper-server-start` starts for ensembles, or if it is requested.

the settings in the file        plan.py (pure)
Java, the jars, the process     launch.py
"""
