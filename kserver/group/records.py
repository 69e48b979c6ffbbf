"""Schemas of the records of __consumer_offsets: committed offsets and groups, as in Kafka.

    number   key and value                     content
    0, 1     OffsetCommit                      committed offset of a group and partition
    2        GroupMetadata                     a classic group, with its members
    3 to 8   ConsumerGroup...                  a group of KIP-848, one record for each part of it
    16       ConsumerGroupRegularExpression    topics that a pattern matched

A record without a value is a tombstone of its key.  `subscription` and `assignment` of a classic
group's members are opaque bytes of the clients; consumers write a version of two bytes, and then
MEMBER_PROTOCOL.

Pure: values and bytes only.
"""

from __future__ import annotations

from kserver.errors import ProtocolError
from kserver.wire.schema import Schema, Values, keyed, schemas

OFFSET_COMMIT = 1
GROUP_METADATA = 2
CONSUMERS = "consumer"
"""`protocolType` of consumers."""

RECORDS = keyed(
    """
ConsumerGroupCurrentMemberAssignmentKey 0
    groupId string
    memberId string
ConsumerGroupCurrentMemberAssignmentValue 0 flexible 0+
    memberEpoch int32
    previousMemberEpoch int32
    state int8
    assignedPartitions []
        topicId uuid
        partitions []int32
        assignmentEpochs []int32? tag 0
    partitionsPendingRevocation []
        topicId uuid
        partitions []int32
        assignmentEpochs []int32? tag 0
ConsumerGroupMemberMetadataKey 0
    groupId string
    memberId string
ConsumerGroupMemberMetadataValue 0 flexible 0+
    instanceId string?
    rackId string?
    clientId string
    clientHost string
    subscribedTopicNames []string
    subscribedTopicRegex string?
    rebalanceTimeoutMs int32 = -1
    serverAssignor string?
    classicMemberMetadata {}? tag 0
        sessionTimeoutMs int32
        supportedProtocols []
            name string
            metadata bytes
ConsumerGroupMetadataKey 0
    groupId string
ConsumerGroupMetadataValue 0 flexible 0+
    epoch int32
    metadataHash int64 tag 0
ConsumerGroupPartitionMetadataKey 0
    groupId string
ConsumerGroupPartitionMetadataValue 0 flexible 0+
    topics []
        topicId uuid
        topicName string
        numPartitions int32
        partitionMetadata []
            partition int32
            racks []string
ConsumerGroupRegularExpressionKey 0
    groupId string
    regularExpression string
ConsumerGroupRegularExpressionValue 0 flexible 0+
    topics []string
    version int64
    timestamp int64
ConsumerGroupTargetAssignmentMemberKey 0
    groupId string
    memberId string
ConsumerGroupTargetAssignmentMemberValue 0 flexible 0+
    topicPartitions []
        topicId uuid
        partitions []int32
ConsumerGroupTargetAssignmentMetadataKey 0
    groupId string
ConsumerGroupTargetAssignmentMetadataValue 0 flexible 0+
    assignmentEpoch int32
    assignmentTimestamp int64 tag 0
GroupMetadataKey 0
    group string
GroupMetadataValue 0-4 flexible 4+
    protocolType string
    generation int32
    protocol string?
    leader string?
    currentStateTimestamp int64 2+ = -1
    members []
        memberId string
        groupInstanceId string? 3+ = null
        clientId string
        clientHost string
        rebalanceTimeout int32 1+ = -1
        sessionTimeout int32
        subscription bytes
        assignment bytes
LegacyOffsetCommitKey 0
    group string
    topic string
    partition int32
LegacyOffsetCommitValue 0
    offset int64
    metadata string
    commitTimestamp int64
OffsetCommitKey 0
    group string
    topic string
    partition int32
OffsetCommitValue 0-4 flexible 4+
    offset int64
    leaderEpoch int32 3+ = -1
    metadata string
    commitTimestamp int64
    expireTimestamp int64 1 = -1
    topicId uuid 4+ tag 0
""",
    {
        0: "LegacyOffsetCommit",
        OFFSET_COMMIT: "OffsetCommit",
        GROUP_METADATA: "GroupMetadata",
        3: "ConsumerGroupMetadata",
        4: "ConsumerGroupPartitionMetadata",
        5: "ConsumerGroupMemberMetadata",
        6: "ConsumerGroupTargetAssignmentMetadata",
        7: "ConsumerGroupTargetAssignmentMember",
        8: "ConsumerGroupCurrentMemberAssignment",
        16: "ConsumerGroupRegularExpression",
    },
)

MEMBER_PROTOCOL = schemas(
    """
ConsumerProtocolSubscription 0-3
    topics []string
    userData bytes? = null
    ownedPartitions [] 1+
        topic string
        partitions []int32
    generationId int32 2+ = -1
    rackId string? 3+ = null
ConsumerProtocolAssignment 0-3
    assignedPartitions []
        topic string
        partitions []int32
    userData bytes? = null
"""
)
"""What a consumer says of itself when it joins, and what its group's leader answers."""
SUBSCRIPTION = MEMBER_PROTOCOL["ConsumerProtocolSubscription"]
ASSIGNMENT = MEMBER_PROTOCOL["ConsumerProtocolAssignment"]


def version_of(data: bytes) -> int:
    """Version of a subscription or assignment, which its first two bytes hold."""
    return int.from_bytes(data[:2])


def decoded(schema: Schema, data: bytes) -> Values:
    """Decode a subscription or assignment; unknown versions begin as the last known one does.

    Raises ProtocolError.
    """
    if len(data) < 2:
        raise ProtocolError(f"{schema.name} is truncated")
    return schema.decode(min(version_of(data), schema.last), memoryview(data)[2:])
