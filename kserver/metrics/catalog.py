"""Every metric of a broker: its name, meaning and labels.

Pure: values only.

man/k-metrics.7 is generated from this table.  kserver/observation reads the values, and
kserver/process those of the process.  A metric with Kafka's name has Kafka's meaning; where one
broker in one process makes a difference, the text says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kserver.metrics.names import GAUGE, METER, SUMMARY, Metric, MetricKind

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
        self, name: str, doc: str, kind: MetricKind = GAUGE, labels: tuple[str, ...] = ()
    ) -> Metric:
        return Metric(self._group, self._type, name, kind, labels, doc)


# Traffic of topics: samples for each topic, and one without a label for all topics together.
MESSAGES_IN = _topic("MessagesIn", "Records appended")
BYTES_IN = _topic("BytesIn", "Bytes of record batches appended, as received")
BYTES_OUT = _topic("BytesOut", "Bytes of record batches in responses to consumers")
BYTES_REJECTED = _topic(
    "BytesRejected", "Bytes of record batches refused because they are too large"
)
PRODUCE_REQUESTS = _topic("TotalProduceRequests", "Produce requests, counted for each partition")
FAILED_PRODUCE_REQUESTS = _topic(
    "FailedProduceRequests",
    "Produce requests, counted for each partition, that failed; except for an unknown topic, a "
    "wrong leader, a batch that is too large or a wrong checksum",
)
FETCH_REQUESTS = _topic("TotalFetchRequests", "Fetch requests, counted for each partition")
FAILED_FETCH_REQUESTS = _topic(
    "FailedFetchRequests",
    "Fetch requests, counted for each partition, that failed because of the disk",
)

REPLICATED_IN = Metric(
    "kafka.server",
    "BrokerTopicMetrics",
    "ReplicationBytesInPerSec",
    METER,
    (),
    "Bytes that followers on this broker fetched from their leaders",
)
REPLICATED_OUT = Metric(
    "kafka.server",
    "BrokerTopicMetrics",
    "ReplicationBytesOutPerSec",
    METER,
    (),
    "Bytes that leaders on this broker sent to their followers",
)

_replicas = _Type("kafka.server", "ReplicaManager")
REASSIGNING = _replicas(
    "ReassigningPartitions", "Led partitions to which a reassignment is adding replicas"
)
ISR_SHRINKS = _replicas("IsrShrinksPerSec", "Followers that left the in-sync replicas", METER)
ISR_EXPANDS = _replicas("IsrExpandsPerSec", "Followers that joined the in-sync replicas", METER)
FAILED_ISR_UPDATES = _replicas(
    "FailedIsrUpdatesPerSec",
    "Changes of the in-sync replicas that the controller refused",
    METER,
)
LEADERS = _replicas("LeaderCount", "Partitions that this broker leads")
PARTITIONS = _replicas("PartitionCount", "Partitions that this broker hosts")
OFFLINE_REPLICAS = _replicas("OfflineReplicaCount", "Replicas on this broker whose disk failed")
UNDER_REPLICATED = _replicas(
    "UnderReplicatedPartitions", "Led partitions with a replica that is not in sync"
)
UNDER_MIN_ISR = _replicas(
    "UnderMinIsrPartitionCount",
    "Led partitions with fewer in-sync replicas than min.insync.replicas",
)
AT_MIN_ISR = _replicas(
    "AtMinIsrPartitionCount", "Led partitions with exactly min.insync.replicas in-sync replicas"
)

_partition = _Type("kafka.cluster", "Partition")
REPLICAS_COUNT = _partition("ReplicasCount", "Replicas of a led partition", labels=PARTITION)
IN_SYNC_COUNT = _partition(
    "InSyncReplicasCount", "In-sync replicas of a led partition", labels=PARTITION
)
PARTITION_UNDER_REPLICATED = _partition(
    "UnderReplicated", "1 if a led partition has a replica that is not in sync", labels=PARTITION
)
PARTITION_UNDER_MIN_ISR = _partition(
    "UnderMinIsr", "1 if fewer than min.insync.replicas are in sync", labels=PARTITION
)
PARTITION_AT_MIN_ISR = _partition(
    "AtMinIsr", "1 if exactly min.insync.replicas are in sync", labels=PARTITION
)

REPLICA = ("clientId",)
_fetchers = _Type("kafka.server", "ReplicaFetcherManager")
MAX_LAG = _fetchers(
    "MaxLag",
    "Largest number of committed records that a follower on this broker lags behind",
    labels=REPLICA,
)
MIN_FETCH_RATE = _fetchers(
    "MinFetchRate",
    "Fetches per second of the slowest fetcher, averaged over the last minute",
    labels=REPLICA,
)
DEAD_FETCHERS = _fetchers(
    "DeadThreadCount",
    "Fetchers that died; always 0, because the broker stops if a fetcher dies",
    labels=REPLICA,
)
FAILED_PARTITIONS = _fetchers(
    "FailedPartitionsCount",
    "Followers whose fetch was refused and that wait for their next retry",
    labels=REPLICA,
)
_FETCHER = ("clientId", "brokerHost", "brokerPort")
FETCHER_REQUESTS = Metric(
    "kafka.server",
    "FetcherStats",
    "RequestsPerSec",
    METER,
    _FETCHER,
    "Fetch responses that a fetcher received",
)
FETCHER_BYTES = Metric(
    "kafka.server",
    "FetcherStats",
    "BytesPerSec",
    METER,
    _FETCHER,
    "Bytes of the fetch responses that a fetcher received",
)
FETCHER_LAG = Metric(
    "kafka.server",
    "FetcherLagMetrics",
    "ConsumerLag",
    GAUGE,
    ("clientId", "topic", "partition"),
    "Committed records that a follower lags behind",
)

_controller = _Type("kafka.controller", "KafkaController")
ACTIVE_CONTROLLERS = _controller("ActiveControllerCount", "1 on the broker that is the controller")
CONTROLLER_STATE = _controller(
    "ControllerState",
    "Current task of the controller: 0 idle; 1 controller election; 2 broker change; 3 topic "
    "creation or new partitions; 4 topic deletion; 5 reassignment; 6 automatic and 7 requested "
    "election of preferred leaders; 8 controlled shutdown of a broker; 9 change of in-sync "
    "replicas; 10 response to LeaderAndIsr; 11 log directory failure; unclean elections enabled "
    "13 by a broker config, 14 by a topic config; 17 feature update",
)
OFFLINE_PARTITIONS = _controller("OfflinePartitionsCount", "Partitions without a leader")
PREFERRED_IMBALANCE = _controller(
    "PreferredReplicaImbalanceCount", "Partitions whose leader is not the preferred (first) replica"
)
ACTIVE_BROKERS = _controller("ActiveBrokerCount", "Registered brokers of the cluster")
FENCED_BROKERS = _controller(
    "FencedBrokerCount",
    "Brokers whose process has ended but whose ZooKeeper session has not expired yet",
)
TOPICS = _controller("GlobalTopicCount", "Topics of the cluster")
ALL_PARTITIONS = _controller("GlobalPartitionCount", "Partitions of the cluster")
TOPICS_TO_DELETE = _controller("TopicsToDeleteCount", "Topics that are being deleted")
REPLICAS_TO_DELETE = _controller(
    "ReplicasToDeleteCount", "Remaining replicas of topics that are being deleted"
)
TOPICS_INELIGIBLE = _controller(
    "TopicsIneligibleToDeleteCount",
    "Topics whose deletion waits for an unavailable broker or a failed disk",
)
REPLICAS_INELIGIBLE = _controller(
    "ReplicasIneligibleToDeleteCount",
    "Replicas whose deletion waits for an unavailable broker or a failed disk",
)
_elections = _Type("kafka.controller", "ControllerStats")
ELECTION_TIMES = _elections(
    "LeaderElectionRateAndTimeMs",
    "Time in ms to elect leaders and store the result, for each event",
    SUMMARY,
)
UNCLEAN_ELECTIONS = _elections(
    "UncleanLeaderElectionsPerSec", "Elections of a leader that was not in sync", METER
)
_events = _Type("kafka.controller", "ControllerEventManager")
EVENT_QUEUE_TIMES = _events(
    "EventQueueTimeMs", "Time in ms that an event waited in the controller's queue", SUMMARY
)
EVENT_QUEUE = _events("EventQueueSize", "Events waiting in the controller's queue")
_channels = _Type("kafka.controller", "ControllerChannelManager")
CHANNEL_QUEUES = _channels(
    "TotalQueueSize", "Requests to other brokers that are queued or in flight"
)
CHANNEL_QUEUE = _channels(
    "QueueSize", "Requests to one broker that are queued or in flight", labels=("broker_id",)
)
CHANNEL_TIMES = _channels(
    "RequestRateAndQueueTimeMs",
    "Time in ms that a request to one broker waited in its queue",
    SUMMARY,
    ("broker_id",),
)

_log = _Type("kafka.log", "Log")
LOG_SIZE = _log("Size", "Bytes of a log's segments", labels=PARTITION)
LOG_SEGMENTS = _log("NumLogSegments", "Segments of a log", labels=PARTITION)
LOG_START = _log("LogStartOffset", "First offset of a log", labels=PARTITION)
LOG_END = _log(
    "LogEndOffset", "Offset of the next record that is appended to a log", labels=PARTITION
)

_logs = _Type("kafka.log", "LogManager")
OFFLINE_DIRECTORIES = _logs("OfflineLogDirectoryCount", "Log directories whose disk failed")
DIRECTORY_OFFLINE = _logs(
    "LogDirectoryOffline", "1 if the disk of a log directory failed", labels=DIRECTORY
)
FLUSH_TIMES = Metric(
    "kafka.log",
    "LogFlushStats",
    "LogFlushRateAndTimeMs",
    SUMMARY,
    (),
    "Flushes of logs to disk, and the duration of each in milliseconds",
)

_cleaner = _Type("kafka.log", "LogCleaner")
CLEANING_TIME = _cleaner(
    "max-clean-time-secs", "Duration of the longest cleaning of a compacted log, in seconds"
)
CLEANER_RECOPY = _cleaner(
    "cleaner-recopy-percent", "Percentage of the bytes read by cleanings that they kept"
)
UNCLEANABLE = _Type("kafka.log", "LogCleanerManager")(
    "uncleanable-partitions-count",
    "Compacted logs of a directory that cannot be cleaned until an operator repairs them",
    labels=DIRECTORY,
)

_requests = _Type("kafka.network", "RequestMetrics")
REQUESTS = _requests(
    "RequestsPerSec", "Requests answered, by API and version", METER, REQUEST_VERSION
)
REQUEST_TIMES = _requests(
    "TotalTimeMs",
    "Milliseconds from a request's last byte to its response, including the wait for records or "
    "the disk, excluding the time to send the response",
    SUMMARY,
    REQUEST,
)

NETWORK_IDLE = Metric(
    "kafka.network",
    "SocketServer",
    "NetworkProcessorAvgIdlePercent",
    GAUGE,
    (),
    "Fraction of the last metrics.num.samples times metrics.sample.window.ms in which the thread "
    "that serves clients was idle, from 0 to 1; k has one thread as network processor and request "
    "handler",
)
HANDLER_IDLE = Metric(
    "kafka.server",
    "KafkaRequestHandlerPool",
    "RequestHandlerAvgIdlePercent",
    GAUGE,
    (),
    "The same value as NetworkProcessorAvgIdlePercent",
)


def _network(name: str, doc: str, kind: MetricKind = GAUGE) -> Metric:
    return Metric("kafka.server", "socket-server-metrics", name, kind, NETWORK, doc, attribute=True)


CONNECTIONS = _network("connection-count", "Connections of a listener")
CONNECTIONS_MADE = _network("connection-creation", "Connections that a listener accepted", METER)

_server = _Type("kafka.server", "KafkaServer")
BROKER_STATE = _server(
    "BrokerState",
    "1 starting, 2 recovering logs, 3 running, 6 stopping and refusing new connections",
)
DISK_READ = _server("linux-disk-read-bytes", "Bytes that the process read from disks")
DISK_WRITTEN = _server("linux-disk-write-bytes", "Bytes that the process wrote to disks")
FETCH_SESSIONS = Metric(
    "kafka.server",
    "FetchSessionCache",
    "NumIncrementalFetchSessions",
    GAUGE,
    (),
    "Incremental fetch sessions (KIP-227)",
)
WAITING = Metric(
    "kafka.server",
    "DelayedOperationPurgatory",
    "PurgatorySize",
    GAUGE,
    (),
    "Delayed produce and fetch requests: they wait for records, the disk or their timeout",
)


_coordinator = _Type("kafka.coordinator.group", "GroupMetadataManager")
_OF_CLASSIC = "Classic groups coordinated by this broker"
OFFSETS = _coordinator("NumOffsets", "Offsets committed by groups that this broker coordinates")
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


GROUPS = _groups(
    "group-count", "Groups coordinated by this broker, by their protocol", ("protocol",)
)
CONSUMER_STATES = ("Empty", "Assigning", "Reconciling", "Stable", "Dead")
CONSUMER_GROUPS = _groups(
    "consumer-group-count",
    "Consumer groups (KIP-848) coordinated by this broker, by their state",
    ("state",),
)
OFFSETS_COMMITTED = _groups("offset-commit-count", "Offsets committed so far")
OFFSETS_EXPIRED = _groups("offset-expiration-count", "Offsets expired so far")
OFFSETS_DELETED = _groups("offset-deletion-count", "Offsets deleted by requests so far")
REBALANCES = _groups(
    "group-completed-rebalance-count", "Rebalances of classic groups completed so far"
)


def _own(name: str, doc: str, kind: MetricKind = GAUGE, labels: tuple[str, ...] = ()) -> Metric:
    return Metric("", "", name, kind, labels, doc)


# Named like kafka_exporter's.  Each broker exposes the partitions that it leads.
BROKERS = _own("kafka_brokers", "Brokers of the cluster")
TOPIC_PARTITIONS = _own("kafka_topic_partitions", "Partitions of a topic", labels=TOPIC)
CURRENT_OFFSET = _own(
    "kafka_topic_partition_current_offset", "High watermark of a partition", labels=PARTITION
)
OLDEST_OFFSET = _own(
    "kafka_topic_partition_oldest_offset", "First offset of a partition", labels=PARTITION
)
IN_SYNC = _own(
    "kafka_topic_partition_in_sync_replica", "In-sync replicas of a partition", labels=PARTITION
)
LEADER = _own(
    "kafka_topic_partition_leader", "Broker id of the leader of a partition", labels=PARTITION
)
PREFERRED = _own(
    "kafka_topic_partition_leader_is_preferred",
    "1 if the preferred replica leads a partition",
    labels=PARTITION,
)
REPLICAS = _own("kafka_topic_partition_replicas", "Replicas of a partition", labels=PARTITION)
IS_UNDER_REPLICATED = _own(
    "kafka_topic_partition_under_replicated_partition",
    "1 if a partition has a replica that is not in sync",
    labels=PARTITION,
)

CLEANINGS = _own("k_log_cleanings_total", "Cleanings of compacted logs", METER)

# Named as in Prometheus' own clients.
CPU = _own("process_cpu_seconds_total", "User and system time of the process", METER)
RESIDENT = _own("process_resident_memory_bytes", "Resident memory of the process")
VIRTUAL = _own("process_virtual_memory_bytes", "Virtual memory of the process")
OPEN_FILES = _own("process_open_fds", "Files and sockets that the process has open")
MAX_FILES = _own("process_max_fds", "Maximum number of files and sockets that the process can open")
START_TIME = _own("process_start_time_seconds", "Start time of the process, in seconds since 1970")
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
