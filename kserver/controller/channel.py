"""Sends the controller's requests to the brokers: in order, over one channel to each live broker.

(Kafka: ControllerChannelManager.)
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from typing import NamedTuple, TypeAlias

from kserver.config.broker import BrokerConfig
from kserver.controller.context import ControllerContext, LiveBroker
from kserver.controller.request_batch import ControlRequest, RequestBatch
from kserver.errors import KafkaError, ProtocolError
from kserver.metrics.meters import Histogram
from kserver.model import BrokerId
from kserver.peer import Peer, PeerOptions
from kserver.wire import codec
from kserver.wire.control import ControlMessage, read_control_response
from kserver.world.running_parts import RunningParts

log = logging.getLogger(__name__)

RETRY_BACKOFF_S = 0.1

OnResponse: TypeAlias = Callable[[LiveBroker, ControlRequest, ControlMessage], None]
"""Called with the broker's registration, a request, and its response."""


class ChannelManager:
    """`publish` delivers a message to this broker itself, without a channel."""

    def __init__(
        self,
        context: ControllerContext,
        broker_id: BrokerId,
        config: Callable[[], BrokerConfig],
        publish: Callable[[ControlRequest], Awaitable[ControlMessage]],
        on_response: OnResponse,
    ) -> None:
        self._context = context
        self._on_response = on_response
        self._id = broker_id
        self._config = config
        self._publish = publish
        self._channels: dict[BrokerId, BrokerChannel] = {}
        """Channels to the live brokers other than this one."""
        self.senders = RunningParts[BrokerChannel]()
        """Tasks of the channels; to be run along with the controller."""

    def new_batch(self) -> RequestBatch:
        return RequestBatch(self._context, self._id)

    async def send_topics(self, batch: RequestBatch) -> None:
        """Send the batch to every live broker, if it has any topics."""
        if batch.has_topics:
            await self.send(batch, self._context.brokers)

    async def send_full_state(self, brokers: Collection[BrokerId]) -> None:
        """Send the full state to each of these brokers."""
        batch = self.new_batch()
        for topic in self._context.topics.values():
            if topic.name in self._context.deletions:
                batch.deletes(topic, ())
            else:
                batch.leads(topic, topic.partitions)
        await self.send(batch, brokers, full=True)

    async def send(
        self, batch: RequestBatch, brokers: Collection[BrokerId], *, full: bool = False
    ) -> None:
        listener = self._config().inter_broker_listener
        for broker in brokers:
            # After losing the claim, leave the remaining brokers to the next controller.
            if broker != self._id and self._context.is_active:
                channel = self._channel(broker, listener)
                for request in batch.requests(broker, listener, full=full):
                    channel.send(request)
        if self._id in brokers:
            own = self._context.brokers[self._id]
            for request in batch.requests(self._id, listener, full=full):
                self._on_response(own, request, await self._publish(request))

    def close(self, brokers: Collection[BrokerId]) -> None:
        """Close the channels to brokers that are gone."""
        for broker in brokers & self._channels.keys():
            self.senders.stop(self._channels.pop(broker))

    def rotate(self, windows: int) -> None:
        """Start a new time window of `queue_times_ms`, and keep `windows` of them."""
        for times in self.queue_times_ms.values():
            times.rotate(windows)

    @property
    def queue_times_ms(self) -> dict[BrokerId, Histogram]:
        """Time that requests waited in the queue, in ms, by broker."""
        return {id_: channel.queue_times_ms for id_, channel in self._channels.items()}

    @property
    def unanswered(self) -> dict[BrokerId, int]:
        """Number of unanswered requests, by broker."""
        return {id_: len(channel.unanswered) for id_, channel in self._channels.items()}

    def close_all(self) -> None:
        """Close all channels, as this broker is no longer the controller."""
        self.close(set(self._channels))

    def _channel(self, broker: BrokerId, listener: str) -> BrokerChannel:
        live = self._context.brokers[broker]
        channel = self._channels.get(broker)
        if channel is None or channel.broker != live:
            if channel is not None:
                self.senders.stop(channel)
            config = self._config()
            options = PeerOptions(
                client_id=str(self._id),
                setup_timeout_ms=config.socket_connection_setup_timeout_ms,
                request_timeout_ms=config.controller_socket_timeout_ms,
            )
            before = channel
            channel = self._channels[broker] = BrokerChannel(
                live, listener, options, self._on_response
            )
            if before is not None and before.broker.epoch == live.epoch:
                # The same process at another address: resend what was not answered at the old one.
                for waiting in before.unanswered:
                    channel.send(waiting.request)
            self.senders.start(channel)
        return channel


class Waiting(NamedTuple):
    request: ControlRequest
    since_s: float


class BrokerChannel:
    """Sends requests to one registration of a broker, in order; each is retried until it is
    answered. (Kafka: RequestSendThread.)"""

    def __init__(
        self, broker: LiveBroker, listener: str, options: PeerOptions, on_response: OnResponse
    ) -> None:
        self.broker = broker
        self._on_response = on_response
        self._listener = listener
        self._options = options
        self.unanswered: deque[Waiting] = deque()
        """In order; the first of them may already have reached the broker."""
        self.queue_times_ms = Histogram()
        self._has_requests = asyncio.Event()

    def send(self, request: ControlRequest) -> None:
        self.unanswered.append(Waiting(request, asyncio.get_running_loop().time()))
        self._has_requests.set()

    async def run(self) -> None:
        """Send requests until cancelled."""
        peer: Peer | None = None
        try:
            while True:
                while not self.unanswered:
                    self._has_requests.clear()
                    await self._has_requests.wait()
                request, since_s = self.unanswered[0]
                self.queue_times_ms.add(1000 * (asyncio.get_running_loop().time() - since_s))
                is_sent = False
                while not is_sent:
                    try:
                        if peer is None or not peer.is_open:
                            peer = await self._connect()
                        version = peer.version(request.api_key)
                        body = request.encode(version)
                        frame = await peer.send(request.api_key, version, (body,))
                        response = read_control_response(request, version, frame)
                        is_sent = True
                    except (OSError, KafkaError, ProtocolError) as error:
                        log.warning(
                            "broker %d: sending %s failed, will retry: %s",
                            self.broker.info.id,
                            codec.api_name(request.api_key),
                            error,
                        )
                        await asyncio.sleep(RETRY_BACKOFF_S)
                self.unanswered.popleft()
                self._on_response(self.broker, request, response)
        finally:
            if peer is not None:
                peer.close()

    async def _connect(self) -> Peer:
        endpoint = self.broker.info.endpoints.get(self._listener)
        if endpoint is None:
            raise ProtocolError(
                f"it has no listener {self._listener}; correct inter.broker.listener.name"
            )
        return await Peer.connect(endpoint.host, endpoint.port, self._options)
