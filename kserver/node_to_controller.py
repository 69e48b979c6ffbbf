"""What this broker asks of the controller, wherever that is.

(Kafka: NodeToControllerChannelManager, AutoTopicCreationManager.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from kserver.config.broker import BrokerConfig
from kserver.errors import ErrorCode, KafkaError, ProtocolError
from kserver.metadata import MetadataCache, TopicInfo
from kserver.model import NO_BROKER, BrokerId
from kserver.peer import Peer, PeerOptions
from kserver.wire import versions

CREATE_TOPICS = 19


class NodeToControllerChannel:
    """One connection, made when it is needed, and anew when another broker is the controller."""

    def __init__(
        self, broker_id: BrokerId, config: Callable[[], BrokerConfig], metadata: MetadataCache
    ) -> None:
        self._id = broker_id
        self._config = config
        self._metadata = metadata
        self._turn = asyncio.Lock()
        self._peer: Peer | None = None
        self._controller: BrokerId = NO_BROKER

    async def call(self, api_key: int, build: Callable[[versions.MessageShape], Any]) -> Any:
        """The answer to what `build` makes of the newest shape that both know.  KafkaError, OSError
        where the controller cannot be reached."""
        peer = await self._connected()
        try:
            return await peer.call(build(versions.request(api_key, peer.version(api_key))))
        except ProtocolError as error:
            raise KafkaError(ErrorCode.not_controller, str(error)) from error

    async def create_topic(
        self, name: str, partitions: int, replication_factor: int, config: dict[str, str]
    ) -> TopicInfo:
        """The topic, once this broker was told of it.  KafkaError."""
        timeout_ms = self._config().request_timeout_ms

        def build(new: versions.MessageShape) -> Any:
            topic = new.topics(
                name=name,
                num_partitions=partitions,
                replication_factor=replication_factor,
                configs=[new.topics.configs(name=k, value=v) for k, v in config.items()],
            )
            return new(topics=[topic], timeout=timedelta(milliseconds=timeout_ms))

        try:
            (answer,) = (await self.call(CREATE_TOPICS, build)).topics
            if answer.error_code not in (ErrorCode.none, ErrorCode.topic_already_exists):
                raise KafkaError(answer.error_code, answer.error_message or "")
            image = await self._metadata.wait_for(
                lambda image: name in image.topics, timeout_ms / 1000
            )
        except OSError as error:
            text = f"the controller cannot be asked: {error}"
            raise KafkaError(ErrorCode.not_controller, text) from error
        return image.topics[name]

    async def _connected(self) -> Peer:
        async with self._turn:
            image = self._metadata.current
            if self._peer is None or not self._peer.is_open or self._controller != image.controller:
                self.close()
                broker = image.brokers.get(image.controller)
                endpoint = broker and broker.endpoints.get(self._config().inter_broker_listener)
                if not endpoint:
                    text = "nobody has told where the controller is"
                    raise KafkaError(ErrorCode.not_controller, text)
                options = PeerOptions(client_id=f"broker-{self._id}-to-controller")
                self._peer = await Peer.connect(endpoint.host, endpoint.port, options)
                self._controller = image.controller
            return self._peer

    def close(self) -> None:
        if self._peer is not None:
            self._peer.close()
