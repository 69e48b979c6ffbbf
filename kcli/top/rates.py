"""Snapshots in, rows out: rates and trends of everything in a cluster.

    records in     growth of the partitions' end offsets
    bytes in       growth of the leaders' logs
    records out    growth of the groups' committed offsets, over the last snapshots: a consumer
                   commits every 5 s by default
    bytes out      records out, at the mean size of the records that came in: an estimate
    lag            end offsets minus a group's committed offsets

An unknown value is None, never a guess and never below zero: a log shortened by retention, a topic
that was created again, an offset that was reset, a broker that does not respond. A sum is known if
all its parts are. A partition without a leader takes no records, and is not a part.

Pure: snapshots in, rows out.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from kcli.groups import lag as lags
from kcli.groups.lag import WINDOW, Trend
from kcli.top.snapshot import DashboardSnapshot, GroupSnapshot, TimedResponse
from kserver.model import BrokerId, Offset, TopicPartition

UP, AWAY = "up", "away"
OK, UNDER_REPLICATED, OFFLINE = "ok", "under-replicated", "offline"
GROWING, SHRINKING, STEADY = "growing", "shrinking", "steady"
STEADY_SHARE = 0.001
"""A lag is steady while it changes by at most this share of itself per second."""

_WORST_FIRST = (AWAY, OFFLINE, UNDER_REPLICATED, UP, OK)

BROKER, TOPIC, GROUP = "broker", "topic", "group"

PerSecond: TypeAlias = float | None
Rates: TypeAlias = dict[TopicPartition, PerSecond]
Subject: TypeAlias = tuple[str, str]
"""BROKER, TOPIC or GROUP, and the name."""


class Row(NamedTuple):
    """The fields of k.top; None if one does not apply to the kind, or is unknown."""

    kind: str
    name: str
    state: str | None = None
    address: str | None = None
    is_controller: bool | None = None
    away_since_ms: int | None = None
    partitions: int | None = None
    under_replicated: int | None = None
    offline: int | None = None
    records_in_per_second: PerSecond = None
    bytes_in_per_second: PerSecond = None
    records_out_per_second: PerSecond = None
    bytes_out_per_second: PerSecond = None
    size_bytes: int | None = None
    lag: int | None = None
    lag_per_second: PerSecond = None
    lag_trend: str | None = None
    isr_left: int | None = None
    isr_joined: int | None = None
    leader_changes: int | None = None


@dataclass(frozen=True)
class Dashboard:
    """The rows of a snapshot: faulty ones first, then the busiest; groups by lag."""

    time_ms: int
    controller: BrokerId | None
    brokers: list[Row]
    topics: list[Row]
    groups: list[Row]
    refused: Mapping[str, str]
    """Requests that brokers refused, and the reasons."""
    missing: str = ""
    """Why no broker responds; the rows are then those of the last successful snapshot."""

    @property
    def away(self) -> int:
        return sum(row.state == AWAY for row in self.brokers)


class History:
    """Keeps the earlier snapshots to compare with. Changes of the ISR and of leaders are counted
    from the first snapshot on.
    """

    def __init__(self) -> None:
        self._before: DashboardSnapshot | None = None
        self._last: Dashboard | None = None
        self._changes: Counter[tuple[str, Subject]] = Counter()
        self._commits: dict[str, _Commits] = defaultdict(_Commits)
        self._trends: dict[str, Trend] = defaultdict(Trend)
        self._record_bytes: dict[str, float] = {}
        """Mean size of a topic's records in the last interval."""
        self._up_ms: dict[BrokerId, int] = {}
        """When a broker last responded."""
        self._addresses: dict[BrokerId, str] = {}
        self._groups: set[str] = set()

    def note_failure(self, why: str) -> Dashboard:
        """Return the rows of a snapshot without a response: all brokers are away, the rest is as
        before.
        """
        last = self._last
        assert last is not None, "there was no look before"
        gone = [
            row
            if row.state == AWAY
            else row._replace(state=AWAY, is_controller=None, away_since_ms=last.time_ms)
            for row in last.brokers
        ]
        return Dashboard(last.time_ms, None, gone, last.topics, last.groups, {}, why)

    def update(self, now: DashboardSnapshot) -> Dashboard:
        flows = _Flows(self._before, now)
        self._before = now
        self._count_changes(flows)
        for name in now.topics:
            self._learn_record_bytes(name, flows)
        for broker, node in now.nodes.items():
            self._addresses[broker] = f"{node.host}:{node.port}"
            if not now.responses[broker].is_silent:
                self._up_ms[broker] = now.time_ms
        outs = self._outs(flows)
        records_out = _by_all(outs, flows)
        brokers = {*self._addresses, *(b for _, p in now.partitions() for b in p.replicas)}
        # Groups whose coordinator did not respond still exist.
        self._groups = {*now.groups, *(() if now.has_all_groups else self._groups)}
        for gone in self._trends.keys() - self._groups:
            del self._trends[gone]
            self._commits.pop(gone, None)
        groups = (self._group(name, flows, outs) for name in sorted(self._groups))
        self._last = Dashboard(
            now.time_ms,
            now.controller,
            _sort(self._broker(broker, flows, records_out) for broker in sorted(brokers)),
            _sort(self._topic(name, flows, records_out) for name in sorted(now.topics)),
            sorted(groups, key=lambda row: (-(row.lag or 0), -(row.records_out_per_second or 0))),
            now.refused,
        )
        return self._last

    def _count_changes(self, flows: _Flows) -> None:
        for partition, now in flows.now.partitions():
            if (before := flows.known_before.get(partition)) is None:
                continue
            topic = (TOPIC, partition.topic)
            for broker in {*before.isr} ^ {*now.isr}:
                what = "left" if broker in before.isr else "joined"
                self._changes.update([(what, topic), (what, (BROKER, str(broker)))])
            if now.leader is not None and now.leader != before.leader:
                self._changes.update([("led", topic), ("led", (BROKER, str(now.leader)))])

    def _learn_record_bytes(self, topic: str, flows: _Flows) -> None:
        if topic not in flows.same:
            self._record_bytes.pop(topic, None)
            return
        led = flows.by_topic[topic]
        records, size = total(flows.records_in, led), total(flows.bytes_in, led)
        if records and size is not None:
            self._record_bytes[topic] = size / records

    def _outs(self, flows: _Flows) -> dict[str, Rates]:
        """Return records out of each partition, by each group whose offsets are readable."""
        return {
            name: self._commits[name].per_second(
                TimedResponse(group.at_s, flows.commits(group.values)), flows.same
            )
            for name, group in flows.now.groups.items()
            if group.values.committed is not None
        }

    def _broker(self, broker: BrokerId, flows: _Flows, records_out: Rates) -> Row:
        now = flows.now
        responses = now.responses.get(broker)
        is_up = responses is not None and not responses.is_silent
        subject = (BROKER, str(broker))
        sizes = None if responses is None else responses.sizes
        return Row(
            *subject,
            state=UP if is_up else AWAY,
            address=self._addresses.get(broker),
            is_controller=None if now.controller is None else broker == now.controller,
            away_since_ms=None if is_up else self._up_ms.get(broker),
            partitions=len(flows.by_leader[broker]),
            under_replicated=flows.lagging[broker],
            size_bytes=None if sizes is None else sum(sizes.values.values()),
            **self._changed(subject),
        )._replace(**self._rates(flows.by_leader[broker], flows, records_out))

    def _topic(self, name: str, flows: _Flows, records_out: Rates) -> Row:
        partitions = flows.now.topics[name].partitions
        subject = (TOPIC, name)
        led = flows.by_topic[name]
        under_replicated = sum(len(p.isr) < len(p.replicas) for p in partitions)
        offline = len(partitions) - len(led)
        state = UNDER_REPLICATED if under_replicated else OK
        return Row(
            *subject,
            state=OFFLINE if offline else state,
            partitions=len(partitions),
            under_replicated=under_replicated,
            offline=offline,
            size_bytes=flows.size(led),
            **self._changed(subject),
        )._replace(**self._rates(led, flows, records_out))

    def _group(self, name: str, flows: _Flows, outs: Mapping[str, Rates]) -> Row:
        group = flows.now.groups.get(name)
        if group is None:
            return Row(GROUP, name)
        if group.values.committed is None:
            return Row(GROUP, name, state=group.values.state)
        commits = flows.commits(group.values)
        lag = flows.lag(commits)
        change = self._trends[name].per_second(group.at_s, lag)
        rates = outs.get(name, {})
        return Row(
            GROUP,
            name,
            state=group.values.state,
            partitions=len(commits),
            records_out_per_second=total(rates, rates),
            bytes_out_per_second=self._bytes_out(rates),
            lag=lag,
            lag_per_second=change,
            lag_trend=trend(lag, change),
        )

    def _rates(
        self, led: Sequence[TopicPartition], flows: _Flows, records_out: Rates
    ) -> dict[str, Any]:
        return {
            "records_in_per_second": total(flows.records_in, led),
            "bytes_in_per_second": total(flows.bytes_in, led),
            "records_out_per_second": total(records_out, led),
            "bytes_out_per_second": self._bytes_out({p: records_out[p] for p in led}),
        }

    def _bytes_out(self, rates: Rates) -> PerSecond:
        sizes = {p: self._bytes_of(p.topic, rate) for p, rate in rates.items()}
        return total(sizes, sizes)

    def _bytes_of(self, topic: str, records: PerSecond) -> PerSecond:
        if not records:
            return records
        each = self._record_bytes.get(topic)
        return None if each is None else records * each

    def _changed(self, subject: Subject) -> dict[str, Any]:
        return {
            "isr_left": self._changes["left", subject],
            "isr_joined": self._changes["joined", subject],
            "leader_changes": self._changes["led", subject],
        }


class _Commits:
    """A group's committed offsets in the last snapshots."""

    def __init__(self) -> None:
        self._looks: deque[TimedResponse[Mapping[TopicPartition, Offset]]] = deque(
            maxlen=WINDOW - 1
        )

    def per_second(
        self, now: TimedResponse[Mapping[TopicPartition, Offset]], same: set[str]
    ) -> Rates:
        """Return the growth of each offset since the oldest of them; None if it is new. The history
        is dropped if an offset was reset, or its topic was created again (is not in `same`).
        """
        if self._looks:
            last = self._looks[-1].values
            for partition, offset in now.values.items():
                if partition in last and (offset < last[partition] or partition.topic not in same):
                    self._looks.clear()
                    break
        rates = {partition: self._growth(partition, now) for partition in now.values}
        self._looks.append(now)
        return rates

    def _growth(
        self, partition: TopicPartition, now: TimedResponse[Mapping[TopicPartition, Offset]]
    ) -> PerSecond:
        for look in self._looks:
            if partition in look.values:
                before = TimedResponse(look.at_s, look.values[partition])
                return growth(before, TimedResponse(now.at_s, now.values[partition]))
        return None


class _Flows:
    """Changes from one snapshot to the next, by partition."""

    def __init__(self, before: DashboardSnapshot | None, now: DashboardSnapshot) -> None:
        self.now = now
        self.same = _same_topics(before, now)
        """Topics that existed before."""
        self.known_before = (
            {} if before is None else {t: p for t, p in before.partitions() if t.topic in self.same}
        )
        self.by_topic: dict[str, list[TopicPartition]] = defaultdict(list)
        """Partitions that have a leader."""
        self.by_leader: dict[BrokerId, list[TopicPartition]] = defaultdict(list)
        self.lagging: Counter[BrokerId] = Counter()
        """Replicas of a broker that are out of sync."""
        self.leaders: dict[TopicPartition, BrokerId | None] = {}
        self.records_in: Rates = {}
        self.bytes_in: Rates = {}
        for partition, metadata in now.partitions():
            leader = self.leaders[partition] = metadata.leader
            self.lagging.update({*metadata.replicas} - {*metadata.isr})
            if leader is None:
                continue
            self.by_topic[partition.topic].append(partition)
            self.by_leader[leader].append(partition)
            self.records_in[partition] = self.bytes_in[partition] = None
            if before is None or (was := self.known_before.get(partition)) is None:
                continue
            ends = before.end(partition, was.leader), now.end(partition, leader)
            self.records_in[partition] = growth(*ends)
            # Of the same replica, whichever broker led before: replicas differ in size.
            sizes = before.size(partition, leader), now.size(partition, leader)
            self.bytes_in[partition] = growth(*sizes)

    def commits(self, group: GroupSnapshot) -> dict[TopicPartition, Offset]:
        """Return committed offsets without those of deleted topics, which have no lag."""
        return {p: offset for p, offset in (group.committed or {}).items() if p in self.leaders}

    def size(self, partitions: Iterable[TopicPartition]) -> int | None:
        """Return the bytes of the leaders' logs; None if one is unknown."""
        sizes = [self.now.size(p, self.leaders[p]) for p in partitions]
        numbers = [size.values for size in sizes if size is not None]
        return sum(numbers) if len(numbers) == len(sizes) else None

    def lag(self, commits: Mapping[TopicPartition, Offset]) -> int | None:
        """Return the records left to read in all of these; None if one is unknown, or there is
        none.
        """
        partition_lags = []
        for partition, offset in commits.items():
            end = self.now.end(partition, self.leaders[partition])
            # An offset committed after the request for the end offset may be beyond it.
            partition_lags.append(None if end is None else max(0, end.values - offset))
        return lags.total(partition_lags)


def _by_all(outs: Mapping[str, Rates], flows: _Flows) -> Rates:
    """Return records out by all groups together; unknown while a coordinator does not respond."""
    if not flows.now.has_all_groups or not flows.known_before:
        return dict.fromkeys(flows.leaders)
    rates: Rates = dict.fromkeys(flows.leaders, 0.0)
    for of_group in outs.values():
        for partition, rate in of_group.items():
            so_far = rates[partition]
            rates[partition] = None if rate is None or so_far is None else so_far + rate
    return rates


def _same_topics(before: DashboardSnapshot | None, now: DashboardSnapshot) -> set[str]:
    """Return the topics that existed before. A topic that was created again has another id, if
    brokers have ids.
    """
    if before is None:
        return set()
    return {
        name
        for name, topic in now.topics.items()
        if name in before.topics and before.topics[name].id == topic.id
    }


def growth(before: TimedResponse[int] | None, now: TimedResponse[int] | None) -> PerSecond:
    """Return the growth per second; None if either value is unknown, or it decreased."""
    if before is None or now is None or now.values < before.values or now.at_s <= before.at_s:
        return None
    return (now.values - before.values) / (now.at_s - before.at_s)


def total(rates: Rates, partitions: Iterable[TopicPartition]) -> PerSecond:
    """Return the sum over the partitions; None if one is unknown."""
    so_far = 0.0
    for partition in partitions:
        rate = rates[partition]
        if rate is None:
            return None
        so_far += rate
    return so_far


def trend(lag: int | None, per_second: PerSecond) -> str | None:
    """Return the trend of a lag that changes at this rate."""
    if lag is None or per_second is None:
        return None
    if abs(per_second) <= lag * STEADY_SHARE:
        return STEADY
    return GROWING if per_second > 0 else SHRINKING


def _sort(rows: Iterable[Row]) -> list[Row]:
    return sorted(
        rows,
        key=lambda row: (
            _WORST_FIRST.index(row.state or ""),
            -(row.records_in_per_second or 0),
            -(row.records_out_per_second or 0),
        ),
    )
