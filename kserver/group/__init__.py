"""Groups of consumers and the offsets they commit: one shard for each partition that keeps them.

shard                what is asked and what is kept, to those who know
group, member        a classic group: its members agree among themselves
classic              classic groups at work
consumer_group       a consumer group (KIP-848): the coordinator says who reads what
consumer             consumer groups at work
assignor             who is to own what
reconciliation       the way of a member to what it is to own
topic_patterns       subscriptions by pattern
migration            groups with members of both protocols, from one to the other
offsets              committed offsets
requests, consumer_requests   what is asked, and the answers
events, consumer_events       what becomes of all this
records              the schemas of the events' records
"""
