"""Sends a leader's ISR proposals to the controller with AlterPartition requests.

    response                           consequence
    accepted                           the leader uses the ISR that the controller wrote
    INELIGIBLE_REPLICA,                nothing was written, and the proposal is dropped
    OPERATION_NOT_ATTEMPTED
    any other error, or no response    retried RETRY_S later, while the same leader epoch lasts

Proposals that arrive while a request is in flight go into the next one together.
`failed_isr_updates` counts the errors that the controller returns for a partition; as in Kafka, it
does not count a request that fails as a whole.

(Kafka: AlterPartitionManager; KIP-497, KIP-841, KIP-903.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from kserver.errors import ErrorCode, KafkaError
from kserver.metrics.meters import ReplicationMeters
from kserver.model import BrokerId
from kserver.peers.node_to_controller import NodeToControllerChannel
from kserver.replica.isr import UNKNOWN_EPOCH, IsrProposal, Leader
from kserver.replica.partition import Partition
from kserver.wire import versions
from kserver.wire.api_key import ApiKey

log = logging.getLogger(__name__)

RETRY_S = 0.1
REFUSED = frozenset({ErrorCode.ineligible_replica, ErrorCode.operation_not_attempted})


class _PendingProposal(NamedTuple):
    partition: Partition
    leader: Leader
    proposal: IsrProposal

    @property
    def is_open(self) -> bool:
        return self.partition.leader is self.leader and self.leader.proposed is self.proposal


class AlterPartitionManager:
    """Sends ISR proposals; calls `on_decided` for each partition with a decided proposal."""

    def __init__(
        self,
        broker_id: BrokerId,
        broker_epoch: Callable[[], int],
        to_controller: NodeToControllerChannel,
        on_decided: Callable[[Partition], None],
        meters: ReplicationMeters,
    ) -> None:
        self._id = broker_id
        self._broker_epoch = broker_epoch
        self._to_controller = to_controller
        self._on_decided = on_decided
        self._meters = meters
        self._open: list[_PendingProposal] = []
        self._has_open = asyncio.Event()
        self._failure = ""
        """Why the last request failed: logged once, while the request is sent again and again."""

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        leader = partition.leader
        assert leader is not None
        log.info(
            "%s: proposing a change of the ISR from %s to %s",
            partition.topic_partition,
            sorted(leader.isr),
            sorted(proposal.isr),
        )
        self._open.append(_PendingProposal(partition, leader, proposal))
        self._has_open.set()

    async def run(self) -> None:
        try:
            while True:
                await self._has_open.wait()
                self._has_open.clear()
                proposed, self._open = [entry for entry in self._open if entry.is_open], []
                if proposed:
                    await self._send(proposed)
        finally:
            self._to_controller.close()

    async def _send(self, entries: list[_PendingProposal]) -> None:
        try:
            request = partial(self._request, entries)
            response = await self._to_controller.call(ApiKey.ALTER_PARTITION, request)
            if response.error_code is not ErrorCode.none:
                raise KafkaError(response.error_code)
            results = {
                (topic.topic_id, partition.partition_index): partition
                for topic in response.topics
                for partition in topic.partitions
            }
        except (OSError, KafkaError) as error:
            is_news = str(error) != self._failure
            level = logging.WARNING if is_news else logging.DEBUG
            log.log(level, "AlterPartition request failed, will retry: %s", error)
            self._failure = str(error)
            results = {}
        else:
            self._failure = ""
        retries = []
        for entry in entries:
            key = entry.partition.topic_id, entry.partition.topic_partition.partition
            if entry.is_open and not self._on_result(entry, results.get(key)):
                retries.append(entry)
        if retries:
            await asyncio.sleep(RETRY_S)
            self._open += retries
            self._has_open.set()

    def _on_result(self, entry: _PendingProposal, result: Any) -> bool:
        if result is None:
            return False
        code = result.error_code
        if code is ErrorCode.none:
            difference = len(result.isr) - len(entry.leader.isr)
            self._meters.isr_expands += difference > 0
            self._meters.isr_shrinks += difference < 0
            entry.leader.accepted(entry.proposal, result.isr, result.partition_epoch)
            next_proposal = entry.partition.isr_change()
            if next_proposal is not None:
                self.propose(entry.partition, next_proposal)
        elif code in REFUSED:
            self._meters.failed_isr_updates += 1
            entry.leader.refused(entry.proposal)
        else:
            self._meters.failed_isr_updates += 1
            log.warning(
                "%s: AlterPartition failed, will retry: %s",
                entry.partition.topic_partition,
                code.name,
            )
            return False
        self._on_decided(entry.partition)
        return True

    def _request(self, entries: list[_PendingProposal], new: versions.MessageShape) -> Any:
        topics: dict[UUID, list[Any]] = {}
        for partition, leader, proposal in entries:
            isr = sorted(proposal.isr)
            epochs = {**proposal.broker_epochs, self._id: self._broker_epoch()}
            topics.setdefault(partition.topic_id, []).append(
                new.topics.partitions(
                    partition_index=partition.topic_partition.partition,
                    leader_epoch=partition.epoch,
                    new_isr=isr,
                    new_isr_with_epochs=[
                        new.topics.partitions.new_isr_with_epochs(
                            broker_id=b, broker_epoch=epochs.get(b, UNKNOWN_EPOCH)
                        )
                        for b in isr
                    ],
                    partition_epoch=leader.partition_epoch,
                )
            )
        return new(
            broker_id=self._id,
            broker_epoch=self._broker_epoch(),
            topics=[new.topics(topic_id=i, partitions=p) for i, p in topics.items()],
        )
