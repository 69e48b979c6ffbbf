"""Shared parts of group and transaction coordinators: pure shards over the partitions of a topic.

shard       interface of the coordinator of one partition, and its results
deadlines   many deadlines by key
topics      __consumer_offsets and __transaction_state; partition of a key
runtime     loads shards by replay, appends their events, and responds once they are committed
"""
