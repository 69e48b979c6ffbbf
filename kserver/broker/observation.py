"""Metrics and health of a broker: the catalog's metrics, read from its parts, over HTTP.

    /metrics    in Prometheus' text format
    /healthz    200 as long as the event loop runs
    /readyz     200 while clients are accepted and a log directory works, else 503 and the reason

metrics/meters and api/requests count events when they happen; this module only reads the counters,
when they are scraped.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

from kserver import __version__
from kserver.api.context import Parts
from kserver.api.requests import Requests
from kserver.controller.controller import Controller
from kserver.errors import KafkaError
from kserver.group.group import CLASSIC, CONSUMER, ClassicGroupState
from kserver.group.shard import GroupShard
from kserver.log.manager import LogManager
from kserver.metadata import PartitionInfo
from kserver.metrics import catalog
from kserver.metrics.meters import AllTopics, GroupMeters, Windowed
from kserver.metrics.names import Metric
from kserver.metrics.text import CONTENT_TYPE, Metrics, Sample
from kserver.model import NO_BROKER
from kserver.network.http import Page
from kserver.replica.fetcher import ReplicaFetcher
from kserver.replica.fetcher_manager import ReplicaFetcherManager
from kserver.replica.partition import Partition
from kserver.wire.codec import api_name

if TYPE_CHECKING:
    from kserver.network.listener import Listeners

COUNTERS = {
    catalog.MESSAGES_IN: "messages_in",
    catalog.BYTES_IN: "bytes_in",
    catalog.BYTES_OUT: "bytes_out",
    catalog.BYTES_REJECTED: "bytes_rejected",
    catalog.PRODUCE_REQUESTS: "total_produce_requests",
    catalog.FAILED_PRODUCE_REQUESTS: "failed_produce_requests",
    catalog.FETCH_REQUESTS: "total_fetch_requests",
    catalog.FAILED_FETCH_REQUESTS: "failed_fetch_requests",
}
CLASSIC_GROUPS = {
    ClassicGroupState.EMPTY: catalog.EMPTY_GROUPS,
    ClassicGroupState.PREPARING_REBALANCE: catalog.PREPARING_GROUPS,
    ClassicGroupState.COMPLETING_REBALANCE: catalog.COMPLETING_GROUPS,
    ClassicGroupState.STABLE: catalog.STABLE_GROUPS,
    ClassicGroupState.DEAD: catalog.DEAD_GROUPS,
}
ONE_PROCESSOR = "0"
REPLICA = "Replica"
"""Client id of all fetchers together."""
UNITS = ("kB", "MB", "GB", "TB", "PB")


class BrokerState(IntEnum):
    """Kafka's BrokerState, as far as it applies."""

    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    STOPPING = 6


REASONS = {
    BrokerState.STARTING: "starting",
    BrokerState.RECOVERY: "starting: opening the logs",
    BrokerState.STOPPING: "stopping",
}


class Observation:
    """`metrics` can be added to at any time; `observe` adds the broker's own."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.state = BrokerState.STARTING
        self.windowed: list[Windowed] = []
        self.clock: Callable[[], float] | None = None
        """Clock of the loop, if it can be read faster than through the loop."""
        self._logs: LogManager | None = None
        self.metrics.gauge(catalog.BROKER_STATE, lambda: self.state.value)
        self.metrics.add(catalog.BUILD, lambda: [((__version__,), 1)])

    def directories(self) -> Iterator[str]:
        """Yield a line for each log directory: its number of logs and size, or why it is
        offline."""
        assert self._logs is not None
        for directory in self._logs.directories:
            if directory.failure is not None:
                yield f"{directory.path}: offline, {directory.failure}"
                continue
            logs = self._logs.logs_in(directory)
            size = sum(log.size_bytes for log in logs)
            yield f"{directory.path}: {len(logs)} logs, {_readable(size)}"

    def pages(self, naming: str) -> dict[str, Callable[[], Page]]:
        """Return the pages that are served, by path."""
        return {
            "/metrics": lambda: Page(HTTPStatus.OK, CONTENT_TYPE, self.metrics.text(naming)),
            "/healthz": lambda: Page.plain(HTTPStatus.OK, "ok"),
            "/readyz": self._readiness,
        }

    def _readiness(self) -> Page:
        reason = REASONS.get(self.state)
        if self._logs is not None and all(
            directory.failure for directory in self._logs.directories
        ):
            reason = "all log directories are offline"
        if reason is None:
            return Page.plain(HTTPStatus.OK, "ready")
        return Page.plain(HTTPStatus.SERVICE_UNAVAILABLE, reason)

    async def run(self, window_ms: int, windows: int) -> None:
        """Start a new window of the windowed metrics every `window_ms`, until cancelled."""
        while True:
            await asyncio.sleep(window_ms / 1000)
            for meter in self.windowed:
                meter.rotate(windows)

    def observe(
        self, parts: Parts, requests: Requests, groups: GroupMeters, listeners: Listeners
    ) -> None:
        """Add all metrics of a running broker."""
        self._logs = parts.logs
        self._observe_topics(parts.replicas.topics)
        self._observe_replicas(parts)
        self._observe_fetchers(parts.replicas.fetchers)
        self._observe_cluster(parts)
        self._observe_controller(parts.controller)
        self._observe_logs(parts)
        self._observe_requests(parts, requests, listeners)
        self._observe_groups(parts, groups)

    def _observe_topics(self, topics: AllTopics) -> None:
        def read(counter: str) -> Iterator[Sample]:
            yield (), topics.total(counter)
            for topic, meters in topics.by_topic.items():
                yield (topic,), getattr(meters, counter)

        for metric, counter in COUNTERS.items():
            self.metrics.add(metric, partial(read, counter))

    def _observe_replicas(self, parts: Parts) -> None:
        hosted = parts.replicas.partitions

        def leaders() -> list[Partition]:
            return [partition for partition in hosted.values() if partition.is_leader]

        def offline() -> int:
            placed = sum(parts.broker_id in info.replicas for _, info in partitions_of(parts))
            return placed - sum(partition.log.failure is None for partition in hosted.values())

        gauge = self.metrics.gauge
        gauge(catalog.LEADERS, lambda: len(leaders()))
        gauge(catalog.PARTITIONS, lambda: len(hosted))
        gauge(catalog.OFFLINE_REPLICAS, offline)
        gauge(catalog.UNDER_REPLICATED, lambda: sum(map(_is_under_replicated, leaders())))
        gauge(catalog.UNDER_MIN_ISR, lambda: sum(map(_is_under_min_isr, leaders())))
        gauge(catalog.AT_MIN_ISR, lambda: sum(map(_is_at_min_isr, leaders())))

        def each(metric: Metric, value: Callable[[Partition], int]) -> None:
            self.metrics.add(
                metric, lambda: [(_labels(partition), value(partition)) for partition in leaders()]
            )

        each(catalog.REPLICAS_COUNT, lambda partition: partition.replica_count)
        each(catalog.IN_SYNC_COUNT, lambda partition: partition.isr_size)
        each(catalog.PARTITION_UNDER_REPLICATED, _is_under_replicated)
        each(catalog.PARTITION_UNDER_MIN_ISR, _is_under_min_isr)
        each(catalog.PARTITION_AT_MIN_ISR, _is_at_min_isr)
        each(catalog.CURRENT_OFFSET, lambda partition: partition.log.high_watermark)
        each(catalog.OLDEST_OFFSET, lambda partition: partition.log.log_start_offset)

        meters = parts.replicas.meters
        gauge(catalog.REASSIGNING, lambda: sum(partition.is_reassigning for partition in leaders()))
        gauge(catalog.ISR_SHRINKS, lambda: meters.isr_shrinks)
        gauge(catalog.ISR_EXPANDS, lambda: meters.isr_expands)
        gauge(catalog.FAILED_ISR_UPDATES, lambda: meters.failed_isr_updates)
        gauge(catalog.REPLICATED_IN, lambda: meters.bytes_in)
        gauge(catalog.REPLICATED_OUT, lambda: meters.bytes_out)

    def _observe_fetchers(self, fetchers: ReplicaFetcherManager) -> None:
        def of_all(metric: Metric, value: Callable[[], float]) -> None:
            self.metrics.add(metric, lambda: [((REPLICA,), value())])

        of_all(
            catalog.MAX_LAG,
            lambda: max((lag for f in fetchers.running for lag in f.lags.values()), default=0),
        )
        of_all(catalog.MIN_FETCH_RATE, lambda: min((f.rate for f in fetchers.running), default=0.0))
        of_all(catalog.DEAD_FETCHERS, lambda: 0)
        of_all(
            catalog.FAILED_PARTITIONS, lambda: sum(f.failed_partitions for f in fetchers.running)
        )

        def each(metric: Metric, value: Callable[[ReplicaFetcher], int]) -> None:
            self.metrics.add(
                metric, lambda: [((f.name, *f.address), value(f)) for f in fetchers.running]
            )

        each(catalog.FETCHER_REQUESTS, lambda f: f.requests)
        each(catalog.FETCHER_BYTES, lambda f: f.bytes)
        self.metrics.add(
            catalog.FETCHER_LAG,
            lambda: [
                ((f.name, *_labels(partition)), lag)
                for f in fetchers.running
                for partition, lag in f.lags.items()
            ],
        )

    def _observe_cluster(self, parts: Parts) -> None:
        metadata = parts.metadata
        gauge = self.metrics.gauge
        gauge(catalog.BROKERS, lambda: len(metadata.current.brokers))
        self.metrics.add(
            catalog.TOPIC_PARTITIONS,
            lambda: [((t.name,), len(t.partitions)) for t in metadata.current.topics.values()],
        )

        def each(metric: Metric, value: Callable[[PartitionInfo], int]) -> None:
            def read() -> Iterator[Sample]:
                for topic, info in partitions_of(parts):
                    if info.leader == parts.broker_id:
                        yield (topic, str(info.partition)), value(info)

            self.metrics.add(metric, read)

        each(catalog.IN_SYNC, lambda info: len(info.isr))
        each(catalog.LEADER, lambda info: info.leader)
        each(catalog.PREFERRED, lambda info: int(info.leader == info.replicas[0]))
        each(catalog.REPLICAS, lambda info: len(info.replicas))
        each(catalog.IS_UNDER_REPLICATED, lambda info: int(len(info.isr) < len(info.replicas)))

    def _observe_controller(self, controller: Controller) -> None:
        """Add the controller's metrics, which are 0 on the other brokers, as in Kafka."""
        context, meters = controller.context, controller.meters
        self.metrics.gauge(catalog.ACTIVE_CONTROLLERS, lambda: int(context.is_active))
        self.metrics.gauge(catalog.CONTROLLER_STATE, lambda: controller.queue.state)

        def gauge(metric: Metric, value: Callable[[], int]) -> None:
            self.metrics.gauge(metric, lambda: value() if context.is_active else 0)

        gauge(
            catalog.OFFLINE_PARTITIONS,
            lambda: sum(p.leader == NO_BROKER for p in context.partitions()),
        )
        gauge(
            catalog.PREFERRED_IMBALANCE,
            lambda: sum(p.leader != p.replicas[0] for p in context.partitions()),
        )
        gauge(catalog.ACTIVE_BROKERS, lambda: len(context.brokers))
        gauge(catalog.FENCED_BROKERS, lambda: controller.fenced_brokers)
        gauge(catalog.TOPICS, lambda: len(context.topics))
        gauge(
            catalog.ALL_PARTITIONS,
            lambda: sum(len(topic.partitions) for topic in context.topics.values()),
        )
        gauge(catalog.TOPICS_TO_DELETE, lambda: len(context.deletions))
        gauge(
            catalog.REPLICAS_TO_DELETE, lambda: sum(d.remaining for d in context.deletions.values())
        )
        gauge(
            catalog.TOPICS_INELIGIBLE,
            lambda: sum(d.ineligible > 0 for d in context.deletions.values()),
        )
        gauge(
            catalog.REPLICAS_INELIGIBLE,
            lambda: sum(d.ineligible for d in context.deletions.values()),
        )
        channels = controller.channels
        self.windowed += [meters.election_times_ms, meters.queue_times_ms, channels]
        self.metrics.add(catalog.ELECTION_TIMES, lambda: [((), meters.election_times_ms)])
        self.metrics.add(catalog.EVENT_QUEUE_TIMES, lambda: [((), meters.queue_times_ms)])
        self.metrics.gauge(catalog.UNCLEAN_ELECTIONS, lambda: meters.unclean_elections)
        gauge(catalog.EVENT_QUEUE, lambda: controller.queue.waiting)
        gauge(catalog.CHANNEL_QUEUES, lambda: sum(channels.unanswered.values()))
        self.metrics.add(
            catalog.CHANNEL_QUEUE,
            lambda: [((str(id_),), waiting) for id_, waiting in channels.unanswered.items()],
        )
        self.metrics.add(
            catalog.CHANNEL_TIMES,
            lambda: [((str(id_),), times) for id_, times in channels.queue_times_ms.items()],
        )

    def _observe_logs(self, parts: Parts) -> None:
        logs = parts.logs

        def each(metric: Metric, value: Callable[[Partition], int]) -> None:
            hosted = parts.replicas.partitions
            self.metrics.add(
                metric,
                lambda: [(_labels(partition), value(partition)) for partition in hosted.values()],
            )

        each(catalog.LOG_SIZE, lambda partition: partition.log.size_bytes)
        each(catalog.LOG_SEGMENTS, lambda partition: len(partition.log.segments))
        each(catalog.LOG_START, lambda partition: partition.log.log_start_offset)
        each(catalog.LOG_END, lambda partition: partition.log.log_end_offset)
        self.metrics.gauge(
            catalog.OFFLINE_DIRECTORIES,
            lambda: sum(directory.failure is not None for directory in logs.directories),
        )
        self.metrics.add(
            catalog.DIRECTORY_OFFLINE,
            lambda: [
                ((directory.path,), int(directory.failure is not None))
                for directory in logs.directories
            ],
        )
        self.windowed.append(logs.flush_times_ms)
        self.metrics.add(catalog.FLUSH_TIMES, lambda: [((), logs.flush_times_ms)])

        cleaner = logs.cleaner
        self.metrics.gauge(catalog.CLEANINGS, lambda: cleaner.cleanings)
        self.metrics.gauge(catalog.CLEANING_TIME, lambda: cleaner.longest_s)
        self.metrics.gauge(
            catalog.CLEANER_RECOPY,
            lambda: 100 * cleaner.written_bytes / max(cleaner.read_bytes, 1),
        )
        self.metrics.add(
            catalog.UNCLEANABLE,
            lambda: [
                (
                    (directory.path,),
                    sum(log in cleaner.uncleanable for log in logs.logs_in(directory)),
                )
                for directory in logs.directories
            ],
        )

    def _observe_requests(self, parts: Parts, requests: Requests, listeners: Listeners) -> None:
        meters = requests.meters

        def counts() -> Iterator[Sample]:
            for key, meter in meters.items():
                for version, count in enumerate(meter.versions):
                    if count:
                        yield (api_name(key), str(version)), count

        self.windowed += meters.values()
        self.metrics.add(catalog.REQUESTS, counts)
        self.metrics.add(
            catalog.REQUEST_TIMES,
            lambda: [((api_name(key),), meter.times_ms) for key, meter in meters.items()],
        )
        self.metrics.add(
            catalog.CONNECTIONS,
            lambda: [((name, ONE_PROCESSOR), n) for name, n in listeners.by_listener().items()],
        )
        self.metrics.add(
            catalog.CONNECTIONS_MADE,
            lambda: [((name, ONE_PROCESSOR), n) for name, n in listeners.accept_counts.items()],
        )
        self.metrics.gauge(catalog.FETCH_SESSIONS, lambda: len(parts.fetch_sessions))
        self.metrics.gauge(catalog.WAITING, lambda: len(parts.purgatory))

    def _observe_groups(self, parts: Parts, meters: GroupMeters) -> None:

        def shards() -> list[GroupShard]:
            try:
                return list(parts.groups.shards())
            except KafkaError:
                return []  # coordinators are loading

        def states(type: str) -> Counter[str]:
            groups = (group for shard in shards() for group in shard.groups.values())
            return Counter(group.state_name for group in groups if group.type == type)

        gauge = self.metrics.gauge
        gauge(catalog.OFFSETS, lambda: sum(len(shard.offsets) for shard in shards()))
        gauge(catalog.CLASSIC_GROUPS, lambda: states(CLASSIC).total())
        for state, metric in CLASSIC_GROUPS.items():
            gauge(metric, partial(lambda name: states(CLASSIC)[name], state.value))
        self.metrics.add(
            catalog.GROUPS,
            lambda: [((type,), states(type).total()) for type in (CLASSIC, CONSUMER)],
        )
        self.metrics.add(
            catalog.CONSUMER_GROUPS,
            lambda: [((state,), states(CONSUMER)[state]) for state in catalog.CONSUMER_STATES],
        )
        gauge(catalog.OFFSETS_COMMITTED, lambda: meters.offsets_committed)
        gauge(catalog.OFFSETS_EXPIRED, lambda: meters.offsets_expired)
        gauge(catalog.OFFSETS_DELETED, lambda: meters.offsets_deleted)
        gauge(catalog.REBALANCES, lambda: meters.rebalances)


def _readable(size: int) -> str:
    """Return a size in bytes with three digits, for people."""
    if size < 1000:
        return f"{size} bytes"
    power = min((len(str(size)) - 1) // 3, len(UNITS))
    return f"{size / 1000**power:.3g} {UNITS[power - 1]}"


def partitions_of(parts: Parts) -> Iterator[tuple[str, PartitionInfo]]:
    """Yield each partition of the cluster, with its topic's name."""
    for topic in parts.metadata.current.topics.values():
        for info in topic.partitions:
            yield topic.name, info


def _labels(partition: Partition) -> tuple[str, str]:
    topic, number = partition.topic_partition
    return topic, str(number)


def _is_under_replicated(partition: Partition) -> int:
    return int(partition.isr_size < partition.replica_count)


def _is_under_min_isr(partition: Partition) -> int:
    return int(partition.isr_size < partition.min_isr)


def _is_at_min_isr(partition: Partition) -> int:
    return int(partition.isr_size == partition.min_isr)
