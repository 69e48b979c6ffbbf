"""Transactions: their coordinator, the markers that end them, and producer ids.

transaction   what is kept of one transactional id, and how it may change
events        what becomes of it, and its records in __transaction_state
records       the schemas of these records
requests      what the coordinator is asked, and what it answers
shard         the transactional ids of one partition of __transaction_state
markers       the ends of transactions, written into every partition that took part
verification  whether a partition is part of a transaction, before it is written to
producer_ids  unique in the cluster, from blocks that the controller gives
"""
