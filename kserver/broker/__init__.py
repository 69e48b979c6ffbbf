"""A broker: its parts put together, its registration, start and stop.

process               the process: options, signals, logs
broker                start and stop, in order
assembly              the wiring of all parts
registration          the broker's znode, and the loss of its session
controlled_shutdown   leaders move before it stops
observation           what the metrics read
rebuild               a lost metadata store, from the logs
"""
