"""Records of Apache's brokers that ours do not have, for `k dump-log`: share and streams groups,
the state of share groups, the metadata of KRaft.

Pure: declarations, see kserver.wire.schema.
"""

from __future__ import annotations

from kserver.group import records
from kserver.wire.schema import KeyedRecords, keyed

_GROUPS = keyed(
    """
ShareGroupCurrentMemberAssignmentKey 0
    groupId string
    memberId string
ShareGroupCurrentMemberAssignmentValue 0 flexible 0+
    memberEpoch int32
    previousMemberEpoch int32
    state int8
    assignedPartitions []
        topicId uuid
        partitions []int32
ShareGroupMemberMetadataKey 0
    groupId string
    memberId string
ShareGroupMemberMetadataValue 0 flexible 0+
    rackId string?
    clientId string
    clientHost string
    subscribedTopicNames []string
ShareGroupMetadataKey 0
    groupId string
ShareGroupMetadataValue 0 flexible 0+
    epoch int32
    metadataHash int64
ShareGroupStatePartitionMetadataKey 0
    groupId string
ShareGroupStatePartitionMetadataValue 0 flexible 0+
    initializingTopics []
        topicId uuid
        topicName string
        partitions []int32
    initializedTopics []
        topicId uuid
        topicName string
        partitions []int32
    deletingTopics []
        topicId uuid
        topicName string
ShareGroupTargetAssignmentMemberKey 0
    groupId string
    memberId string
ShareGroupTargetAssignmentMemberValue 0 flexible 0+
    topicPartitions []
        topicId uuid
        partitions []int32
ShareGroupTargetAssignmentMetadataKey 0
    groupId string
ShareGroupTargetAssignmentMetadataValue 0 flexible 0+
    assignmentEpoch int32
    assignmentTimestamp int64 tag 0
StreamsGroupCurrentMemberAssignmentKey 0
    groupId string
    memberId string
StreamsGroupCurrentMemberAssignmentValue 0 flexible 0+
    memberEpoch int32
    previousMemberEpoch int32
    state int8
    activeTasks []
        subtopologyId string
        partitions []int32
        assignmentEpochs []int32? tag 0
    standbyTasks []
        subtopologyId string
        partitions []int32
        assignmentEpochs []int32? tag 0
    warmupTasks []
        subtopologyId string
        partitions []int32
        assignmentEpochs []int32? tag 0
    activeTasksPendingRevocation []
        subtopologyId string
        partitions []int32
        assignmentEpochs []int32? tag 0
    standbyTasksPendingRevocation []
        subtopologyId string
        partitions []int32
        assignmentEpochs []int32? tag 0
    warmupTasksPendingRevocation []
        subtopologyId string
        partitions []int32
        assignmentEpochs []int32? tag 0
StreamsGroupMemberMetadataKey 0
    groupId string
    memberId string
StreamsGroupMemberMetadataValue 0 flexible 0+
    instanceId string?
    rackId string?
    clientId string
    clientHost string
    rebalanceTimeoutMs int32 = -1
    topologyEpoch int32
    processId string
    userEndpoint {}? = null
        host string
        port uint16
    clientTags []
        key string
        value string
StreamsGroupMetadataKey 0
    groupId string
StreamsGroupMetadataValue 0 flexible 0+
    epoch int32
    metadataHash int64
    validatedTopologyEpoch int32 tag 0 = -1
    lastAssignmentConfigs []? tag 1
        key string
        value string
StreamsGroupTargetAssignmentMemberKey 0
    groupId string
    memberId string
StreamsGroupTargetAssignmentMemberValue 0 flexible 0+
    activeTasks []
        subtopologyId string
        partitions []int32
    standbyTasks []
        subtopologyId string
        partitions []int32
    warmupTasks []
        subtopologyId string
        partitions []int32
StreamsGroupTargetAssignmentMetadataKey 0
    groupId string
StreamsGroupTargetAssignmentMetadataValue 0 flexible 0+
    assignmentEpoch int32
    assignmentTimestamp int64 tag 0
StreamsGroupTopologyKey 0
    groupId string
StreamsGroupTopologyValue 0 flexible 0+
    epoch int32
    subtopologies []
        subtopologyId string
        sourceTopics []string
        sourceTopicRegex []string
        stateChangelogTopics []
            name string
            partitions int32
            replicationFactor int16
            topicConfigs []
                key string
                value string
        repartitionSinkTopics []string
        repartitionSourceTopics []
            name string
            partitions int32
            replicationFactor int16
            topicConfigs []
                key string
                value string
        copartitionGroups []
            sourceTopics []int16
            sourceTopicRegex []int16
            repartitionSourceTopics []int16
""",
    {
        10: "ShareGroupMemberMetadata",
        11: "ShareGroupMetadata",
        12: "ShareGroupTargetAssignmentMetadata",
        13: "ShareGroupTargetAssignmentMember",
        14: "ShareGroupCurrentMemberAssignment",
        15: "ShareGroupStatePartitionMetadata",
        17: "StreamsGroupMetadata",
        19: "StreamsGroupMemberMetadata",
        20: "StreamsGroupTargetAssignmentMetadata",
        21: "StreamsGroupTargetAssignmentMember",
        22: "StreamsGroupCurrentMemberAssignment",
        23: "StreamsGroupTopology",
    },
)
OFFSETS = KeyedRecords({**records.RECORDS.kinds, **_GROUPS.kinds})
"""All kinds of records in __consumer_offsets."""

SHARE_STATE = keyed(
    """
ShareSnapshotKey 0
    groupId string
    topicId uuid
    partition int32
ShareSnapshotValue 0 flexible 0+
    snapshotEpoch int32
    stateEpoch int32
    leaderEpoch int32
    startOffset int64
    deliveryCompleteCount int32 tag 0 = -1
    createTimestamp int64
    writeTimestamp int64
    stateBatches []
        firstOffset int64
        lastOffset int64
        deliveryState int8
        deliveryCount int16
ShareUpdateKey 0
    groupId string
    topicId uuid
    partition int32
ShareUpdateValue 0 flexible 0+
    snapshotEpoch int32
    leaderEpoch int32
    startOffset int64
    deliveryCompleteCount int32 tag 0 = -1
    stateBatches []
        firstOffset int64
        lastOffset int64
        deliveryState int8
        deliveryCount int16
""",
    {0: "ShareSnapshot", 1: "ShareUpdate"},
)
"""All kinds of records in __share_group_state."""
