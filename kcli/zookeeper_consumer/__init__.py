"""The consumer of the first Kafka paper (Kreps, Narkhede, Rao: "Kafka: a Distributed Messaging
System for Log Processing", NetDB 2011, section 3.2), which balances itself through ZooKeeper.

    member      one member's part in a rebalance, as a state table; its progress
    config      its configuration: Kafka 0.8's keys
    consumer    the consumer, over a ZooKeeper and the cluster found there
    console     `k console-consumer --zookeeper`

It does not use a broker's group coordinator. Its znodes are those of Kafka 0.8 (`kserver.znodes`,
below /consumers).
"""
