"""Transactions: their coordinator, the markers that end them, and producer ids.

transaction   state of one transactional id, and its transitions
events        changes of that state, and their records in __transaction_state
records       schemas of these records
requests      requests to the coordinator, and responses
shard         the transactional ids of one partition of __transaction_state
markers       transaction markers, written into every partition of a transaction
verification  checks that a partition is part of a transaction before it is written to
producer_ids  unique in the cluster, from blocks that the controller allocates
"""
