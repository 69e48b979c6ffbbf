"""The consumer of the first Kafka paper (Kreps, Narkhede, Rao: "Kafka: a Distributed Messaging
System for Log Processing", NetDB 2011, section 3.2), which balances itself through ZooKeeper.

    member      what one member does in a rebalance, as a state table; how far it has come
    config      what it is told: Kafka 0.8's keys
    consumer    it, over a ZooKeeper and the cluster that is found there
    console     as `k console-consumer --zookeeper` runs it

It needs nothing of a broker's group coordinator.  Its znodes are those of Kafka 0.8
(`kserver.znodes`, below /consumers).
"""
