"""Texts of Kafka's tools for error codes without a text of the broker, and names of the Java
exceptions.

Pure: a table.
"""

from __future__ import annotations

from kserver.errors import ErrorCode, KafkaError

_DEFAULTS = {
    ErrorCode.unknown_server_error: "The server experienced an unexpected error when processing "
    "the request.",
    ErrorCode.offset_out_of_range: "The requested offset is not within the range of offsets "
    "maintained by the server.",
    ErrorCode.corrupt_message: "This message has failed its CRC checksum, exceeds the valid size, "
    "has a null key for a compacted topic, or is otherwise corrupt.",
    ErrorCode.unknown_topic_or_partition: "This server does not host this topic-partition.",
    ErrorCode.leader_not_available: "There is no leader for this topic-partition as we are in the "
    "middle of a leadership election.",
    ErrorCode.not_leader_or_follower: "For requests intended only for the leader, this error "
    "indicates that the broker is not the current leader. For requests intended for any replica, "
    "this error indicates that the broker is not a replica of the topic partition.",
    ErrorCode.request_timed_out: "The request timed out.",
    ErrorCode.broker_not_available: "The broker is not available.",
    ErrorCode.message_too_large: "The request included a message larger than the max message size "
    "the server will accept.",
    ErrorCode.network_exception: "The server disconnected before a response was received.",
    ErrorCode.invalid_topic_exception: "The request attempted to perform an operation on an "
    "invalid topic.",
    ErrorCode.record_list_too_large: "The request included message batch larger than the "
    "configured segment size on the server.",
    ErrorCode.not_enough_replicas: "Messages are rejected since there are fewer in-sync replicas "
    "than required.",
    ErrorCode.not_enough_replicas_after_append: "Messages are written to the log, but to fewer "
    "in-sync replicas than required.",
    ErrorCode.coordinator_load_in_progress: "The coordinator is loading and hence can't process "
    "requests.",
    ErrorCode.coordinator_not_available: "The coordinator is not available.",
    ErrorCode.not_coordinator: "This is not the correct coordinator.",
    ErrorCode.invalid_group_id: "The group id is invalid.",
    ErrorCode.unknown_member_id: "The coordinator is not aware of this member.",
    ErrorCode.non_empty_group: "The group is not empty.",
    ErrorCode.group_id_not_found: "The group id does not exist.",
    ErrorCode.group_subscribed_to_topic: "Deleting offsets of a topic is forbidden while the "
    "consumer group is actively subscribed to it.",
    ErrorCode.topic_authorization_failed: "Topic authorization failed.",
    ErrorCode.group_authorization_failed: "Group authorization failed.",
    ErrorCode.cluster_authorization_failed: "Cluster authorization failed.",
    ErrorCode.invalid_timestamp: "The timestamp of the message is out of acceptable range.",
    ErrorCode.unsupported_version: "The version of API is not supported.",
    ErrorCode.topic_already_exists: "Topic with this name already exists.",
    ErrorCode.invalid_partitions: "Number of partitions is below 1.",
    ErrorCode.invalid_replication_factor: "Replication factor is below 1 or larger than the number "
    "of available brokers.",
    ErrorCode.invalid_replica_assignment: "Replica assignment is invalid.",
    ErrorCode.invalid_config: "Configuration is invalid.",
    ErrorCode.not_controller: "This is not the correct controller for this cluster.",
    ErrorCode.invalid_request: "This most likely occurs because of a request being malformed by "
    "the client library or the message was sent to an incompatible broker. See the broker logs for "
    "more details.",
    ErrorCode.log_dir_not_found: "The user-specified log directory is not found in the broker "
    "config.",
    ErrorCode.policy_violation: "Request parameters do not satisfy the configured policy.",
    ErrorCode.kafka_storage_error: "Disk error when trying to access log file on the disk.",
    ErrorCode.reassignment_in_progress: "A partition reassignment is in progress.",
    ErrorCode.no_reassignment_in_progress: "No partition reassignment is in progress.",
    ErrorCode.topic_deletion_disabled: "Topic deletion is disabled.",
    ErrorCode.throttling_quota_exceeded: "The throttling quota has been exceeded.",
    ErrorCode.offset_metadata_too_large: "The metadata field of the offset request was too large.",
    ErrorCode.illegal_generation: "Specified group generation id is not valid.",
    ErrorCode.inconsistent_group_protocol: "The group member's supported protocols are "
    "incompatible with those of existing members or first group member tried to join with empty "
    "protocol type or empty protocol list.",
    ErrorCode.invalid_session_timeout: "The session timeout is not within the range allowed by the "
    "broker (as configured by group.min.session.timeout.ms and group.max.session.timeout.ms).",
    ErrorCode.rebalance_in_progress: "The group is rebalancing, so a rejoin is needed.",
    ErrorCode.group_max_size_reached: "The consumer group has reached its max size.",
    ErrorCode.fenced_instance_id: "The broker rejected this static consumer since another consumer "
    "with the same group.instance.id has registered with a different member.id.",
    ErrorCode.unreleased_instance_id: "The instance ID is still used by another member in the "
    "consumer group. That member must leave first.",
    ErrorCode.unsupported_assignor: "The assignor or its version range is not supported by the "
    "consumer group.",
    ErrorCode.unknown_topic_id: "This server does not host this topic ID.",
    ErrorCode.preferred_leader_not_available: "The preferred leader was not available.",
    ErrorCode.eligible_leaders_not_available: "Eligible topic partition leaders are not available.",
    ErrorCode.election_not_needed: "Leader election not needed for topic partition.",
}

# Exceptions that are not named after their code.
_EXCEPTIONS = {
    ErrorCode.unknown_server_error: "UnknownServer",
    ErrorCode.request_timed_out: "Timeout",
    ErrorCode.message_too_large: "RecordTooLarge",
    ErrorCode.network_exception: "Network",
    ErrorCode.invalid_topic_exception: "InvalidTopic",
    ErrorCode.record_list_too_large: "RecordBatchTooLarge",
    ErrorCode.topic_authorization_failed: "TopicAuthorization",
    ErrorCode.group_authorization_failed: "GroupAuthorization",
    ErrorCode.cluster_authorization_failed: "ClusterAuthorization",
    ErrorCode.topic_already_exists: "TopicExists",
    ErrorCode.invalid_config: "InvalidConfiguration",
    ErrorCode.kafka_storage_error: "KafkaStorage",
    ErrorCode.non_empty_group: "GroupNotEmpty",
}


def exception(error: KafkaError) -> str:
    """Return the full name of Kafka's exception for an error."""
    words = error.code.name.split("_")
    name = _EXCEPTIONS.get(error.code) or "".join(map(str.capitalize, words))
    return f"org.apache.kafka.common.errors.{name}Exception"


def text(error: KafkaError) -> str:
    """Return the broker's text, or else Kafka's text for the code."""
    return error.message or _DEFAULTS.get(error.code) or error.code.name
