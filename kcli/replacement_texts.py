"""Texts of the manual page k-replace-brokers(7)."""

from __future__ import annotations

from collections.abc import Mapping

INTRODUCTION = """ Brokers of Apache Kafka 3.9 and of k can form one cluster on one ZooKeeper: each
leads, follows, coordinates groups and transactions, and can be the controller.  So a cluster moves
to k, or back, one broker after the other, while clients write and read: a broker stops, and the
other program starts in its place, with the same file server.properties and on the same log
directories. It fetches missing records from the leaders.

Ids, addresses, topics, configs, offsets and transactions stay unchanged; either program reads the
files and znodes of the other.
"""

NEEDS = (
    "Apache Kafka 3.9 in ZooKeeper mode, with inter.broker.protocol.version 3.9, which is its "
    "default. Older releases are upgraded to it first. A KRaft cluster, such as any of Kafka 4, "
    "cannot be moved this way.",
    "Topics with at least two replicas, __consumer_offsets and __transaction_state among them "
    "(offsets.topic.replication.factor, transaction.state.log.replication.factor): a partition "
    "with one replica is away while its broker is. With min.insync.replicas as high as the number "
    "of replicas, acks=all waits meanwhile.",
    "Clients that retry, as all do by default (retries, delivery.timeout.ms).",
    "PLAINTEXT listeners: k does not support TLS and SASL with clients and brokers yet, nor "
    "ACLs. kserver.properties(5) lists the configs that have no effect.",
    "The login to ZooKeeper, where the brokers have one, in zookeeper.sasl.jaas.config: Kafka's "
    "brokers read it from the file that java.security.auth.login.config names. Their "
    "zookeeper.set.acl stays. There is no TLS to ZooKeeper yet.",
    "No Java plug-ins in the broker: authorizers, metrics reporters, quota callbacks, tiered "
    "storage.",
)

STEPS = """
For each broker in turn: wait until every replica of the cluster is in sync (k topics --describe
--check), stop the broker with SIGTERM, wait until its process has ended, start the other on the
same file, wait until every replica is in sync again.  examples/replace-broker.sh does just that.

Leaders come back to the brokers that are preferred by themselves, with auto.leader.rebalance.enable
and its interval, whichever program is the controller.

A broker of Apache Kafka that was killed, not stopped, does not start before its session in
ZooKeeper has ended (zookeeper.session.timeout.ms); one of k does.
"""

NOTES: Mapping[str, str] = {
    "Features": """
Kafka 3.9 in ZooKeeper mode knows neither transaction.version nor group.version, which clients of
Kafka 4 go by.  While one of its brokers lives, k has both at level 0: transactions are added to
partition by partition, and groups of the protocol consumer (KIP-848) are not served.  Once the last
is replaced, k features upgrade raises them.  On the way back they are lowered as soon as the first
broker of Apache Kafka comes: end groups of the protocol consumer before, for no broker serves their
members then.
""",
    "What was tried": """ With Apache Kafka 3.9.2: three brokers replaced and put back under an
    idempotent producer and a group; no client got an error, every record exists once and in order,
    replicas are byte-equal; and two of each side by side, controllers, leaders and coordinators of
    both kinds killed.
    """,
}
