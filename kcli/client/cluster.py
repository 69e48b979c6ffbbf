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
import dataclasses
import enum
import logging
import re
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from random import Random
from typing import Any, NamedTuple, TypeVar

from kcli.client.config import ClientConfig
from kcli.client.errors import ClientError, ClusterUnreachable, TimedOut
from kcli.client.topic_metadata import (
    Address,
    LeaderEpochs,
    PartitionMetadata,
    TopicMetadata,
    topic_metadata,
)
from kserver.config.setting import INT_MAX
from kserver.errors import ConfigError, ErrorCode, KafkaError, ProtocolError
from kserver.model import BrokerId, LeaderEpoch, TopicPartition
from kserver.peer import Peer, PeerOptions
from kserver.wire import versions
from kserver.wire.api_key import ApiKey

T = TypeVar("T")
# Decoded, a response takes some ten times its size; librdkafka's receive.message.max.bytes is the
# same.
MAX_RESPONSE_BYTES = 100_000_000
# Seconds without a response after which other brokers are asked whether a broker is still alive.
SLOW_S = 3.0
# Seconds without a connection after which the next address is tried as well (RFC 8305: 0.25).
NEXT_ADDRESS_S = 0.5

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
    matches = [(server, _SERVER.fullmatch(server)) for server in servers]
    for server, match in matches:
        if match is None or not match[1] or int(match[2]) > 65535:
            raise ConfigError(f"Invalid url in bootstrap.servers: {server}")
    if not matches:
        raise ConfigError(
            'Missing required configuration "bootstrap.servers" which has no default value.'
        )
    return [(match[1], int(match[2])) for _, match in matches if match]


class _Link:
    """The connection to one address, open or not, and its failures so far."""

    __slots__ = ("connecting", "failure", "failures", "not_before", "peer")

    def __init__(self) -> None:
        self.peer: Peer | None = None
        self.connecting: asyncio.Future[None] | None = None
        self.failures = 0
        self.failure: OSError | ProtocolError | None = None
        """The last failure, if there was no connection since."""
        self.not_before = 0.0


class Cluster:
    """`topics` holds topics that were requested by name, or all; a missing name was not requested
    yet or does not exist. `random` chooses among brokers and spreads pauses.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        random: Random | None = None,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
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
        self._epochs = LeaderEpochs()
        self._advertised: set[Address] = set()
        """The addresses of all brokers that metadata has named so far."""
        self._unready: set[Address] = set()
        """Brokers that were late to respond, ended the connection instead of responding to a
        Metadata request, or were doubted, and have sent no metadata since."""
        self._watch: asyncio.Task[None] | None = None
        self._options = PeerOptions(
            client_id=config.client_id,
            request_timeout_ms=config.request_timeout_ms,
            max_idle_ms=idle_ms if (idle_ms := config.connections_max_idle_ms) >= 0 else 1 << 40,
            max_response_bytes=max_response_bytes,
            send_buffer_bytes=(
                config.send_buffer_bytes if config.is_set("send_buffer_bytes") else -1
            ),
            receive_buffer_bytes=(
                config.receive_buffer_bytes if config.is_set("receive_buffer_bytes") else -1
            ),
        )

    async def close(self) -> None:
        """Close every connection; requests in flight fail."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])
            self._watch = None
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
        self, to: BrokerId | To = To.ANY, *, line: str = "", response_ms: int | None = None
    ) -> Peer:
        """Return an open connection. Raises OSError if that broker cannot be reached now.

        A broker responds in order on a connection, so requests that may block for long have a
        `line` of their own to a broker, on which a response may take `response_ms` instead of
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
        return await self._connect((node.host, node.port), line, response_ms)

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

    def doubt(self, broker: BrokerId) -> None:
        """Prefer others to this broker, which may be partitioned from the cluster, for requests to
        any broker, until it has sent metadata again.
        """
        if (node := self.nodes.get(broker)) is not None:
            self._unready.add((node.host, node.port))

    def forget_controller(self) -> None:
        """Forget the controller, which has resigned or cannot be reached."""
        self.controller = None

    async def _any_peer(self) -> Peer:
        open_peers = [
            link.peer
            for (_, line), link in self._links.items()
            if not line and link.peer and link.peer.is_open
        ]
        # They may be partitioned from the cluster, paused, or without metadata; others may not.
        doubtful = self._epochs.lagging | self._slow() | self._unready
        candidates = [(node.host, node.port) for node in self.nodes.values()]
        self._random.shuffle(candidates)
        if open_peers:
            peer = min(
                open_peers, key=lambda peer: ((peer.host, peer.port) in doubtful, peer.in_flight)
            )
            address = (peer.host, peer.port)
            if address not in doubtful:
                return peer
            # A broker that could not be reached the last time may have been started since.
            others = sorted((a for a in candidates if a not in doubtful), key=self._fails)
            return await self._first_of([*others, address])
        if not candidates or self._config.metadata_recovery_strategy.lower() == "rebootstrap":
            candidates += [address for address in self._bootstrap if address not in candidates]
        # Those whose last attempt failed come last.
        candidates.sort(key=self._fails)
        return await self._first_of(candidates)

    async def _first_of(self, addresses: Sequence[Address]) -> Peer:
        """Connect to one of the addresses: to the next as soon as the last attempt has failed, or
        at the same time if it has had no result for a while, as with a broker that is paused.
        Raises the last error if all fail.
        """
        errors: list[OSError | ProtocolError] = []
        remaining = deque(addresses)
        attempts: set[asyncio.Task[Peer]] = set()
        try:
            while remaining or attempts:
                if remaining:
                    attempts.add(asyncio.create_task(self._connect(remaining.popleft())))
                done, attempts = await asyncio.wait(
                    attempts,
                    timeout=NEXT_ADDRESS_S if remaining else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for result in await asyncio.gather(*done, return_exceptions=True):
                    if isinstance(result, Peer):
                        return result
                    if not isinstance(result, OSError | ProtocolError):
                        raise result
                    errors.append(result)
        finally:
            for attempt in attempts:
                attempt.cancel()
            await asyncio.gather(*attempts, return_exceptions=True)
        if not self.nodes and all(isinstance(error, socket.gaierror) for error in errors):
            raise ConfigError("No resolvable bootstrap urls given in bootstrap.servers")
        raise errors[-1]

    def _fails(self, address: Address) -> bool:
        """Whether the last attempt to connect failed, or to get metadata."""
        link = self._links.get((address, ""))
        return (link is not None and link.failures > 0) or address in self._unready

    async def _connect(
        self, address: Address, line: str = "", response_ms: int | None = None
    ) -> Peer:
        """Return the one connection to an address for all callers, not sooner than its backoff."""
        loop = asyncio.get_running_loop()
        link = self._links.setdefault((address, line), _Link())
        while True:
            if link.peer is not None and link.peer.is_open:
                return link.peer
            if link.connecting is None:
                break
            failures = link.failures
            await asyncio.wait([link.connecting])
            if link.failure is not None and link.failures > failures:
                raise link.failure
        done = link.connecting = loop.create_future()
        try:
            if link.not_before > loop.time():
                await asyncio.sleep(link.not_before - loop.time())
            options = self._options_for(link.failures)
            if response_ms is not None:
                options = dataclasses.replace(options, request_timeout_ms=response_ms)
            link.peer = await Peer.connect(*address, options)
            link.failures, link.failure = 0, None
            link.peer.closed.add_done_callback(partial(self._on_closed, address, link.peer))
            if self._watch is None:
                self._watch = loop.create_task(self._watch_slow_brokers())
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

    def _on_closed(self, address: Address, peer: Peer, _: asyncio.Future[None]) -> None:
        if peer.timed_out:
            self._unready.add(address)

    def _connection_failed(
        self, link: _Link, address: Address, error: OSError | ProtocolError
    ) -> None:
        if link.failures == 0:
            _logger.warning("No connection to %s:%d: %s", *address, error)
        config = self._config
        link.failures += 1
        link.failure = error
        pause = self._backoff(
            link.failures, config.reconnect_backoff_ms, config.reconnect_backoff_max_ms
        )
        link.not_before = asyncio.get_running_loop().time() + pause

    async def _watch_slow_brokers(self) -> None:
        """Close the connections to brokers that have not responded for a while, if other brokers
        no longer list them: a paused broker keeps its connections open, and each request would
        wait for its whole timeout.
        """
        while True:
            await asyncio.sleep(SLOW_S)
            if not (slow := self._slow() & self._advertised):
                continue
            try:
                async with asyncio.timeout(SLOW_S):
                    await self.refresh(())
            except (OSError, KafkaError, ProtocolError, ClientError, ConfigError) as error:
                _logger.debug("no metadata while a broker is slow: %s", error)
                continue
            departed = slow - {(node.host, node.port) for node in self.nodes.values()}
            for (address, _), link in self._links.items():
                if address in departed and link.peer is not None:
                    _logger.debug("%s does not respond and has left the cluster", link.peer)
                    link.peer.close()

    def _slow(self) -> set[Address]:
        """Return the brokers that have not responded for a while, on any connection."""
        return {
            address
            for (address, _), link in self._links.items()
            if link.peer is not None and link.peer.waiting_s > SLOW_S
        }

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
        could be out of range at a former leader that is partitioned from the others.
        """
        self._epochs.expect(partition, epoch)
        if topic := self.topics.get(partition.topic):
            self.topics[topic.name] = self._epochs.without_former_leaders(topic)

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
        try:
            response = await peer.call(
                new(
                    topics=None if names is None else [new.topics(name=name) for name in names],
                    allow_auto_topic_creation=create,
                )
            )
        except OSError:
            self._unready.add((peer.host, peer.port))
            raise
        return self.learn(response, names, peer)

    def learn(
        self, response: Any, requested: Collection[str] | None, peer: Peer
    ) -> dict[str, KafkaError]:
        """Update from a Metadata response in any version, for the topics that were requested. None:
        all were, and topics that are not in it no longer exist.
        """
        self._unready.discard((peer.host, peer.port))
        if getattr(response, "error_code", ErrorCode.none) != ErrorCode.none:
            # REBOOTSTRAP_REQUIRED (KIP-1102): these brokers no longer know the cluster.
            self.nodes.clear()
            raise KafkaError(response.error_code)
        if response.brokers:
            self.nodes = {
                b.node_id: node_of(b.node_id, b.host, b.port, getattr(b, "rack", None))
                for b in response.brokers
            }
            self._advertised |= {(node.host, node.port) for node in self.nodes.values()}
        self.cluster_id = getattr(response, "cluster_id", None)
        controller = getattr(response, "controller_id", -1)
        self.controller = controller if controller in self.nodes else None
        broker = peer.host, peer.port
        brokers = [(node.host, node.port) for node in self.nodes.values()]
        now_s = asyncio.get_running_loop().time()
        before = self.topics
        topics = {} if requested is None else dict(before)
        names = None if requested is None else set(requested)
        refusals: dict[str, KafkaError] = {}
        for topic in response.topics:
            if topic.name is None or (names is not None and topic.name not in names):
                # A name is null only if a topic was requested by an id that is unknown.
                continue
            if topic.error_code == ErrorCode.none:
                topics[topic.name] = self._epochs.choose(
                    topic_metadata(topic), before.get(topic.name), broker, brokers, now_s
                )
            else:
                refusals[topic.name] = KafkaError(topic.error_code)
                if topic.error_code == ErrorCode.unknown_topic_or_partition:
                    topics.pop(topic.name, None)
                    self._epochs.forget(topic.name)
        self.topics = topics
        return refusals


def expect_topic_name(name: object) -> None:
    """Raises ClientError if no topic can have this name, before a broker is asked for it."""
    if not isinstance(name, str) or not name:
        raise ClientError(f"the name of a topic is a str that is not empty, not {name!r}")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise ClientError(f"the topic name {name!r} cannot be encoded in UTF-8") from error
