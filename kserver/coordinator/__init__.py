"""What group and transaction coordinators share: pure shards over the partitions of a topic.

shard       what a coordinator of one partition is, and what it answers with
deadlines   many deadlines, and which of them have passed
topics      __consumer_offsets and __transaction_state; which partition a key belongs to
runtime     loads shards by replay, lets them decide, appends, answers once it is committed
"""
