"""The broker: Kafka's wire protocol over Kafka's on-disk log, in Python.

The folders, in import order.  A module imports from its own folder or from the left, never from the
right (`tests/tidy/test_layers.py` holds it):

    model errors metrics config wire world zookeeper metadata znodes peer peers node_to_controller
    log replica coordinator group txn cluster_config controller publisher security network api
    registration controlled_shutdown rebuild observation assembly broker process

Where is ...?

    one API's behaviour, errors and versions   api/<name>.py, a file a key; api/table.py lists all
    bytes to frames, answers in order          network/connection.py
    quotas: who waits how long                 network/quota.py, api/throttling.py
    a message's bytes                          wire/codec.py (kio), wire/versions.py;
                                               those between brokers: wire/control.py
    a record batch                             wire/batch.py, wire/records.py, wire/compression.py
    append, read, recovery                     log/log.py, log/segment.py, log/recovery.py
    what a start finds in the directories      log/loader.py
    what a client's batch is held to           log/validator.py, wire/_walk.c
    idempotence                                log/producer_state.py
    transactions: states, fencing, timeouts    txn/transaction.py, txn/shard.py
    their ends in every partition              txn/markers.py; who may write: txn/verification.py
    what compaction leaves of a log            log/record_filter.py; when, and how: log/cleaner.py
    roles, epochs, what is committed           replica/partition.py
    who is in sync                             replica/isr.py; whose log is cut, and
                                               where: replica/truncation.py
    followers: what they fetch                 replica/fetcher.py; what they need not say of it:
                                               replica/follower_session.py
    how fast they may be                       replica/throttle.py
    replicas that consumers read from          replica/selector.py
    the leader's proposals of the ISR          replica/alter_partition.py
    who waits for what                         replica/purgatory.py; until an append
                                               is committed: replica/committed.py
    partitions that cannot be hosted           replica/offline.py
    coordinators: loaded, led, moved           coordinator/runtime.py
    who is in a group, who reads what          group/, whose head lists its parts
    disks that fail or are full                log/manager.py, log/directory.py
    what a crash of the machine may have taken log/incarnation.py
    a replica from one disk to another         replica/move.py
    every server.properties key                config/sections/, config/known_keys.txt;
                                               every topic key: config/topic.py
    settings changed while it runs             config/dynamic.py, cluster_config/config_manager.py
    what the controller says, taken            publisher.py
    what is not deterministic                  world/: clock, disk, ZooKeeper, randomness
    ZooKeeper itself, served                   zookeeper/, whose head lists its parts
    Kafka's znodes, and who may change them    znodes.py; who we are to ZooKeeper:
                                               world/kazoo.py
    a znode that cannot be read                cluster_config/unreadable.py
    the controller: elected, its one queue     controller/, whose head is the table of its events
    brokers that come and go                   controller/broker_changes.py
    what it knows of the cluster               controller/context.py
    who leads what, decided and written        controller/partition_states.py; the rules:
                                               controller/election.py, controller/partitions.py
    elections that somebody asks for           controller/leader_elections.py
    partitions moved to other brokers          controller/reassignments.py
    what others write for it to act on         controller/notices.py
    what it tells the brokers                  controller/request_batch.py, controller/channel.py
    who is believed gone before its session    controller/liveness.py;
                                               connections: controller/failure_detector.py
    what the other brokers ask of it           controller/broker_operations.py; how they ask:
                                               node_to_controller.py
    connections between brokers                peers.py
    topics: create, grow, delete               controller/topic_operations.py; the rules:
                                               controller/topics.py
    features: raised, lowered, agreed upon     controller/feature_operations.py; the rules:
                                               controller/features.py
    what is counted, and its names             metrics/; read by observation.py
    the metadata store, lost                   rebuild.py
    how it all is wired                        assembly.py
    what a broker hands over before it stops   controlled_shutdown.py
    how it all starts and stops                broker.py; as a process: process.py
"""

__version__ = "0.1.0"
