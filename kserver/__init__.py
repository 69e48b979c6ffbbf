"""The broker: Kafka's wire protocol over Kafka's on-disk log, in Python.

The folders, in import order.  A module imports from its own folder or from those to the left,
never from those to the right (`tests/tidy/test_layers.py` checks it):

    model errors metrics config wire world zookeeper_server metadata znodes peer peers log replica
    coordinator group txn cluster_config controller publisher security network api broker

Where is ...?

    one API's behaviour, errors and versions   api/<name>.py, one file per key
    expected exceptions, error codes           errors.py
    the dispatch from a frame to its handler   api/table.py
    bytes to frames, responses in order        network/conversation.py; the socket of a
                                               connection: network/connection.py;
                                               listening sockets: network/listener.py
    quotas and throttle times                  network/quota.py, api/throttling.py
    encoding of messages                       wire/codec.py (kio), wire/versions.py;
                                               those between brokers: wire/control.py
    record batches                             wire/batch.py, wire/records.py, wire/compression.py
    append, read, recovery                     log/log.py, log/segment.py, log/recovery.py
    loading of log directories at a start      log/loader.py
    validation of a client's batches           log/validator.py, wire/_walk.c
    idempotent producers                       log/producer_state.py
    transactions: states, fencing, timeouts    txn/transaction.py, txn/shard.py
    transaction markers                        txn/markers.py; verification of writes:
                                               txn/verification.py
    compaction                                 log/cleaner.py; which records are kept:
                                               log/record_filter.py
    all partitions that a broker hosts         replica/manager.py
    one of them: role, high watermark          replica/partition.py
    progress of followers, in-sync replicas    replica/isr.py; truncation of diverging logs:
                                               replica/truncation.py
    followers: fetching                        replica/fetcher.py, replica/fetcher_manager.py;
                                               incremental fetch sessions:
                                               replica/follower_session.py
    reads for consumers and followers          replica/fetch.py; their fetch sessions:
                                               replica/fetch_session.py
    replication throttles                      replica/throttle.py
    replicas that consumers read from          replica/selector.py
    the leader's proposals of the ISR          replica/alter_partition.py
    whether this broker still leads            replica/leadership.py
    requests that wait                         replica/purgatory.py; for a commit of
                                               appended records: replica/committed.py
    partitions that cannot be hosted           replica/offline.py
    coordinators: loaded, led, moved           coordinator/runtime.py
    groups: members and assignments            group/__init__.py lists the parts
    disks that failed or are full              log/manager.py, log/directory.py
    losses after a crash of the machine        log/incarnation.py
    moves of replicas between disks            replica/move.py
    every server.properties key                config/sections/, config/known_keys.txt;
                                               topics' keys: config/topic.py; groups' keys:
                                               config/group.py
    dynamic config changes                     config/dynamic.py, cluster_config/config_manager.py
    the controller's requests, applied         publisher.py
    everything that is not deterministic       world/: clock, disk, ZooKeeper, randomness
    the embedded ZooKeeper                     zookeeper_server/__init__.py lists the parts
    Kafka's znodes and their ACLs              znodes.py; login to ZooKeeper: world/kazoo.py
    unreadable znodes                          cluster_config/unreadable.py
    the controller: election, event queue      controller/__init__.py has a table of its events
    brokers that register or disappear         controller/broker_changes.py
    the controller's knowledge of the cluster  controller/context.py
    leaders and ISRs, decided and written      controller/partition_states.py; the rules:
                                               controller/election.py, controller/partitions.py
    elections on request                       controller/leader_elections.py
    reassignments to other brokers             controller/reassignments.py
    znodes written for the controller          controller/notices.py
    requests of the controller to brokers      controller/request_batch.py, controller/channel.py
    failure detection before a session ends    controller/liveness.py;
                                               connections: controller/failure_detector.py
    requests of brokers to the controller      controller/broker_operations.py; sent by
                                               peers/node_to_controller.py
    connections between brokers                peers/peers.py; one of them: peer.py
    topics: create, grow, delete               controller/topic_operations.py; the rules:
                                               controller/topics.py
    features: raised, lowered, agreed upon     controller/feature_operations.py; the rules:
                                               controller/features.py
    metrics and their names                    metrics/; read by broker/observation.py
    a lost metadata store                      broker/rebuild.py
    the wiring of all parts                    broker/assembly.py
    controlled shutdown of a broker            broker/controlled_shutdown.py
    start and stop                             broker/broker.py; as a process: broker/process.py
"""

__version__ = "0.1.0"
