"""Every metric of a broker: its name, what it counts, its labels.

Pure: values only.

man/k-metrics.7 is made of this table.  Who reads the values is kserver/observation, and
kserver/process for those of the process.  A name of Kafka means what it means there; where one
broker in one process makes a difference, the text says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kserver.metrics.names import GAUGE, METER, SUMMARY, Kind, Metric

TOPIC = ("topic",)
PARTITION = ("topic", "partition")
DIRECTORY = ("logDirectory",)
REQUEST = ("request",)
REQUEST_VERSION = ("request", "version")
NETWORK = ("listener", "networkProcessor")


def _topic(name: str, doc: str) -> Metric:
    return Metric("kafka.server", "BrokerTopicMetrics", f"{name}PerSec", METER, TOPIC, doc)


class _Type:
    """Declares metrics of one MBean type."""

    def __init__(self, group: str, type: str) -> None:
        self._group = group
        self._type = type

    def __call__(
        self, name: str, doc: str, kind: Kind = GAUGE, labels: tuple[str, ...] = ()
    ) -> Metric:
        return Metric(self._group, self._type, name, kind, labels, doc)


# What topics take and give: with a topic, and without one for all topics together.
MESSAGES_IN = _topic("MessagesIn", "Records appended")
BYTES_IN = _topic("BytesIn", "Bytes of record batches appended, as they came")
BYTES_OUT = _topic("BytesOut", "Bytes of record batches in answers to consumers")
BYTES_REJECTED = _topic("BytesRejected", "Bytes of record batches refused for their size")
PRODUCE_REQUESTS = _topic("TotalProduceRequests", "Produce requests, counted for each partition")
FAILED_PRODUCE_REQUESTS = _topic(
    "FailedProduceRequests",
    "Produce requests, counted for each partition, that failed; not those refused for a topic or "
    "leader that is elsewhere, too large a batch or a wrong checksum",
)
FETCH_REQUESTS = _topic("TotalFetchRequests", "Fetch requests, counted for each partition")
FAILED_FETCH_REQUESTS = _topic(
    "FailedFetchRequests", "Fetch requests, counted for each partition, that the disk failed"
)

REPLICATED_IN = Metric(
    "kafka.server",
    "BrokerTopicMetrics",
    "ReplicationBytesInPerSec",
    METER,
    (),
    "Bytes that followers here took from their leaders",
)
REPLICATED_OUT = Metric(
    "kafka.server",
    "BrokerTopicMetrics",
    "ReplicationBytesOutPerSec",
    METER,
    (),
    "Bytes that leaders here sent to their followers",
)

_replicas = _Type("kafka.server", "ReplicaManager")
REASSIGNING = _replicas("ReassigningPartitions", "Led partitions that replicas are added to")
ISR_SHRINKS = _replicas("IsrShrinksPerSec", "Followers that left the in-sync replicas", METER)
ISR_EXPANDS = _replicas("IsrExpandsPerSec", "Followers that joined the in-sync replicas", METER)
FAILED_ISR_UPDATES = _replicas(
    "FailedIsrUpdatesPerSec",
    "Changes of the in-sync replicas that the controller did not take",
    METER,
)
LEADERS = _replicas("LeaderCount", "Partitions that this broker leads")
PARTITIONS = _replicas("PartitionCount", "Partitions that this broker hosts")
OFFLINE_REPLICAS = _replicas("OfflineReplicaCount", "Replicas here whose disk failed")
UNDER_REPLICATED = _replicas(
    "UnderReplicatedPartitions", "Led partitions with a replica that is not in sync"
)
UNDER_MIN_ISR = _replicas(
    "UnderMinIsrPartitionCount",
    "Led partitions with less replicas in sync than min.insync.replicas",
)
AT_MIN_ISR = _replicas(
    "AtMinIsrPartitionCount", "Led partitions with just min.insync.replicas in sync"
)

_partition = _Type("kafka.cluster", "Partition")
REPLICAS_COUNT = _partition("ReplicasCount", "Replicas of a led partition", labels=PARTITION)
IN_SYNC_COUNT = _partition("InSyncReplicasCount", "Those in sync", labels=PARTITION)
PARTITION_UNDER_REPLICATED = _partition(
    "UnderReplicated", "1 where a led partition has a replica that is not in sync", labels=PARTITION
)
PARTITION_UNDER_MIN_ISR = _partition(
    "UnderMinIsr", "1 where less than min.insync.replicas are in sync", labels=PARTITION
)
PARTITION_AT_MIN_ISR = _partition(
    "AtMinIsr", "1 where just min.insync.replicas are in sync", labels=PARTITION
)

REPLICA = ("clientId",)
_fetchers = _Type("kafka.server", "ReplicaFetcherManager")
MAX_LAG = _fetchers(
    "MaxLag", "The most committed records that a follower here lacks", labels=REPLICA
)
MIN_FETCH_RATE = _fetchers(
    "MinFetchRate",
    "Fetches a second of the slowest fetcher, since it began",
    labels=REPLICA,
)
DEAD_FETCHERS = _fetchers(
    "DeadThreadCount", "Fetchers that died: none, for a broker stops with them", labels=REPLICA
)
FAILED_PARTITIONS = _fetchers(
    "FailedPartitionsCount",
    "Followers that were refused and wait for their next try",
    labels=REPLICA,
)
_FETCHER = ("clientId", "brokerHost", "brokerPort")
FETCHER_REQUESTS = Metric(
    "kafka.server",
    "FetcherStats",
    "RequestsPerSec",
    METER,
    _FETCHER,
    "Fetches that a fetcher was answered",
)
FETCHER_BYTES = Metric(
    "kafka.server", "FetcherStats", "BytesPerSec", METER, _FETCHER, "Bytes of these answers"
)
FETCHER_LAG = Metric(
    "kafka.server",
    "FetcherLagMetrics",
    "ConsumerLag",
    GAUGE,
    ("clientId", "topic", "partition"),
    "Committed records that a follower lacks",
)

_controller = _Type("kafka.controller", "KafkaController")
ACTIVE_CONTROLLERS = _controller("ActiveControllerCount", "1 on the broker that is the controller")
CONTROLLER_STATE = _controller(
    "ControllerState",
    "What the broker does as controller: 0 nothing; 1 finds out who is it; 2 brokers came or went; "
    "3 topics are made or grow; 4 topics are deleted; 5 partitions move; 6 and 7 leaderships are "
    "given back, by itself and as asked; 8 a broker is about to stop; 9 in-sync replicas change; "
    "10 a broker has answered which replicas it cannot serve; 11 a disk failed; 13 and 14 unclean "
    "elections are allowed, by a broker's and a topic's settings; 17 features change",
)
OFFLINE_PARTITIONS = _controller("OfflinePartitionsCount", "Partitions without a leader")
PREFERRED_IMBALANCE = _controller(
    "PreferredReplicaImbalanceCount", "Partitions that their first replica does not lead"
)
ACTIVE_BROKERS = _controller("ActiveBrokerCount", "Brokers of the cluster that live")
FENCED_BROKERS = _controller(
    "FencedBrokerCount", "Brokers whose process is proven gone, and whose session has not ended yet"
)
TOPICS = _controller("GlobalTopicCount", "Topics of the cluster")
ALL_PARTITIONS = _controller("GlobalPartitionCount", "Partitions of the cluster")
TOPICS_TO_DELETE = _controller("TopicsToDeleteCount", "Topics that are being deleted")
REPLICAS_TO_DELETE = _controller("ReplicasToDeleteCount", "Replicas of theirs that are left")
TOPICS_INELIGIBLE = _controller(
    "TopicsIneligibleToDeleteCount",
    "Topics whose deletion waits for a broker that is away, or whose disk failed",
)
REPLICAS_INELIGIBLE = _controller(
    "ReplicasIneligibleToDeleteCount", "Replicas that their deletion waits for"
)
_elections = _Type("kafka.controller", "ControllerStats")
ELECTION_TIMES = _elections(
    "LeaderElectionRateAndTimeMs", "Time in ms to elect and note leaders, for each event", SUMMARY
)
UNCLEAN_ELECTIONS = _elections(
    "UncleanLeaderElectionsPerSec", "Leaders elected that were not in sync", METER
)
_events = _Type("kafka.controller", "ControllerEventManager")
EVENT_QUEUE_TIMES = _events(
    "EventQueueTimeMs", "Time in ms that an event waited for those before it", SUMMARY
)
EVENT_QUEUE = _events("EventQueueSize", "Events that wait")
_channels = _Type("kafka.controller", "ControllerChannelManager")
CHANNEL_QUEUES = _channels("TotalQueueSize", "Requests to other brokers that wait or are under way")
CHANNEL_QUEUE = _channels("QueueSize", "Those to one broker", labels=("broker_id",))
CHANNEL_TIMES = _channels(
    "RequestRateAndQueueTimeMs",
    "Time in ms that a request to one broker waited for those before it",
    SUMMARY,
    ("broker_id",),
)

_log = _Type("kafka.log", "Log")
LOG_SIZE = _log("Size", "Bytes of a log's segments", labels=PARTITION)
LOG_SEGMENTS = _log("NumLogSegments", "Segments of a log", labels=PARTITION)
LOG_START = _log("LogStartOffset", "First offset of a log", labels=PARTITION)
LOG_END = _log("LogEndOffset", "Offset that the next record of a log gets", labels=PARTITION)

_logs = _Type("kafka.log", "LogManager")
OFFLINE_DIRECTORIES = _logs("OfflineLogDirectoryCount", "Log directories whose disk failed")
DIRECTORY_OFFLINE = _logs(
    "LogDirectoryOffline", "1 where the disk of a log directory failed", labels=DIRECTORY
)
FLUSH_TIMES = Metric(
    "kafka.log",
    "LogFlushStats",
    "LogFlushRateAndTimeMs",
    SUMMARY,
    (),
    "Flushes of logs to disk, and the milliseconds that each waited for it",
)

_cleaner = _Type("kafka.log", "LogCleaner")
CLEANING_TIME = _cleaner(
    "max-clean-time-secs", "The longest cleaning of a compacted log, in seconds"
)
CLEANER_RECOPY = _cleaner(
    "cleaner-recopy-percent", "Of the bytes that cleanings read, the percentage that they kept"
)
UNCLEANABLE = _Type("kafka.log", "LogCleanerManager")(
    "uncleanable-partitions-count",
    "Compacted logs of a directory that cannot be cleaned until someone has looked at them",
    labels=DIRECTORY,
)

_requests = _Type("kafka.network", "RequestMetrics")
REQUESTS = _requests(
    "RequestsPerSec", "Requests answered, by API and version", METER, REQUEST_VERSION
)
REQUEST_TIMES = _requests(
    "TotalTimeMs",
    "Milliseconds from a request's last byte to its answer, waiting for records or the disk "
    "included, sending the answer not",
    SUMMARY,
    REQUEST,
)

NETWORK_IDLE = Metric(
    "kafka.network",
    "SocketServer",
    "NetworkProcessorAvgIdlePercent",
    GAUGE,
    (),
    "Share of the last metrics.num.samples times metrics.sample.window.ms that the thread which "
    "serves clients did not compute, from 0 to 1; one thread is network processor and request "
    "handler here",
)
HANDLER_IDLE = Metric(
    "kafka.server",
    "KafkaRequestHandlerPool",
    "RequestHandlerAvgIdlePercent",
    GAUGE,
    (),
    "The same share as NetworkProcessorAvgIdlePercent",
)


def _network(name: str, doc: str, kind: Kind = GAUGE) -> Metric:
    return Metric("kafka.server", "socket-server-metrics", name, kind, NETWORK, doc, attribute=True)


CONNECTIONS = _network("connection-count", "Connections of a listener")
CONNECTIONS_MADE = _network("connection-creation", "Connections that a listener took", METER)

_server = _Type("kafka.server", "KafkaServer")
BROKER_STATE = _server(
    "BrokerState", "1 starting, 2 recovering logs, 3 serving, 6 stopping: letting nobody in"
)
DISK_READ = _server("linux-disk-read-bytes", "Bytes that the process read from disks")
DISK_WRITTEN = _server("linux-disk-write-bytes", "Bytes that the process wrote to disks")
FETCH_SESSIONS = Metric(
    "kafka.server",
    "FetchSessionCache",
    "NumIncrementalFetchSessions",
    GAUGE,
    (),
    "Sessions of incremental fetches (KIP-227)",
)
WAITING = Metric(
    "kafka.server",
    "DelayedOperationPurgatory",
    "PurgatorySize",
    GAUGE,
    (),
    "Produce and fetch requests that wait: for records, for the disk, for their time",
)


_coordinator = _Type("kafka.coordinator.group", "GroupMetadataManager")
_OF_CLASSIC = "Classic groups coordinated here"
OFFSETS = _coordinator("NumOffsets", "Offsets that groups coordinated here have committed")
CLASSIC_GROUPS = _coordinator("NumGroups", _OF_CLASSIC)


def _classic(state: str) -> Metric:
    return _coordinator(f"NumGroups{state}", f"{_OF_CLASSIC}, in state {state}")


EMPTY_GROUPS = _classic("Empty")
PREPARING_GROUPS = _classic("PreparingRebalance")
COMPLETING_GROUPS = _classic("CompletingRebalance")
STABLE_GROUPS = _classic("Stable")
DEAD_GROUPS = _classic("Dead")


def _groups(name: str, doc: str, labels: tuple[str, ...] = ()) -> Metric:
    type = "group-coordinator-metrics"
    return Metric("kafka.server", type, name, GAUGE, labels, doc, attribute=True)


GROUPS = _groups("group-count", "Groups coordinated here, by their protocol", ("protocol",))
CONSUMER_STATES = ("Empty", "Assigning", "Reconciling", "Stable", "Dead")
CONSUMER_GROUPS = _groups(
    "consumer-group-count", "Groups of KIP-848 coordinated here, by their state", ("state",)
)
OFFSETS_COMMITTED = _groups("offset-commit-count", "Offsets committed so far")
OFFSETS_EXPIRED = _groups("offset-expiration-count", "Offsets forgotten in time so far")
OFFSETS_DELETED = _groups("offset-deletion-count", "Offsets deleted on demand so far")
REBALANCES = _groups(
    "group-completed-rebalance-count", "Rebalances of classic groups that were completed so far"
)


def _own(name: str, doc: str, kind: Kind = GAUGE, labels: tuple[str, ...] = ()) -> Metric:
    return Metric("", "", name, kind, labels, doc)


# As kafka_exporter names them.  Each broker tells of the partitions that it leads.
BROKERS = _own("kafka_brokers", "Brokers of the cluster")
TOPIC_PARTITIONS = _own("kafka_topic_partitions", "Partitions of a topic", labels=TOPIC)
CURRENT_OFFSET = _own(
    "kafka_topic_partition_current_offset", "High watermark of a partition", labels=PARTITION
)
OLDEST_OFFSET = _own(
    "kafka_topic_partition_oldest_offset", "First offset of a partition", labels=PARTITION
)
IN_SYNC = _own(
    "kafka_topic_partition_in_sync_replica", "Replicas of a partition in sync", labels=PARTITION
)
LEADER = _own("kafka_topic_partition_leader", "Broker that leads a partition", labels=PARTITION)
PREFERRED = _own(
    "kafka_topic_partition_leader_is_preferred",
    "1 where the preferred broker leads a partition",
    labels=PARTITION,
)
REPLICAS = _own("kafka_topic_partition_replicas", "Replicas of a partition", labels=PARTITION)
IS_UNDER_REPLICATED = _own(
    "kafka_topic_partition_under_replicated_partition",
    "1 where a partition has a replica that is not in sync",
    labels=PARTITION,
)

CLEANINGS = _own("k_log_cleanings_total", "Cleanings of compacted logs", METER)

# As Prometheus' own clients name them.
CPU = _own("process_cpu_seconds_total", "User and system time of the process", METER)
RESIDENT = _own("process_resident_memory_bytes", "Memory of the process that is in RAM")
VIRTUAL = _own("process_virtual_memory_bytes", "Addresses that the process has")
OPEN_FILES = _own("process_open_fds", "Files and sockets that the process has open")
MAX_FILES = _own("process_max_fds", "Files and sockets that it may have open")
START_TIME = _own("process_start_time_seconds", "When the process began, in seconds since 1970")
BUILD = _own("k_build_info", "Always 1; the label is the version", labels=("version",))

SECTIONS: Mapping[str, Sequence[Metric]] = {
    "Topics": (
        MESSAGES_IN,
        BYTES_IN,
        BYTES_OUT,
        BYTES_REJECTED,
        PRODUCE_REQUESTS,
        FAILED_PRODUCE_REQUESTS,
        FETCH_REQUESTS,
        FAILED_FETCH_REQUESTS,
    ),
    "Replicas": (
        LEADERS,
        PARTITIONS,
        OFFLINE_REPLICAS,
        UNDER_REPLICATED,
        UNDER_MIN_ISR,
        AT_MIN_ISR,
        REPLICAS_COUNT,
        IN_SYNC_COUNT,
        PARTITION_UNDER_REPLICATED,
        PARTITION_UNDER_MIN_ISR,
        PARTITION_AT_MIN_ISR,
        REASSIGNING,
        ISR_SHRINKS,
        ISR_EXPANDS,
        FAILED_ISR_UPDATES,
        REPLICATED_IN,
        REPLICATED_OUT,
    ),
    "Followers": (
        MAX_LAG,
        MIN_FETCH_RATE,
        DEAD_FETCHERS,
        FAILED_PARTITIONS,
        FETCHER_LAG,
        FETCHER_REQUESTS,
        FETCHER_BYTES,
    ),
    "Controller": (
        ACTIVE_CONTROLLERS,
        CONTROLLER_STATE,
        OFFLINE_PARTITIONS,
        PREFERRED_IMBALANCE,
        ACTIVE_BROKERS,
        FENCED_BROKERS,
        TOPICS,
        ALL_PARTITIONS,
        TOPICS_TO_DELETE,
        REPLICAS_TO_DELETE,
        TOPICS_INELIGIBLE,
        REPLICAS_INELIGIBLE,
        ELECTION_TIMES,
        UNCLEAN_ELECTIONS,
        EVENT_QUEUE_TIMES,
        EVENT_QUEUE,
        CHANNEL_QUEUES,
        CHANNEL_QUEUE,
        CHANNEL_TIMES,
    ),
    "Logs": (
        LOG_SIZE,
        LOG_SEGMENTS,
        LOG_START,
        LOG_END,
        OFFLINE_DIRECTORIES,
        DIRECTORY_OFFLINE,
        FLUSH_TIMES,
        CLEANINGS,
        CLEANING_TIME,
        CLEANER_RECOPY,
        UNCLEANABLE,
    ),
    "Requests and connections": (
        REQUESTS,
        REQUEST_TIMES,
        NETWORK_IDLE,
        HANDLER_IDLE,
        CONNECTIONS,
        CONNECTIONS_MADE,
        FETCH_SESSIONS,
        WAITING,
    ),
    "Groups": (
        OFFSETS,
        CLASSIC_GROUPS,
        EMPTY_GROUPS,
        PREPARING_GROUPS,
        COMPLETING_GROUPS,
        STABLE_GROUPS,
        DEAD_GROUPS,
        GROUPS,
        CONSUMER_GROUPS,
        OFFSETS_COMMITTED,
        OFFSETS_EXPIRED,
        OFFSETS_DELETED,
        REBALANCES,
    ),
    "As kafka_exporter names them": (
        BROKERS,
        TOPIC_PARTITIONS,
        CURRENT_OFFSET,
        OLDEST_OFFSET,
        IN_SYNC,
        LEADER,
        PREFERRED,
        REPLICAS,
        IS_UNDER_REPLICATED,
    ),
    "Server and process": (
        BROKER_STATE,
        DISK_READ,
        DISK_WRITTEN,
        CPU,
        RESIDENT,
        VIRTUAL,
        OPEN_FILES,
        MAX_FILES,
        START_TIME,
        BUILD,
    ),
}
