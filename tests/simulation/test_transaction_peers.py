"""Transaction requests of a broker to another one, whose responses the test chooses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from kserver.errors import ErrorCode
from kserver.metadata import BrokerInfo, PartitionInfo
from kserver.model import TRANSACTION_STATE, Endpoint, TopicPartition
from kserver.txn.transaction import PREPARED, ProducerIdAndEpoch, TransactionState
from kserver.wire.api_key import ApiKey
from kserver.wire.control import LeaderAndIsrRequest
from kserver.wire.versions import reply_to, request
from tests.simulation.test_broker import create
from tests.simulation.test_transaction_coordinator import (
    NAME,
    SETTINGS,
    TOPIC,
    Refused,
    Writer,
    kept,
    parts_of,
)
from tests.support.loop import SimLoop, simulate
from tests.support.scripted_broker import ScriptedBroker
from tests.support.simulated import PORT, SimulatedBroker

OTHER = 1
"""Id of the scripted broker."""


class Scene:
    """A broker with a topic of two partitions, a transactional producer, and the scripted
    broker."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.broker = SimulatedBroker(loop, SETTINGS)
        self.other = ScriptedBroker(loop, "other", PORT, OTHER)
        self.writer = Writer(loop, self.broker, 2)

    async def start(self) -> None:
        await self.broker.start()
        await create(await self.broker.connect(), TOPIC, 2)
        await self.writer.begin()
        await self.other.start()
        self.parts = parts_of(self.broker)

    def move_to_other(self, topic: str, index: int) -> None:
        """Change the broker's metadata: the scripted broker leads this partition."""
        image = self.parts.metadata.current
        endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", self.other.name, PORT)
        other = BrokerInfo(OTHER, {"PLAINTEXT": endpoint})
        info = image.topics[topic]
        partitions = list(info.partitions)
        partitions[index] = PartitionInfo(index, OTHER, 0, (OTHER,), (OTHER,))
        moved = {topic: replace(info, partitions=tuple(partitions))}
        image = replace(image, brokers={**image.brokers, OTHER: other})
        self.parts.metadata.update(image.with_topics(moved))

    def move_coordinator_to_other(self) -> None:
        self.move_to_other(TRANSACTION_STATE, self.parts.transactions.partition_of(NAME))

    @property
    def state(self) -> TransactionState:
        return kept(self.broker)[NAME]

    async def commit_with_marker_for_other(self, code: ErrorCode) -> None:
        """Commit a transaction whose markers the scripted broker answers with this code."""

        def written(request: Any) -> Any:
            return markers_written(request, code)

        self.other.on(ApiKey.WRITE_TXN_MARKERS, written)
        for index in (0, 1):
            await self.writer.produce(index, 1, version=12)
        self.move_to_other(TOPIC, 0)
        await self.writer.end(True)

    def end_of(self, index: int) -> int:
        return self.parts.replicas.get(TOPIC, index).log.log_end_offset


def run(scenario: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    async def main(loop: SimLoop) -> None:
        scene = Scene(loop)
        await scene.start()
        async with asyncio.timeout(60):
            await scenario(scene)
        await scene.broker.stop()
        scene.other.stop()
        assert not scene.broker.bugs

    simulate(main, 1)


# Verification: AddPartitionsToTxn


@pytest.mark.parametrize("version", [11, 12])
def test_a_batch_is_rejected_if_this_broker_is_not_authorized_to_verify_it(version: int) -> None:
    def not_authorized(request: Any) -> Any:
        return reply_to(request)(error_code=ErrorCode.cluster_authorization_failed)

    async def scenario(scene: Scene) -> None:
        scene.other.on(ApiKey.ADD_PARTITIONS_TO_TXN, not_authorized)
        scene.move_coordinator_to_other()
        with pytest.raises(Refused) as refused:
            await scene.writer.produce(0, 1, version=version)
        assert refused.value.args == (ErrorCode.invalid_txn_state,)
        assert scene.end_of(0) == 0

    run(scenario)


def added(request: Any) -> Any:
    """Return a response without errors."""
    new = reply_to(request)
    result = new.results_by_transaction
    topic = result.topic_results
    return new(
        results_by_transaction=[
            result(
                transactional_id=transaction.transactional_id,
                topic_results=[
                    topic(
                        name=named.name,
                        results_by_partition=[
                            topic.results_by_partition(partition_index=index)
                            for index in named.partitions
                        ],
                    )
                    for named in transaction.topics
                ],
            )
            for transaction in request.transactions
        ]
    )


def test_two_verifications_of_one_transactional_id_are_sent_one_after_the_other() -> None:
    """As of Produce and TxnOffsetCommit at the same time."""

    async def scenario(scene: Scene) -> None:
        scene.other.on(ApiKey.ADD_PARTITIONS_TO_TXN, added)
        scene.move_coordinator_to_other()
        producer = ProducerIdAndEpoch(*scene.writer.given)
        verifications = [
            scene.parts.verification.verify(
                NAME, producer, frozenset({TopicPartition(TOPIC, index)}), adds=True
            )
            for index in (0, 1)
        ]
        assert await asyncio.gather(*verifications) == [{}, {}]
        requests = scene.other.asked(ApiKey.ADD_PARTITIONS_TO_TXN)
        assert [len(request.transactions) for request in requests] == [1, 1]

    run(scenario)


# Markers: WriteTxnMarkers


def markers_written(request: Any, code: ErrorCode) -> Any:
    """Return a response with this code for every partition."""
    new = reply_to(request)
    topic = new.markers.topics
    return new(
        markers=[
            new.markers(
                producer_id=marker.producer_id,
                topics=[
                    topic(
                        name=named.name,
                        partitions=[
                            topic.partitions(partition_index=index, error_code=code)
                            for index in named.partition_indexes
                        ],
                    )
                    for named in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.none,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.unsupported_for_message_format,
    ],
    ids=lambda code: code.name,
)
def test_a_transaction_is_complete_if_a_partition_needs_no_marker_of_it(code: ErrorCode) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.commit_with_marker_for_other(code)
        while scene.state in PREPARED:
            await asyncio.sleep(0.1)
        assert scene.state is TransactionState.COMPLETE_COMMIT

    run(scenario)


@pytest.mark.parametrize(
    ("code", "is_retried"),
    [
        (ErrorCode.transaction_coordinator_fenced, False),
        (ErrorCode.not_leader_or_follower, True),
    ],
    ids=["TRANSACTION_COORDINATOR_FENCED", "NOT_LEADER_OR_FOLLOWER"],
)
def test_markers_are_not_retried_once_their_coordinator_is_fenced(
    code: ErrorCode, is_retried: bool
) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.commit_with_marker_for_other(code)
        await asyncio.sleep(10)
        assert (len(scene.other.asked(ApiKey.WRITE_TXN_MARKERS)) > 1) is is_retried
        assert scene.state is TransactionState.PREPARE_COMMIT

    run(scenario)


def test_a_marker_is_not_skipped_while_a_new_controller_has_not_sent_its_topics() -> None:
    """The last controller deleted a topic, which has been created again since."""

    async def scenario(scene: Scene) -> None:
        await scene.writer.produce(0, 1, version=12)
        metadata, publisher = scene.parts.metadata, scene.parts.publisher
        image = metadata.current
        metadata.update(image.with_topics({}, {TOPIC}))
        epoch = publisher.controller_epoch + 1
        await publisher.publish(LeaderAndIsrRequest(OTHER, epoch))
        await scene.writer.end(True)
        await asyncio.sleep(5)
        assert scene.state is TransactionState.PREPARE_COMMIT
        metadata.update(image)
        while scene.state in PREPARED:
            await asyncio.sleep(0.1)
        assert scene.end_of(0) == 2

    run(scenario)


def test_a_late_marker_does_not_end_the_next_transaction_in_transaction_version_2() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.writer.produce(0, 1, version=12)
        await scene.writer.end(True)
        while scene.state in PREPARED:
            await asyncio.sleep(0.1)
        await scene.writer.produce(0, 2, version=12)
        new = request(ApiKey.WRITE_TXN_MARKERS, 2)
        late = new.markers(
            **scene.writer.given._asdict(),
            transaction_result=True,
            transaction_version=2,
            topics=[new.markers.topics(name=TOPIC, partition_indexes=(0,))],
        )
        response = await scene.writer.ask(new, markers=[late])
        (partition,) = response.markers[0].topics[0].partitions
        assert partition.error_code is ErrorCode.invalid_producer_epoch
        log = scene.parts.replicas.get(TOPIC, 0).log
        assert (log.last_stable_offset, log.log_end_offset) == (2, 3)

    run(scenario)
