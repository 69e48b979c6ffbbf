"""Every command of `k`, grouped as in the overview, with a line about it."""

from __future__ import annotations

COMMANDS = {
    "Topics and records": {
        "topics": "create, list, describe, grow and delete topics",
        "console-producer": "send the lines of standard input as records",
        "console-consumer": "print the records of topics",
        "verifiable-producer": "send numbers, and print what became of each",
        "verifiable-consumer": "read in a group, and print what happens there",
        "get-offsets": "print the offsets of partitions",
        "delete-records": "delete the oldest records of partitions",
        "transactions": "list and describe transactions, find those that hang, and end them",
    },
    "Groups": {
        "consumer-groups": "list, describe and delete groups of consumers, and set their offsets",
        "groups": "list groups of all types",
    },
    "Performance": {
        "perf-test": "run one of the following tests: producer, consumer or e2e",
        "producer-perf-test": "send records, and measure rate and latencies",
        "consumer-perf-test": "read records, and measure the rate",
        "e2e-latency": "send a record and read it back, and measure how long that takes",
    },
    "Cluster": {
        "configs": "print and change settings of topics and brokers, and quotas of clients",
        "cluster": "print the cluster's id or endpoints, or unregister a broker",
        "features": "print and change the levels of the cluster's features",
        "broker-api-versions": "print which requests each broker answers",
        "reassign-partitions": "move partitions to other brokers, and replicas to other disks",
        "log-dirs": "print the size of replicas on the disks of brokers",
        "leader-election": "have leaders of partitions elected",
        "preferred-election": "have preferred replicas lead, as the older tool of Kafka did",
        "doctor": "say what is wrong with a cluster, and what to do",
        "top": "show what brokers, topics and groups do now",
        "replica-verification": "compare what the replicas of partitions hold",
        "metadata-quorum": "refused: ZooKeeper keeps the metadata, not a quorum of controllers",
        "client-metrics": "refused: clients' metrics are not collected here",
    },
    "Server": {
        "server-start": "start a broker",
        "server-stop": "stop the brokers of this machine",
        "cluster-start": "start a cluster of several brokers on this machine",
        "zookeeper-server-start": "start a ZooKeeper",
        "zookeeper-server-stop": "stop the ZooKeepers of this machine",
        "zookeeper-shell": "run commands of ZooKeeper's shell",
        "storage": "rebuild a lost metadata store, or accept the loss of records",
        "dump-log": "decode a broker's log, index and snapshot files",
    },
    "Spark": {
        "spark-submit": "run an application on Spark, where the format k reads topics",
        "spark-cluster": "start a master and workers of Spark on this machine, and stop them",
    },
    "Shell": {
        "completion": "print what makes a shell complete the words of k",
    },
    "Scripts": {
        "shapes": "print what the rows of -o hold",
        "scripts": "write scripts with the names of Kafka's that run k",
    },
}
