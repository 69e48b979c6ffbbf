"""Transactions as their coordinators and partitions report them; `admin.transactions`.

    async with Admin({"bootstrap.servers": "localhost:9092"}) as admin:
        for listed in await admin.transactions.listings():
            print(listed.transactional_id, listed.state)

As with the rest of Admin, a call takes at most default.api.timeout.ms, and where it concerns
several items each has its result or its KafkaError. With `Blocking`, use `run(lambda admin:
admin.transactions.listings())`.

    listings         ListTransactions (key 66), of every broker
    describe         DescribeTransactions (65)
    producers        DescribeProducers (61), of each partition's leader or of one replica
    abort            WriteTxnMarkers (27)
    fence            InitProducerId (22)
    find_hanging     transactions that only `abort` can end (KIP-664)
"""

from __future__ import annotations

import asyncio
import datetime
import struct
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kcli.client import arguments
from kcli.client.admin.descriptions import CoordinatorType
from kcli.client.cluster import Cluster, Node
from kcli.client.config import AdminConfig
from kcli.client.coordinators import of_coordinators
from kcli.client.errors import refusal_of
from kcli.client.offsets import missing_from_response, of_leaders
from kserver.errors import ErrorCode, KafkaError, ProtocolError
from kserver.model import BrokerId, Offset, ProducerId, TopicPartition
from kserver.peer import Peer
from kserver.wire import varint, versions
from kserver.wire.api_key import ApiKey

# First versions of ListTransactions with a duration (KIP-994) and with a pattern (KIP-1152).
BY_DURATION = 1
BY_PATTERN = 2
PARTITIONS_AT_ONCE = 500
NO_TAGS = b"\0"

STATES = (
    "Ongoing",
    "PrepareAbort",
    "PrepareCommit",
    "CompleteAbort",
    "CompleteCommit",
    "Empty",
    "PrepareEpochFence",
)
UNKNOWN = "Unknown"


class TransactionListing(NamedTuple):
    """`state` is one of STATES, or UNKNOWN."""

    transactional_id: str
    coordinator: BrokerId
    producer_id: ProducerId
    state: str


class TransactionDescription(NamedTuple):
    """`started_at` is in ms since 1970, None while no transaction is open."""

    coordinator: BrokerId
    state: str
    producer_id: ProducerId
    producer_epoch: int
    timeout_ms: int
    started_at: int | None
    partitions: tuple[TopicPartition, ...]


class ProducerState(NamedTuple):
    """A partition's state of a producer. `coordinator_epoch` is None before its first marker,
    `transaction_start` the first offset of the open transaction, if any.
    """

    producer_id: ProducerId
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int | None
    transaction_start: Offset | None


class AbortTransactionSpec(NamedTuple):
    """A transaction to abort in one partition."""

    partition: TopicPartition
    producer_id: ProducerId
    producer_epoch: int
    coordinator_epoch: int

    def __str__(self) -> str:
        return (
            f"AbortTransactionSpec(topicPartition={self.partition}, producerId={self.producer_id},"
            f" producerEpoch={self.producer_epoch}, coordinatorEpoch={self.coordinator_epoch})"
        )


class ProducerIdentity(NamedTuple):
    producer_id: ProducerId
    producer_epoch: int


class TransactionAdmin:
    def __init__(self, cluster: Cluster, config: AdminConfig) -> None:
        self._cluster = cluster
        self._config = config

    async def listings(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[ProducerId] = (),
        longer_than_ms: int = -1,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """Return the transactions of all brokers, by broker id; of these states and producers, open
        for longer than `longer_than_ms`, and with an id that matches `pattern` (RE2 syntax) in
        full.

        Raises KafkaError if a broker is too old to filter by time or pattern.
        """
        filters = {
            "state_filters": tuple(states),
            "producer_id_filters": tuple(producer_ids),
            "duration_filter": longer_than_ms,
            "transactional_id_pattern": pattern,
        }
        least = BY_PATTERN if pattern is not None else BY_DURATION if longer_than_ms >= 0 else 0

        async def attempt() -> list[TransactionListing]:
            # Look up the brokers each time: one of them may have left since the last attempt.
            await self._cluster.refresh(())
            brokers = sorted(self._cluster.nodes)
            responses = await asyncio.gather(
                *(self._list(broker, filters, least) for broker in brokers), return_exceptions=True
            )
            listings: list[TransactionListing] = []
            for response in responses:
                if isinstance(response, BaseException):
                    raise response
                listings += response
            return listings

        return await self._cluster.retry("listTransactions", self._deadline(), attempt)

    async def _list(
        self, broker: BrokerId, filters: Mapping[str, Any], least: int
    ) -> list[TransactionListing]:
        peer = await self._cluster.peer(broker)
        version = peer.version(ApiKey.LIST_TRANSACTIONS)
        if version < least:
            what = "pattern" if least == BY_PATTERN else "duration"
            raise KafkaError(
                ErrorCode.unsupported_version, f"{peer} cannot choose transactions by {what}"
            )
        response = await peer.call(versions.request(ApiKey.LIST_TRANSACTIONS, version)(**filters))
        if response.error_code != ErrorCode.none:
            raise KafkaError(response.error_code)
        return [
            TransactionListing(
                state.transactional_id, broker, state.producer_id, _state(state.transaction_state)
            )
            for state in response.transaction_states
        ]

    async def describe(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, TransactionDescription | KafkaError]:
        async def ask(
            peer: Peer, coordinator: Node, names: list[str]
        ) -> dict[str, TransactionDescription | KafkaError]:
            peer.version(ApiKey.DESCRIBE_TRANSACTIONS, 0)
            frame = await peer.send(ApiKey.DESCRIBE_TRANSACTIONS, 0, [_request_bytes(names)])
            return _descriptions(frame, coordinator.id)

        names = list(dict.fromkeys(arguments.names("transactional_ids", transactional_ids)))
        return await of_coordinators(
            self._cluster,
            "describeTransactions",
            names,
            CoordinatorType.TRANSACTION,
            self._deadline(),
            ask,
        )

    async def producers(
        self, partitions: Iterable[TopicPartition], broker: BrokerId | None = None
    ) -> dict[TopicPartition, list[ProducerState] | KafkaError]:
        """Return the producers that each partition's leader knows, or the replica on `broker`."""
        unique_partitions = dict.fromkeys(arguments.partitions(partitions), 0)
        if not unique_partitions:
            return {}
        if broker is None:
            return await of_leaders(
                self._cluster,
                "describeProducers",
                unique_partitions,
                self._deadline(),
                self._producers,
            )
        broker_id = broker
        results = await self._cluster.retry(
            "describeProducers",
            self._deadline(),
            lambda: self._producers(broker_id, unique_partitions),
        )
        return {
            partition: results.get(partition, missing_from_response())
            for partition in unique_partitions
        }

    async def _producers(
        self, broker: BrokerId, partitions: Mapping[TopicPartition, object]
    ) -> dict[TopicPartition, list[ProducerState] | KafkaError]:
        peer = await self._cluster.peer(broker)
        new = versions.request(ApiKey.DESCRIBE_PRODUCERS, peer.version(ApiKey.DESCRIBE_PRODUCERS))
        topics: dict[str, list[int]] = defaultdict(list)
        for topic, partition in partitions:
            topics[topic].append(partition)
        response = await peer.call(
            new(
                topics=[
                    new.topics(name=name, partition_indexes=tuple(indexes))
                    for name, indexes in topics.items()
                ]
            )
        )
        return {
            TopicPartition(topic.name, p.partition_index): refusal_of(p)
            or [_producer(producer) for producer in p.active_producers]
            for topic in response.topics
            for p in topic.partitions
        }

    async def abort(self, transaction: AbortTransactionSpec) -> None:
        """Write the marker that aborts a transaction in its partition. Raises KafkaError if
        refused.

        Only for a transaction that no coordinator knows: any other would be left half aborted.
        """

        async def ask(
            leader: BrokerId, partitions: Mapping[TopicPartition, int]
        ) -> dict[TopicPartition, KafkaError | None]:
            peer = await self._cluster.peer(leader)
            new = versions.request(ApiKey.WRITE_TXN_MARKERS, peer.version(ApiKey.WRITE_TXN_MARKERS))
            (topic, partition), *_ = partitions
            marker = new.markers(
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
                coordinator_epoch=transaction.coordinator_epoch,
                transaction_result=False,
                topics=[new.markers.topics(name=topic, partition_indexes=(partition,))],
            )
            response = await peer.call(new(markers=[marker]))
            return {
                TopicPartition(topic.name, p.partition_index): refusal_of(p)
                for marker in response.markers
                for topic in marker.topics
                for p in topic.partitions
            }

        partitions = {transaction.partition: 0}
        results = await of_leaders(
            self._cluster, "abortTransaction", partitions, self._deadline(), ask
        )
        refusal = results[transaction.partition]
        if refusal is not None:
            raise refusal

    async def fence(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, ProducerIdentity | KafkaError]:
        """Take these ids over: open transactions are aborted, and their producers are fenced."""
        timeout = datetime.timedelta(milliseconds=self._config.request_timeout_ms)

        async def ask(
            peer: Peer, coordinator: Node, names: list[str]
        ) -> dict[str, ProducerIdentity | KafkaError]:
            new = versions.request(ApiKey.INIT_PRODUCER_ID, peer.version(ApiKey.INIT_PRODUCER_ID))
            identities: dict[str, ProducerIdentity | KafkaError] = {}
            for name in names:
                response = await peer.call(
                    new(
                        transactional_id=name,
                        transaction_timeout=timeout,
                        producer_id=-1,
                        producer_epoch=-1,
                    )
                )
                identities[name] = refusal_of(response) or ProducerIdentity(
                    response.producer_id, response.producer_epoch
                )
            return identities

        names = list(dict.fromkeys(arguments.names("transactional_ids", transactional_ids)))
        return await of_coordinators(
            self._cluster,
            "fenceProducer",
            names,
            CoordinatorType.TRANSACTION,
            self._deadline(),
            ask,
        )

    async def find_hanging(
        self,
        partitions: Sequence[TopicPartition],
        *,
        last_before_ms: int,
        broker: BrokerId | None = None,
    ) -> list[tuple[TopicPartition, ProducerState]]:
        """Return transactions that have no record since `last_before_ms` (ms since 1970) and that
        no coordinator knows: their producer has no transactional.id any more, or another
        transaction.
        """
        open_ones: list[tuple[TopicPartition, ProducerState]] = []
        for first in range(0, len(partitions), PARTITIONS_AT_ONCE):
            batch = partitions[first : first + PARTITIONS_AT_ONCE]
            for partition, states in (await self.producers(batch, broker)).items():
                if isinstance(states, KafkaError):
                    raise states
                open_ones += (
                    (partition, state)
                    for state in states
                    if state.transaction_start is not None and state.last_timestamp < last_before_ms
                )
        if not open_ones:
            return []
        ids = {state.producer_id for _, state in open_ones}
        listings = await self.listings(producer_ids=sorted(ids))
        names = {listing.producer_id: listing.transactional_id for listing in listings}
        partitions_of: dict[ProducerId, Collection[TopicPartition]] = {}
        described = await self.describe(names.values())
        for producer_id, name in names.items():
            description = described[name]
            if not isinstance(description, KafkaError):
                partitions_of[producer_id] = description.partitions
            elif description.code is not ErrorCode.transactional_id_not_found:
                raise description
        return [
            (partition, state)
            for partition, state in open_ones
            if partition not in partitions_of.get(state.producer_id, ())
        ]

    def _deadline(self) -> float:
        return self._cluster.deadline(self._config.default_api_timeout_ms)


def _state(name: str) -> str:
    return name if name in STATES else UNKNOWN


# DescribeTransactions v0 by hand: kio refuses responses with start -1 (no transaction open).


def _request_bytes(names: Sequence[str]) -> bytes:
    texts = [name.encode() for name in names]
    pieces = [varint.encode_unsigned(len(texts) + 1)]
    for text in texts:
        pieces += (varint.encode_unsigned(len(text) + 1), text)
    return b"".join((*pieces, NO_TAGS))


def _descriptions(
    frame: memoryview, coordinator: BrokerId
) -> dict[str, TransactionDescription | KafkaError]:
    try:
        return dict(_states(_Reader(frame), coordinator))
    except (struct.error, IndexError, ValueError) as error:
        raise ProtocolError(
            f"an answer to DescribeTransactions that ends early: {error}"
        ) from error


def _states(
    reader: _Reader, coordinator: BrokerId
) -> Iterator[tuple[str, TransactionDescription | KafkaError]]:
    reader.plain(">i")  # the correlation id
    reader.tags()
    reader.plain(">i")  # throttle time
    for _ in range(reader.length()):
        (code,) = reader.plain(">h")
        name, state = reader.text(), reader.text()
        timeout_ms, started_at, producer_id, epoch = reader.plain(">iqqh")
        partitions = []
        for _ in range(reader.length()):
            topic = reader.text()
            partitions += [
                TopicPartition(topic, *reader.plain(">i")) for _ in range(reader.length())
            ]
            reader.tags()
        reader.tags()
        if code:
            yield name, _describe_error(ErrorCode(code), name)
            continue
        yield (
            name,
            TransactionDescription(
                coordinator,
                _state(state),
                producer_id,
                epoch,
                timeout_ms,
                started_at if started_at >= 0 else None,
                tuple(partitions),
            ),
        )
    reader.tags()


def _describe_error(code: ErrorCode, name: str) -> KafkaError:
    if code is not ErrorCode.transactional_id_not_found:
        return KafkaError(code)
    # The text of Kafka's client.
    return KafkaError(
        code,
        f"DescribeTransactions request for transactionalId `{name}` failed because the ID could"
        " not be found",
    )


class _Reader:
    """Reads the fields of a flexible response in order."""

    def __init__(self, frame: memoryview) -> None:
        self._frame = frame
        self._at = 0

    def plain(self, format: str) -> tuple[Any, ...]:
        values = struct.unpack_from(format, self._frame, self._at)
        self._at += struct.calcsize(format)
        return values

    def length(self) -> int:
        """Return the length of an array. Raises ValueError if it exceeds the response's size."""
        count, self._at = varint.decode_unsigned(self._frame, self._at)
        if count > len(self._frame):
            raise ValueError(f"{count} items in {len(self._frame)} bytes")
        return max(0, count - 1)

    def text(self) -> str:
        size, at = varint.decode_unsigned(self._frame, self._at)
        self._at = at + max(0, size - 1)
        return str(self._frame[at : self._at], "utf-8")

    def tags(self) -> None:
        count, self._at = varint.decode_unsigned(self._frame, self._at)
        for _ in range(count):
            _, at = varint.decode_unsigned(self._frame, self._at)
            size, at = varint.decode_unsigned(self._frame, at)
            self._at = at + size


def _producer(producer: Any) -> ProducerState:
    return ProducerState(
        producer.producer_id,
        producer.producer_epoch,
        producer.last_sequence,
        producer.last_timestamp,
        producer.coordinator_epoch if producer.coordinator_epoch >= 0 else None,
        producer.current_txn_start_offset if producer.current_txn_start_offset >= 0 else None,
    )
