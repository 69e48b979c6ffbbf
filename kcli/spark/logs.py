"""Logs: the partitions to read and their offsets, requested from the cluster.

    with Blocking(Logs, options) as logs:
        partitions = logs.partitions()
        ends = logs.pinned(partitions, logs.marks(partitions, options.end), "endingOffsets")

A place in a log is first a *mark*: an offset, EARLIEST or LATEST. It is pinned when it becomes a
fixed offset.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from types import TracebackType
from typing import Self
from uuid import UUID

from kcli.client.cluster import Cluster
from kcli.client.config import ConsumerConfig
from kcli.client.offsets import ISOLATIONS, list_offsets
from kcli.spark.offset_ranges import clamp
from kcli.spark.options import (
    AllPartitions,
    Assign,
    ByOffset,
    Offsets,
    Position,
    ReadOptions,
    Subscribe,
    incomplete,
    listed,
)
from kcli.spark.patterns import matching
from kserver.errors import ConfigError, ErrorCode, KafkaError
from kserver.model import TopicPartition
from kserver.wire.special_offsets import EARLIEST, LATEST

GONE_AFTER_S = 5.0
"""Seconds for which a topic has to be reported as unknown before it counts as deleted: a broker
that has just restarted may respond before it has its metadata.
"""

Ids = dict[TopicPartition, UUID | None]
"""The partitions to read, with their topics' ids if the cluster has ids."""


class Logs:
    """Open while the `async with` lasts. Every call takes at most default.api.timeout.ms, and
    raises ClusterUnreachable, TimedOut or KafkaError.
    """

    def __init__(self, options: ReadOptions) -> None:
        config = ConsumerConfig.resolve(options.client)
        self._options = options
        self._config = config
        self._cluster = Cluster(config)
        self._isolation = ISOLATIONS[config.isolation_level]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._cluster.close()

    async def partitions(self, present: Collection[TopicPartition] | None = None) -> Ids:
        """Return the partitions that the options name.

        Raises ConfigError if a topic or partition does not exist and none is `present`. With
        `present`, deleted ones are left out: `present` ones if brokers report them as unknown for
        GONE_AFTER_S.
        """
        ids = await self._find_ids(may_lack=present is not None)
        expected, tries = set(present or ()), 0
        clock = asyncio.get_running_loop().time
        until = clock() + GONE_AFTER_S
        while not expected <= ids.keys() and clock() < until:
            tries += 1
            await self._cluster.pause(tries)
            ids = await self._find_ids(may_lack=True)
        return ids

    async def _find_ids(self, *, may_lack: bool) -> Ids:
        selection = self._options.selection
        names: list[str] | None
        match selection:
            case Subscribe():
                names = list(selection.topics)
            case Assign():
                names = sorted({partition.topic for partition in selection.partitions})
            case _:
                names = None
        deadline = self._deadline()
        await self._cluster.retry("metadata", deadline, lambda: self._learn(names))
        topics = self._cluster.topics
        if isinstance(selection, Assign):
            ids = {
                partition: topics[partition.topic].id
                for partition in selection.partitions
                if self._cluster.partition(partition) is not None
            }
            if not may_lack and (missing := [p for p in selection.partitions if p not in ids]):
                raise ConfigError(
                    f"option assign names {', '.join(map(str, missing))}, which does not exist"
                )
            return ids
        if isinstance(selection, Subscribe):
            if not may_lack and (
                lacking := [name for name in selection.topics if name not in topics]
            ):
                raise ConfigError(
                    f"option subscribe names {', '.join(lacking)}, which does not exist: create it"
                    " first, or correct the name"
                )
            topic_names = [name for name in selection.topics if name in topics]
        else:
            hidden = self._config.exclude_internal_topics
            there = [name for name, topic in topics.items() if not (hidden and topic.is_internal)]
            topic_names = matching(selection.pattern, sorted(there))
        return {
            TopicPartition(name, p.partition): topics[name].id
            for name in topic_names
            for p in topics[name].partitions
        }

    async def _learn(self, names: list[str] | None) -> None:
        refused = await self._cluster.refresh(names)
        for name, error in refused.items():
            # A pattern means all authorized topics; a name means that topic.
            if names is not None and error.code != ErrorCode.unknown_topic_or_partition:
                raise KafkaError(error.code, f"topic {name}: {error}")

    async def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return await self._list_offsets(dict.fromkeys(partitions, EARLIEST))

    async def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Return end offsets; with read_committed those before the first open transaction."""
        return await self._list_offsets(dict.fromkeys(partitions, LATEST))

    async def since(self, partitions: Iterable[TopicPartition], time_ms: int) -> Offsets:
        """Return the first offset with a record not older than a time; partitions without one are
        left out.
        """
        offsets = await self._list_offsets(dict.fromkeys(partitions, time_ms))
        return {p: offset for p, offset in offsets.items() if offset >= 0}

    async def _list_offsets(self, specs: Mapping[TopicPartition, int]) -> Offsets:
        """Return an offset by spec; -1 if no record is late enough."""
        if not specs:
            return {}
        deadline = self._deadline()
        results = await list_offsets(self._cluster, specs, deadline, isolation=self._isolation)
        offsets: Offsets = {}
        for partition, result in results.items():
            if isinstance(result, KafkaError):
                raise KafkaError(result.code, f"offsets of {partition}: {result}")
            offsets[partition] = result.offset
        return offsets

    async def marks(self, partitions: Collection[TopicPartition], position: Position) -> Offsets:
        """Return the mark of a position in each partition; times are looked up.

        Raises ConfigError if it lists other partitions, or a partition has no record that is late
        enough.
        """
        if isinstance(position, AllPartitions):
            return dict.fromkeys(partitions, position.spec)
        if (each := listed(position)) is not None and each.keys() != set(partitions):
            raise incomplete(position, set(partitions))
        if isinstance(position, ByOffset):
            return dict(position.offsets)
        each_or_all = position.times
        times = (
            dict.fromkeys(partitions, each_or_all) if isinstance(each_or_all, int) else each_or_all
        )
        offsets = await self._list_offsets(times)
        late = sorted(partition for partition, offset in offsets.items() if offset < 0)
        if late and not position.or_latest:
            raise ConfigError(
                f"option {position.option}: no record of {late[0]} is as late as"
                f" {times[late[0]]}; set startingOffsetsByTimestampStrategy to latest to begin at"
                " the end there"
            )
        return {p: LATEST if offset < 0 else offset for p, offset in offsets.items()}

    async def resolve_marks(self, marks: Offsets, option: str) -> Offsets:
        """Return the offsets of marks now. Raises DataLost if one is outside of its log."""
        earliest, latest = await asyncio.gather(self.earliest(marks), self.latest(marks))
        offsets_by_mark = {EARLIEST: earliest, LATEST: latest}
        offsets = {
            p: offsets_by_mark[mark][p] if mark in offsets_by_mark else mark
            for p, mark in marks.items()
        }
        return clamp(
            offsets,
            earliest,
            latest,
            option,
            fail_on_data_loss=self._options.fail_on_data_loss,
        )

    def _deadline(self) -> float:
        return self._cluster.deadline(self._config.default_api_timeout_ms)
