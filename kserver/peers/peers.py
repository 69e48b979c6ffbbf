"""Peers: a pool of connections to the other brokers, at `inter.broker.listener.name`.

    broker                         result of `to`
    connected                      the open connection
    new, or its connection ended   a new connection, to the address in the current metadata
    unreachable                    NotTriedAgain, until a backoff has passed
    not in the metadata            BROKER_NOT_AVAILABLE

    the metadata changes, and the broker    its connection
    has another address                     is closed: requests in flight fail, and are retried
    is no longer registered                 the same, as a dead broker's connection may stay silent
    is unchanged                            stays

Each use has its own pool, as a broker responds on one connection in order, so a slow response
would delay the others.  `Outbox` sends one use's items: all that wait for a broker in one request,
and the next ones after its response.

Three parts connect by themselves, as their connection ends with something else than the broker's
entry in the metadata: a replica fetcher (also with its last partition; replica.socket.* sets its
buffer size and timeout), the controller's channels (each with one registration of a broker), and
the failure detector (which looks at one address, once).

(Kafka: InterBrokerSendThread, NetworkClient.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from kserver.config.broker import BrokerConfig
from kserver.errors import ErrorCode, KafkaError, ProtocolError
from kserver.metadata import ClusterMetadata, MetadataCache
from kserver.model import BrokerId, Endpoint
from kserver.peer import Disconnected, Peer, PeerOptions

FIRST_BACKOFF_S, LAST_BACKOFF_S = 0.05, 1.0
"""Backoff after the first failure, and the longest one; doubled each time."""

T = TypeVar("T")


class NotTriedAgain(Disconnected):
    """The broker could not be reached shortly before; the first caller got the original error."""


class MetadataSubscriber(Protocol):
    """A part that handles each new image of the cluster."""

    def apply(self, image: ClusterMetadata) -> None: ...


class _BrokerConnection:
    """Address of one broker, its connection, and the state of its backoff."""

    __slots__ = ("backoff_s", "endpoint", "failure", "peer", "retry_at_s", "turn")

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.peer: Peer | None = None
        self.turn = asyncio.Lock()
        """Held while connecting, so that there is one attempt at a time."""
        self.failure: OSError | KafkaError | ProtocolError | None = None
        self.backoff_s = FIRST_BACKOFF_S
        self.retry_at_s = 0.0
        """Time of the next attempt, by the loop's clock."""


class Peers:
    """`client_id` appears in the logs of the other brokers."""

    def __init__(
        self, client_id: str, config: Callable[[], BrokerConfig], metadata: MetadataCache
    ) -> None:
        self._client_id = client_id
        self._config = config
        self._metadata = metadata
        self._loop = asyncio.get_running_loop()
        self._connections: dict[BrokerId, _BrokerConnection] = {}
        self._is_closed = False

    async def to(self, broker: BrokerId) -> Peer:
        """Return an open connection to the broker.  Raises OSError, ProtocolError and KafkaError
        as `Peer.connect` does."""
        endpoint = self._endpoint(broker, self._metadata.current)
        connection = self._connections.get(broker)
        if connection is None or connection.endpoint != endpoint:
            self.leave(broker)
            connection = self._connections[broker] = _BrokerConnection(endpoint)
        async with connection.turn:
            if connection.peer is not None and connection.peer.is_open:
                return connection.peer
            if connection.failure is not None and self._loop.time() < connection.retry_at_s:
                text = f"broker {broker} is in backoff after a failure: {connection.failure}"
                raise NotTriedAgain(text)
            peer = await self._connect(connection)
        if self._is_closed or self._connections.get(broker) is not connection:
            peer.close()
            raise KafkaError(
                ErrorCode.broker_not_available, f"broker {broker} has moved to another address"
            )
        return peer

    async def _connect(self, connection: _BrokerConnection) -> Peer:
        config = self._config()
        options = PeerOptions(
            self._client_id,
            setup_timeout_ms=config.socket_connection_setup_timeout_ms,
            request_timeout_ms=config.request_timeout_ms,
        )
        try:
            connection.peer = await Peer.connect(
                connection.endpoint.host, connection.endpoint.port, options
            )
        except (OSError, KafkaError, ProtocolError) as error:
            connection.failure = error
            connection.retry_at_s = self._loop.time() + connection.backoff_s
            connection.backoff_s = min(2 * connection.backoff_s, LAST_BACKOFF_S)
            raise
        connection.failure, connection.backoff_s = None, FIRST_BACKOFF_S
        return connection.peer

    def _endpoint(self, broker: BrokerId, image: ClusterMetadata) -> Endpoint:
        registered_broker = image.brokers.get(broker)
        if registered_broker is None:
            raise KafkaError(ErrorCode.broker_not_available, f"broker {broker} is not registered")
        listener = self._config().inter_broker_listener
        endpoint = registered_broker.endpoints.get(listener)
        if endpoint is None:
            text = f"broker {broker} has no listener {listener}; correct inter.broker.listener.name"
            raise KafkaError(ErrorCode.broker_not_available, text)
        return endpoint

    def apply(self, image: ClusterMetadata) -> None:
        """Close the connections to brokers that moved or are no longer registered."""
        for broker, connection in list(self._connections.items()):
            try:
                stays = self._endpoint(broker, image) == connection.endpoint
            except KafkaError:
                stays = False
            if not stays:
                self.leave(broker)

    def leave(self, broker: BrokerId) -> None:
        """Close the connection to the broker, if any; requests in flight fail with Disconnected."""
        connection = self._connections.pop(broker, None)
        if connection is not None and connection.peer is not None:
            connection.peer.close()

    def close(self) -> None:
        """Close all connections, for good; requests in flight fail with Disconnected."""
        self._is_closed = True
        for broker in list(self._connections):
            self.leave(broker)


class Outbox(Generic[T]):
    """Items waiting to be sent to each broker.  `send` is called with a broker and its first items
    in order, at most `most` of them; it is called again for the same broker once it has returned.

    It has no limit of its own: there is one marker for each partition of a transaction that has
    ended, and one verification for each request in progress.
    """

    def __init__(self, send: Callable[[BrokerId, list[T]], Awaitable[None]], most: int) -> None:
        self._send = send
        self._most = most
        self._waiting: dict[BrokerId, list[T]] = {}
        self._serving: set[BrokerId] = set()
        self._has_waiting = asyncio.Event()

    def put(self, broker: BrokerId, item: T) -> None:
        self._waiting.setdefault(broker, []).append(item)
        self._has_waiting.set()

    async def run(self) -> None:
        """Send until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._has_waiting.wait()
                self._has_waiting.clear()
                for broker in [b for b in self._waiting if b not in self._serving]:
                    self._serving.add(broker)
                    group.create_task(self._serve(broker))

    async def _serve(self, broker: BrokerId) -> None:
        while waiting := self._waiting.pop(broker, None):
            if len(waiting) > self._most:
                self._waiting[broker] = waiting[self._most :]
            await self._send(broker, waiting[: self._most])
        self._serving.discard(broker)
