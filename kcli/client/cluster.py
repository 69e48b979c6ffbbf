"""Cluster: the brokers and partitions that a client knows, its connections, and retries.

Every client has one. It learns from Metadata responses. When a broker responds that it is not the
leader, coordinator or controller, metadata is refreshed and the caller's attempt is repeated, until
the caller's deadline.

    cluster = Cluster(config)
    peer = await cluster.peer(To.CONTROLLER)
    answer = await cluster.retry("createTopics", deadline, attempt)

It repeats nothing by itself: only the caller knows what is safe to repeat.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import enum
import logging
import re
import socket
from collections.abc import Awaitable, Callable, Collection, Iterable
from random import Random
from typing import Any, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from kcli.client.config import ClientConfig
from kcli.client.errors import ClientError, ClusterUnreachable, TimedOut
from kserver.config.setting import INT_MAX
from kserver.errors import ConfigError, ErrorCode, KafkaError, ProtocolError
from kserver.model import BrokerId, LeaderEpoch, TopicPartition
from kserver.peer import Peer, PeerOptions
from kserver.wire import versions
from kserver.wire.api_key import ApiKey

T = TypeVar("T")
Address: TypeAlias = tuple[str, int]

# Decoded, a response takes some ten times its size; librdkafka's receive.message.max.bytes is the
# same.
MAX_RESPONSE_BYTES = 100_000_000
# Seconds for which all brokers may report a lower leader epoch than one of them did.
MAX_LAG_S = 10.0

_SERVER = re.compile(r"(?:[0-9a-zA-Z%._-]*://)?\[?([0-9a-zA-Z%._:-]*)\]?:([0-9]+)")
_logger = logging.getLogger(__name__)


class To(enum.Enum):
    """Which broker to ask, unless it is one by its id."""

    ANY = enum.auto()
    CONTROLLER = enum.auto()


class Node(NamedTuple):
    id: BrokerId
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port} (id: {self.id} rack: {self.rack or 'null'})"


class PartitionMetadata(NamedTuple):
    """`leader` is None while there is none; the preferred replica is the first of `replicas`."""

    partition: int
    leader: BrokerId | None
    leader_epoch: LeaderEpoch
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    offline: tuple[BrokerId, ...]


class TopicMetadata(NamedTuple):
    """`id` is None on brokers older than 2.8; `partitions[p]` is partition p."""

    name: str
    id: UUID | None
    is_internal: bool
    partitions: tuple[PartitionMetadata, ...]


_HOST = re.compile(r"[0-9a-zA-Z%._:-]+")


def node_of(id: BrokerId, host: str, port: int, rack: str | None) -> Node:
    """Return a broker from a response. Raises ProtocolError if host or port are invalid, since both
    may be printed.
    """
    if not _HOST.fullmatch(host) or not 0 < port <= 65535:
        raise ProtocolError(f"an answer names a broker at {host!r} port {port}")
    return Node(id, host, port, rack)


def addresses_of(servers: Iterable[str]) -> list[Address]:
    """Return host and port of each entry of bootstrap.servers; raises ConfigError if one is
    invalid.
    """
    found = [(server, _SERVER.fullmatch(server)) for server in servers]
    for server, match in found:
        if match is None or not match[1] or int(match[2]) > 65535:
            raise ConfigError(f"Invalid url in bootstrap.servers: {server}")
    if not found:
        raise ConfigError(
            'Missing required configuration "bootstrap.servers" which has no default value.'
        )
    return [(match[1], int(match[2])) for _, match in found if match]


class _Link:
    """The connection to one address, open or not, and its failures so far."""

    __slots__ = ("connecting", "failures", "not_before", "peer")

    def __init__(self) -> None:
        self.peer: Peer | None = None
        self.connecting: asyncio.Future[None] | None = None
        self.failures = 0
        self.not_before = 0.0


class _Lag:
    """The brokers with older metadata of a topic than another broker had, and since when."""

    __slots__ = ("brokers", "since_s")

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.brokers: set[Address] = set()


class Cluster:
    """`topics` holds topics that were requested by name, or all; a missing name was not requested
    yet or does not exist. `random` chooses among brokers and spreads pauses.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        random: Random | None = None,
        max_answer_bytes: int = MAX_RESPONSE_BYTES,
    ) -> None:
        if config.security_protocol.upper() != "PLAINTEXT":
            raise ConfigError(
                f"Invalid value {config.security_protocol} for configuration security.protocol:"
                " only PLAINTEXT is supported so far"
            )
        self.cluster_id: str | None = None
        self.controller: BrokerId | None = None
        self.nodes: dict[BrokerId, Node] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self._config = config
        self._random = random or Random()
        self._bootstrap = addresses_of(config.bootstrap_servers)
        self._links: dict[tuple[Address, str], _Link] = {}
        """By address and line; line "" is the shared connection."""
        self._lagging: dict[str, _Lag] = {}
        """By topic: the brokers with older metadata of it than another broker had."""
        self._min_epochs: dict[TopicPartition, LeaderEpoch] = {}
        self._options = PeerOptions(
            client_id=config.client_id,
            request_timeout_ms=config.request_timeout_ms,
            max_idle_ms=idle_ms if (idle_ms := config.connections_max_idle_ms) >= 0 else 1 << 40,
            max_answer_bytes=max_answer_bytes,
            send_buffer_bytes=config.send_buffer_bytes if config.given("send_buffer_bytes") else -1,
            receive_buffer_bytes=(
                config.receive_buffer_bytes if config.given("receive_buffer_bytes") else -1
            ),
        )

    async def close(self) -> None:
        """Close every connection; requests in flight fail."""
        peers = [link.peer for link in self._links.values() if link.peer is not None]
        self._links.clear()
        for peer in peers:
            peer.close()
        for peer in peers:
            await peer.closed

    # Trying again

    def deadline(self, timeout_ms: float) -> float:
        return asyncio.get_running_loop().time() + timeout_ms / 1000

    async def retry(
        self,
        call: str,
        deadline: float,
        attempt: Callable[[], Awaitable[T]],
        *,
        retries: int = INT_MAX,
    ) -> T:
        """Repeat `attempt` until it succeeds, fails for good, or the deadline has passed.

        Failed connections and KafkaErrors with a retriable code are repeated. After the deadline
        the last of them is raised: a KafkaError as it is, others as ClusterUnreachable, or as
        TimedOut while a broker is connected.
        """
        tries = 0
        last: Exception | None = None
        try:
            async with asyncio.timeout_at(deadline):
                while True:
                    try:
                        return await attempt()
                    except OSError as error:
                        _logger.debug("%s failed: %s", call, error)
                        last = error
                    except KafkaError as error:
                        if not error.code.retriable:
                            raise
                        _logger.debug("%s was refused: %s", call, error)
                        last = error
                    tries += 1
                    if tries > retries:
                        raise last
                    await self.pause(tries)
        except TimeoutError as error:
            if isinstance(last, KafkaError):
                raise last from error
            if any(link.peer and link.peer.is_open for link in self._links.values()):
                raise TimedOut(f"{call} was not answered in time") from error
            raise ClusterUnreachable(call, last) from error

    async def pause(self, tries: int) -> None:
        """Wait before the next attempt, longer each time (retry.backoff.ms)."""
        await asyncio.sleep(self.backoff(tries))

    def backoff(self, tries: int) -> float:
        """Return the seconds before the next attempt."""
        config = self._config
        return self._backoff(tries, config.retry_backoff_ms, config.retry_backoff_max_ms)

    def _backoff(self, tries: int, first_ms: int, max_ms: int) -> float:
        """Return seconds, doubling, with a random fifth either way so that clients do not
        synchronize.
        """
        longest = min(max_ms, first_ms * 2.0 ** min(tries - 1, 32))
        return longest * self._random.uniform(0.8, 1.2) / 1000

    # Connections

    async def peer(
        self, to: BrokerId | To = To.ANY, *, line: str = "", answer_ms: int | None = None
    ) -> Peer:
        """Return an open connection. Raises OSError if that broker cannot be reached now.

        A broker responds in order on a connection, so requests that may block for long have a
        `line` of their own to a broker, on which a response may take `answer_ms` instead of
        request.timeout.ms.
        """
        if to is To.ANY:
            return await self._any_peer()
        if to is To.CONTROLLER:
            return await self._peer_of_controller()
        assert not isinstance(to, To)
        if (node := self.nodes.get(to)) is None:
            await self.refresh(())
            if (node := self.nodes.get(to)) is None:
                raise KafkaError(ErrorCode.broker_not_available, f"broker {to} does not exist")
        return await self._connect((node.host, node.port), line, answer_ms)

    async def _peer_of_controller(self) -> Peer:
        if self.controller is None:
            await self.refresh(())
        if self.controller is None:
            raise KafkaError(ErrorCode.not_controller, "the cluster has no controller")
        try:
            return await self.peer(self.controller)
        except OSError:
            # Another controller will be elected, and any broker can name it.
            self.forget_controller()
            raise

    def forget_controller(self) -> None:
        """Forget the controller, which has resigned or cannot be reached."""
        self.controller = None

    async def _any_peer(self) -> Peer:
        open_peers = [
            link.peer
            for (_, line), link in self._links.items()
            if not line and link.peer and link.peer.is_open
        ]
        behind = {address for lag in self._lagging.values() for address in lag.brokers}
        known = [(node.host, node.port) for node in self.nodes.values()]
        self._random.shuffle(known)
        if open_peers and all((peer.host, peer.port) in behind for peer in open_peers):
            # They may be partitioned from the cluster, while others have newer metadata.
            for address in known:
                if address not in behind and not self._fails(address):
                    with contextlib.suppress(OSError, ProtocolError):
                        return await self._connect(address)
        if open_peers:
            return min(
                open_peers, key=lambda peer: ((peer.host, peer.port) in behind, peer.in_flight)
            )
        if not known or self._config.metadata_recovery_strategy.lower() == "rebootstrap":
            known += [address for address in self._bootstrap if address not in known]
        errors: list[OSError | ProtocolError] = []
        for address in known:
            try:
                return await self._connect(address)
            except (OSError, ProtocolError) as error:
                errors.append(error)
        if not self.nodes and all(isinstance(error, socket.gaierror) for error in errors):
            raise ConfigError("No resolvable bootstrap urls given in bootstrap.servers")
        raise errors[-1]

    def _fails(self, address: Address) -> bool:
        """Whether the last attempt to connect failed."""
        link = self._links.get((address, ""))
        return link is not None and link.failures > 0

    async def _connect(
        self, address: Address, line: str = "", answer_ms: int | None = None
    ) -> Peer:
        """Return the one connection to an address for all callers, not sooner than its backoff."""
        loop = asyncio.get_running_loop()
        link = self._links.setdefault((address, line), _Link())
        while True:
            if link.peer is not None and link.peer.is_open:
                return link.peer
            if link.connecting is None:
                break
            await asyncio.wait([link.connecting])
        done = link.connecting = loop.create_future()
        try:
            if link.not_before > loop.time():
                await asyncio.sleep(link.not_before - loop.time())
            options = self._options_for(link.failures)
            if answer_ms is not None:
                options = dataclasses.replace(options, request_timeout_ms=answer_ms)
            link.peer = await Peer.connect(*address, options)
            link.failures = 0
            return link.peer
        except (ValueError, OverflowError) as error:
            # A host name or port that is invalid.
            failure = OSError(f"{address[0]!r} port {address[1]}: {error}")
            self._connection_failed(link, address, failure)
            raise failure from error
        except (OSError, ProtocolError) as error:
            self._connection_failed(link, address, error)
            raise
        finally:
            link.connecting = None
            done.set_result(None)

    def _connection_failed(self, link: _Link, address: Address, error: Exception) -> None:
        if link.failures == 0:
            _logger.warning("No connection to %s:%d: %s", *address, error)
        config = self._config
        link.failures += 1
        pause = self._backoff(
            link.failures, config.reconnect_backoff_ms, config.reconnect_backoff_max_ms
        )
        link.not_before = asyncio.get_running_loop().time() + pause

    def _options_for(self, failures: int) -> PeerOptions:
        config = self._config
        timeout_ms = min(
            config.socket_connection_setup_timeout_ms * 2 ** min(failures, 16),
            config.socket_connection_setup_timeout_max_ms,
        )
        return dataclasses.replace(self._options, setup_timeout_ms=timeout_ms)

    # Metadata

    def partition(self, partition: TopicPartition) -> PartitionMetadata | None:
        """Return the known metadata of a partition, or None."""
        name, number = partition
        topic = self.topics.get(name)
        if topic is None or not 0 <= number < len(topic.partitions):
            return None
        return topic.partitions[number]

    def expect_epoch(self, partition: TopicPartition, epoch: LeaderEpoch) -> None:
        """Note that a leader of this epoch has been seen, by a group's committed offset: the
        leader is unknown until a broker reports that epoch or a higher one. Otherwise the offset
        could be out of range at a former leader that is partitioned from the others
        (Metadata.updateLastSeenEpochIfNewer).
        """
        self._min_epochs[partition] = max(epoch, self._min_epochs.get(partition, -1))
        if topic := self.topics.get(partition.topic):
            self.topics[topic.name] = self._without_former_leaders(topic)

    def _without_former_leaders(self, topic: TopicMetadata) -> TopicMetadata:
        """Return the metadata without leaders of a lower epoch than is known to exist."""
        if not self._min_epochs:
            return topic
        return topic._replace(
            partitions=tuple(
                p._replace(leader=None, leader_epoch=epoch)
                if 0 <= p.leader_epoch < (epoch := self._min_epochs.get(key, -1))
                else p
                for p in topic.partitions
                for key in (TopicPartition(topic.name, p.partition),)
            )
        )

    def _forget_epochs(self, topic: str) -> None:
        for partition in [p for p in self._min_epochs if p.topic == topic]:
            del self._min_epochs[partition]

    async def refresh(
        self, names: Collection[str] | None, *, create: bool = False
    ) -> dict[str, KafkaError]:
        """Request metadata of some topics by name, or of all (None), from any broker.

        Returns the error of each topic that was refused. With `create` the broker creates topics
        that do not exist, if auto.create.topics.enable is set.
        """
        peer = await self.peer()
        version = peer.version(ApiKey.METADATA)
        new = versions.request(ApiKey.METADATA, version)
        answer = await peer.call(
            new(
                topics=None if names is None else [new.topics(name=name) for name in names],
                allow_auto_topic_creation=create,
            )
        )
        return self.learn(answer, names, peer)

    def learn(
        self, answer: Any, asked: Collection[str] | None, peer: Peer
    ) -> dict[str, KafkaError]:
        """Update from a Metadata response in any version, for the topics that were requested. None:
        all were, and topics that are not in it no longer exist.
        """
        if getattr(answer, "error_code", ErrorCode.none) != ErrorCode.none:
            # REBOOTSTRAP_REQUIRED (KIP-1102): these brokers no longer know the cluster.
            self.nodes.clear()
            raise KafkaError(answer.error_code)
        if answer.brokers:
            self.nodes = {
                b.node_id: node_of(b.node_id, b.host, b.port, getattr(b, "rack", None))
                for b in answer.brokers
            }
        self.cluster_id = getattr(answer, "cluster_id", None)
        controller = getattr(answer, "controller_id", -1)
        self.controller = controller if controller in self.nodes else None
        before = self.topics
        topics = {} if asked is None else dict(before)
        names = None if asked is None else set(asked)
        refused: dict[str, KafkaError] = {}
        for topic in answer.topics:
            if topic.name is None or (names is not None and topic.name not in names):
                # A name is null only if a topic was requested by an id that is unknown.
                continue
            if topic.error_code == ErrorCode.none:
                topics[topic.name] = self._newer(_topic(topic), before.get(topic.name), peer)
            else:
                refused[topic.name] = KafkaError(topic.error_code)
                if topic.error_code == ErrorCode.unknown_topic_or_partition:
                    topics.pop(topic.name, None)
                    self._forget_epochs(topic.name)
        self.topics = topics
        return refused

    def _newer(self, now: TopicMetadata, before: TopicMetadata | None, peer: Peer) -> TopicMetadata:
        """Return the metadata with the higher leader epoch for each partition: a lagging broker
        must not lead back to an old leader, however long it is partitioned from the others. If all
        of them report less for MAX_LAG_S, the higher epoch was wrong.
        """
        known = {} if before is None else {p.partition: p for p in before.partitions}
        if before is not None and before.id != now.id:
            # The name was created again, with epochs of its own.
            known = {}
            self._forget_epochs(now.name)
        newest = self._without_former_leaders(
            now._replace(
                partitions=tuple(
                    old
                    if (old := known.get(p.partition)) and old.leader_epoch > p.leader_epoch >= 0
                    else p
                    for p in now.partitions
                ),
            )
        )
        if newest == now:
            self._lagging.pop(now.name, None)
            return now
        time = asyncio.get_running_loop().time()
        lag = self._lagging.setdefault(now.name, _Lag(time))
        lag.brokers.add((peer.host, peer.port))
        all_lag = all((node.host, node.port) in lag.brokers for node in self.nodes.values())
        if time - lag.since_s < MAX_LAG_S or not all_lag:
            return newest
        del self._lagging[now.name]
        self._forget_epochs(now.name)
        return now


def expect_topic_name(name: object) -> None:
    """Raises ClientError if no topic can have this name, before a broker is asked for it."""
    if not isinstance(name, str) or not name:
        raise ClientError(f"the name of a topic is a str that is not empty, not {name!r}")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise ClientError(f"the topic name {name!r} cannot be encoded in UTF-8") from error


def _topic(topic: Any) -> TopicMetadata:
    """Return one topic of a Metadata or DescribeTopicPartitions response."""
    partitions = tuple(
        PartitionMetadata(
            p.partition_index,
            p.leader_id if p.leader_id >= 0 else None,
            getattr(p, "leader_epoch", -1),
            p.replica_nodes,
            p.isr_nodes,
            getattr(p, "offline_replicas", ()),
        )
        for p in sorted(topic.partitions, key=lambda p: p.partition_index)
    )
    if [p.partition for p in partitions] != list(range(len(partitions))):
        raise ProtocolError(f"metadata of {topic.name} leaves out partitions")
    id = getattr(topic, "topic_id", None)
    return TopicMetadata(topic.name, id, getattr(topic, "is_internal", False), partitions)
