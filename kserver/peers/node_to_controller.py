"""Requests of this broker to the controller, whichever broker that is.

    the controller              the request
    is known and responds       gets its response
    has changed since           fails, and so do those in flight to the previous controller
    is unknown or unreachable   fails

Callers retry.  (Kafka: NodeToControllerChannelManager, AutoTopicCreationManager.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from kserver.config.broker import BrokerConfig
from kserver.errors import ErrorCode, KafkaError, ProtocolError
from kserver.metadata import ClusterMetadata, MetadataCache, TopicInfo
from kserver.model import NO_BROKER, BrokerId, TopicPartition
from kserver.peers.peers import Peers
from kserver.wire import versions
from kserver.wire.api_key import ApiKey
from kserver.wire.control import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    read_control_response,
)
from kserver.znodes import ProducerIdBlock

CREATED_WITHIN_S = 5.0
"""Time in which this broker must receive the metadata of a topic that the controller created."""


class NodeToControllerChannel:
    """One connection for one purpose: opened on demand, and again after the controller has
    changed."""

    def __init__(
        self,
        broker_id: BrokerId,
        use: str,
        config: Callable[[], BrokerConfig],
        metadata: MetadataCache,
    ) -> None:
        self._id = broker_id
        self._config = config
        self._metadata = metadata
        self._peers = Peers(f"broker-{broker_id}-{use}", config, metadata)
        self._controller: BrokerId = NO_BROKER

    async def call(self, api_key: int, build: Callable[[versions.MessageShape], Any]) -> Any:
        """Send the request that `build` makes of the newest version that both support; return the
        response.  Raises KafkaError, or OSError if the controller is unreachable."""
        controller = self._metadata.current.controller
        if controller == NO_BROKER:
            raise KafkaError(ErrorCode.not_controller, "the controller is not known yet")
        try:
            peer = await self._peers.to(controller)
            return await peer.call(build(versions.request(api_key, peer.version(api_key))))
        except ProtocolError as error:
            raise KafkaError(ErrorCode.not_controller, str(error)) from error

    async def create_topic(
        self, name: str, partitions: int, replication_factor: int, config: Mapping[str, str]
    ) -> TopicInfo:
        """Create a topic, or find it if it exists; return it once this broker has its metadata.
        Raises KafkaError, OSError."""
        timeout_ms = self._config().request_timeout_ms

        def build(new: versions.MessageShape) -> Any:
            topic = new.topics(
                name=name,
                num_partitions=partitions,
                replication_factor=replication_factor,
                configs=[new.topics.configs(name=k, value=v) for k, v in config.items()],
            )
            return new(topics=[topic], timeout=timedelta(milliseconds=timeout_ms))

        (response,) = (await self.call(ApiKey.CREATE_TOPICS, build)).topics
        if response.error_code not in (ErrorCode.none, ErrorCode.topic_already_exists):
            raise KafkaError(response.error_code, response.error_message or "")
        image = await self._metadata.wait_for(lambda image: name in image.topics, CREATED_WITHIN_S)
        return image.topics[name]

    async def allocate_producer_ids(self, broker_epoch: int) -> ProducerIdBlock:
        """Allocate the next block for this registration of the broker.  Raises KafkaError,
        OSError."""
        response = await self.call(
            ApiKey.ALLOCATE_PRODUCER_IDS,
            lambda new: new(broker_id=self._id, broker_epoch=broker_epoch),
        )
        if response.error_code is not ErrorCode.none:
            raise KafkaError(response.error_code)
        first = response.producer_id_start
        return ProducerIdBlock(self._id, first, first + response.producer_id_len - 1)

    async def shut_down(self, broker_epoch: int) -> list[TopicPartition]:
        """Announce that this broker stops; return the partitions that it still leads.  Raises
        KafkaError, OSError."""
        request = ControlledShutdownRequest(self._id, broker_epoch)
        try:
            peer = await self._peers.to(self._metadata.current.controller)
            version = peer.version(request.api_key)
            frame = await peer.send(request.api_key, version, (request.encode(version),))
            response = read_control_response(request, version, frame)
        except ProtocolError as error:
            raise KafkaError(ErrorCode.not_controller, str(error)) from error
        assert isinstance(response, ControlledShutdownResponse)
        if response.error_code is not ErrorCode.none:
            raise KafkaError(response.error_code)
        return [
            TopicPartition(partition.topic_name, partition.partition_index)
            for partition in response.remaining_partitions
        ]

    def apply(self, image: ClusterMetadata) -> None:
        """Fail the requests in flight to a broker that is no longer the controller."""
        if image.controller != self._controller:
            self._peers.leave(self._controller)
            self._controller = image.controller
        self._peers.apply(image)

    def close(self) -> None:
        self._peers.close()
