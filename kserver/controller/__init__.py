"""What decides over the cluster: topics, their placement and leadership.

Its events, one after the other (`event_queue`); each writes what it decides before it tells of it,
and nothing once another controller was elected (`claimed_store`).  UM is UpdateMetadata, LI is
LeaderAndIsr, SR is StopReplica; below a topic T, `state` is /brokers/topics/T/partitions/P/state.

    event                          from                    writes                     sends

    /controller is vacant, or      ZooKeeper               /controller,               all: UM, LI,
    somebody else's                (`claim`)               /controller_epoch; what    UM
                                                           can be led: `state`
    a broker came, went, moved     /brokers/ids            `state`, /finalized_       who lives: UM;
    or is proven gone              (`broker_changes`)      features                   LI, UM; to the
                                                                                      new one: all
    CreateTopics, CreatePartitions clients                 /brokers/topics/T,         LI, UM
                                   (`topic_operations`)    `state`, /config/topics/T
    a topic made by another        /brokers/topics         `state`, its topic id      LI, UM
                                   (`partition_states`)
    DeleteTopics, or noted         clients, /admin/        /admin/delete_topics/T;    UM, SR with
                                   delete_topics           when all have answered,    delete
                                   (`topic_deletion`)      all of T is removed
    AlterPartition, or noted       leaders,                `state`                    UM
                                   /isr_change_
                                   notification
                                   (`partition_states`)
    ElectLeaders, or noted; time   clients, /admin/        `state`                    LI, UM
    to give leadership back; an    preferred_replica_
    unclean election is allowed    election, a timer,
                                   /config/changes
                                   (`leader_elections`)
    AlterPartitionReassignments,   clients, /admin/        /brokers/topics/T,         LI, UM; to who
    or noted; all are in sync      reassign_partitions     `state`                    leaves: SR,
                                   (`reassignments`)                                  delete
    ControlledShutdown             a broker                `state`                    LI, UM; to it:
                                   (`broker_operations`)                              SR
    AllocateProducerIds            a broker                /latest_producer_id_block
                                   (`producer_ids`)
    a disk failed                  /log_dir_event_                                    to it: LI
                                   notification
    LI answered with an error,     a broker                `state`                    LI, UM
    or without one after it        (`offline_replicas`)
    SR answered                    a broker                see DeleteTopics
                                   (`topic_deletion`)
    UpdateFeatures                 clients                 /finalized_features
                                   (`feature_operations`)
    a write finds a znode that     `claimed_store`         as where /controller is vacant
    another client has changed

What is decided follows from values alone: who leads in `election` and `context`, ISRs in
`partitions`, moves in `reassignment`, replicas of a topic that goes in `replicas`, new topics in
`topics` and `placement`, features in `features`, who is believed gone in `liveness`.
"""
