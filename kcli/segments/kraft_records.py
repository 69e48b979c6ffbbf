"""The records of KRaft's metadata log, for `k dump-log` to read.

Pure: declarations, see kserver.wire.schema.
"""

from __future__ import annotations

from kserver.wire.schema import schemas

_TABLE = schemas(
    """
AbortTransactionRecord 0 flexible 0+
    reason string? tag 0 = null
AccessControlEntryRecord 0 flexible 0+
    id uuid
    resourceType int8
    resourceName string
    patternType int8
    principal string
    host string
    operation int8
    permissionType int8
BeginTransactionRecord 0 flexible 0+
    name string? tag 0 = null
BrokerRegistrationChangeRecord 0-3 flexible 0+
    brokerId int32
    brokerEpoch int64
    fenced int8 tag 0
    inControlledShutdown int8 1+ tag 1
    logDirs []uuid 2+ tag 2
    cordonedLogDirs []uuid? 3+ tag 3 = null
ClearElrRecord 0 flexible 0+
    topicName string
ClientQuotaRecord 0 flexible 0+
    entity []
        entityType string
        entityName string?
    key string
    value float64
    remove bool
ConfigRecord 0 flexible 0+
    resourceType int8
    resourceName string
    name string
    value string?
DelegationTokenRecord 0 flexible 0+
    owner string
    requester string
    renewers []string
    issueTimestamp int64
    maxTimestamp int64
    expirationTimestamp int64
    tokenId string
EndTransactionRecord 0 flexible 0+
FeatureLevelRecord 0 flexible 0+
    name string
    featureLevel int16
FenceBrokerRecord 0 flexible 0+
    id int32
    epoch int64
NoOpRecord 0 flexible 0+
PartitionChangeRecord 0-2 flexible 0+
    partitionId int32 = -1
    topicId uuid
    isr []int32? tag 0 = null
    leader int32 tag 1 = -2
    replicas []int32? tag 2 = null
    removingReplicas []int32? tag 3 = null
    addingReplicas []int32? tag 4 = null
    leaderRecoveryState int8 tag 5 = -1
    directories []uuid? 1+ tag 8 = null
    eligibleLeaderReplicas []int32? 2+ tag 6 = null
    lastKnownElr []int32? 2+ tag 7 = null
PartitionRecord 0-2 flexible 0+
    partitionId int32 = -1
    topicId uuid
    replicas []int32
    isr []int32
    removingReplicas []int32
    addingReplicas []int32
    leader int32 = -1
    leaderRecoveryState int8 tag 0
    leaderEpoch int32 = -1
    partitionEpoch int32 = -1
    directories []uuid 1+
    eligibleLeaderReplicas []int32? 2+ tag 1 = null
    lastKnownElr []int32? 2+ tag 2 = null
ProducerIdsRecord 0 flexible 0+
    brokerId int32
    brokerEpoch int64 = -1
    nextProducerId int64
RegisterBrokerRecord 0-4 flexible 0+
    brokerId int32
    isMigratingZkBroker bool 2+
    incarnationId uuid
    brokerEpoch int64
    endPoints []
        name string
        host string
        port uint16
        securityProtocol int16
    features []
        name string
        minSupportedVersion int16
        maxSupportedVersion int16
    rack string?
    fenced bool = true
    inControlledShutdown bool 1+
    logDirs []uuid 3+ tag 0
    cordonedLogDirs []uuid? 4+ tag 1 = null
RegisterControllerRecord 0 flexible 0+
    controllerId int32
    incarnationId uuid
    zkMigrationReady bool
    endPoints []
        name string
        host string
        port uint16
        securityProtocol int16
    features []
        name string
        minSupportedVersion int16
        maxSupportedVersion int16
RemoveAccessControlEntryRecord 0 flexible 0+
    id uuid
RemoveDelegationTokenRecord 0 flexible 0+
    tokenId string
RemoveTopicRecord 0 flexible 0+
    topicId uuid
RemoveUserScramCredentialRecord 0 flexible 0+
    name string
    mechanism int8
TopicRecord 0 flexible 0+
    name string
    topicId uuid
UnfenceBrokerRecord 0 flexible 0+
    id int32
    epoch int64
UnregisterBrokerRecord 0 flexible 0+
    brokerId int32
    brokerEpoch int64
UserScramCredentialRecord 0 flexible 0+
    name string
    mechanism int8
    salt bytes
    storedKey bytes
    serverKey bytes
    iterations int32
ZkMigrationStateRecord 0 flexible 0+
    zkMigrationState int8
"""
)

KINDS = {
    number: _TABLE[name]
    for number, name in (
        (0, "RegisterBrokerRecord"),
        (1, "UnregisterBrokerRecord"),
        (2, "TopicRecord"),
        (3, "PartitionRecord"),
        (4, "ConfigRecord"),
        (5, "PartitionChangeRecord"),
        (7, "FenceBrokerRecord"),
        (8, "UnfenceBrokerRecord"),
        (9, "RemoveTopicRecord"),
        (10, "DelegationTokenRecord"),
        (11, "UserScramCredentialRecord"),
        (12, "FeatureLevelRecord"),
        (14, "ClientQuotaRecord"),
        (15, "ProducerIdsRecord"),
        (17, "BrokerRegistrationChangeRecord"),
        (18, "AccessControlEntryRecord"),
        (19, "RemoveAccessControlEntryRecord"),
        (20, "NoOpRecord"),
        (21, "ZkMigrationStateRecord"),
        (22, "RemoveUserScramCredentialRecord"),
        (23, "BeginTransactionRecord"),
        (24, "EndTransactionRecord"),
        (25, "AbortTransactionRecord"),
        (26, "RemoveDelegationTokenRecord"),
        (27, "RegisterControllerRecord"),
        (28, "ClearElrRecord"),
    )
}
"""By the number that a record begins with (Kafka: MetadataRecordType)."""
