"""Consumer groups and their committed offsets: one shard for each partition of __consumer_offsets.

shard                routes requests and replayed events to the modules below
group, member        state of a classic group, whose leader assigns the partitions
classic              requests and deadlines of classic groups
consumer_group       state of a consumer group (KIP-848), whose coordinator assigns the partitions
consumer             requests and deadlines of consumer groups
assignor             server-side assignors: the target assignment
reconciliation       steps of a member from its current to its target assignment
topic_patterns       subscriptions by regular expression
migration            groups with members of both protocols; upgrade and downgrade
offsets              committed offsets
requests, consumer_requests   requests and responses
events, consumer_events       changes to the persisted state
records              schemas of the events' records
"""
