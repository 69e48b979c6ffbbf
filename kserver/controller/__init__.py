"""The controller: decides on topics, their placement, and the leaders of their partitions.

It handles its events one after the other (`event_queue`).  Each decision is written before it is
sent to the brokers, and nothing is written once another controller was elected (`claimed_store`).
UM is UpdateMetadata, LI is LeaderAndIsr, SR is StopReplica; below a topic T, `state` is
/brokers/topics/T/partitions/P/state.

    event                          from                    writes                     sends

    /controller is vacant, or      ZooKeeper               /controller,               all: UM, LI,
    held by another broker         (`claim`)               /controller_epoch;         UM
                                                           `state` of partitions
                                                           that can get a leader
    broker registered, gone,       /brokers/ids            `state`, /finalized_       live brokers:
    moved, or proven gone          (`broker_changes`)      features                   UM; LI, UM; to
                                                                                      new ones: all
    CreateTopics, CreatePartitions clients                 /brokers/topics/T,         LI, UM
                                   (`topic_operations`)    `state`, /config/topics/T
    topic created by another       /brokers/topics         `state`, its topic id      LI, UM
    client of ZooKeeper            (`partition_states`)
    DeleteTopics, or a znode       clients, /admin/        /admin/delete_topics/T;    UM, SR with
                                   delete_topics           after the last response,   delete
                                   (`topic_deletion`)      all of T is removed
    AlterPartition, or a znode     leaders,                `state`                    UM
                                   /isr_change_
                                   notification
                                   (`partition_states`)
    ElectLeaders, or a znode;      clients, /admin/        `state`                    LI, UM
    preferred leaders are due;     preferred_replica_
    unclean election is enabled    election, a timer,
                                   /config/changes
                                   (`leader_elections`)
    AlterPartitionReassignments,   clients, /admin/        /brokers/topics/T,         LI, UM; to the
    or a znode; all are in sync    reassign_partitions     `state`                    removed: SR,
                                   (`reassignments`)                                  delete
    ControlledShutdown             a broker                `state`                    LI, UM; to it:
                                   (`broker_operations`)                              SR
    AllocateProducerIds            a broker                /latest_producer_id_block
                                   (`producer_ids`)
    disk failed                    /log_dir_event_                                    to it: LI
                                   notification
    LI response with an error,     a broker                `state`                    LI, UM
    or without one after it        (`offline_replicas`)
    SR response                    a broker                see DeleteTopics
                                   (`topic_deletion`)
    UpdateFeatures                 clients                 /finalized_features
                                   (`feature_operations`)
    a write finds a znode that     `claimed_store`         as if /controller were vacant
    another client has changed

The decisions are pure functions: leaders in `election` and `context`, ISRs in `partitions`,
reassignments in `reassignment`, replicas of deleted topics in `replicas`, new topics in `topics`
and `placement`, features in `features`, failures of processes in `liveness`.
"""
