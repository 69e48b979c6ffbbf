"""What Kafka's tools print for an error code: the text where the broker sent none of its own, and
the name of the Java exception.

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
    ErrorCode.topic_deletion_disabled: "Topic deletion is disabled.",
    ErrorCode.throttling_quota_exceeded: "The throttling quota has been exceeded.",
    ErrorCode.unknown_topic_id: "This server does not host this topic ID.",
}

# Where the exception is not named as the code.
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
}


def exception(error: KafkaError) -> str:
    """The full name of Kafka's exception for it."""
    words = error.code.name.split("_")
    name = _EXCEPTIONS.get(error.code) or "".join(map(str.capitalize, words))
    return f"org.apache.kafka.common.errors.{name}Exception"


def text(error: KafkaError) -> str:
    """The broker's text, or else the one that Kafka has for the code."""
    return error.message or _DEFAULTS.get(error.code) or error.code.name
