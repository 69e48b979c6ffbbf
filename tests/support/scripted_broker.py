"""A broker for a client's connection, under a test's control: a function answers each API.

    broker = ScriptedBroker(loop)
    broker.on(ApiKey.METADATA, lambda request: reply_to(request)(brokers=[...], topics=[...]))
    await broker.start()

A handler returns kio's entity, or bytes that are sent as they are (a whole frame, valid or not), or
None for no response; it may be a coroutine function. ApiVersions is answered from `versions`, as
Kafka does: an unsupported version gets UNSUPPORTED_VERSION in a v0 body (KIP-511).
"""

from __future__ import annotations

import asyncio
import inspect
import struct
from collections.abc import Callable
from typing import Any
from uuid import UUID

from kserver.errors import ErrorCode
from kserver.wire import codec
from kserver.wire.api_key import ApiKey
from kserver.wire.codec import versions_of
from kserver.wire.versions import reply_to
from tests.support.frame_reader import FrameReader
from tests.support.loop import SimLoop, host

FRAME_LIMIT = 1 << 24

Handler = Callable[[Any], Any]


class ScriptedBroker:
    def __init__(self, loop: SimLoop, name: str = "broker", port: int = 9092, id: int = 0) -> None:
        self.loop = loop
        self.name = name
        self.port = port
        self.id = id
        self.versions: dict[int, tuple[int, int]] = {
            ApiKey.API_VERSIONS: versions_of(ApiKey.API_VERSIONS),
            ApiKey.METADATA: versions_of(ApiKey.METADATA),
        }
        self.features: dict[str, int] = {}
        """Finalized features and their levels."""
        self.requests: list[Any] = []
        self.client_ids: list[str | None] = []
        self.connections: list[_Connection] = []
        self._handlers: dict[int, Handler] = {ApiKey.API_VERSIONS: self._api_versions}
        self._server: Any = None

    @property
    def address(self) -> str:
        return f"{self.name}:{self.port}"

    def on(self, api_key: int, handler: Handler, versions: tuple[int, int] | None = None) -> None:
        self._handlers[api_key] = handler
        self.versions[api_key] = versions or self.versions.get(api_key) or versions_of(api_key)

    def hold(self, api_key: int) -> asyncio.Event:
        """Respond to requests of this API only once the event that is returned is set."""
        handler, released = self._handlers[api_key], asyncio.Event()

        async def held(request: Any) -> Any:
            await released.wait()
            return handler(request)

        self._handlers[api_key] = held
        return released

    def asked(self, api_key: int) -> list[Any]:
        """Return the requests of one API so far."""
        return [request for request in self.requests if request.__api_key__ == api_key]

    async def start(self) -> None:
        with host(self.name):
            self._server = await self.loop.create_server(
                lambda: _Connection(self), self.name, self.port
            )

    def stop(self) -> None:
        """Refuse connections and break those that are open."""
        self._server.close()
        self.drop()

    def drop(self) -> None:
        connections, self.connections = self.connections, []
        for connection in connections:
            connection.transport.abort()

    def _api_versions(self, request: Any) -> Any:
        offered = self.versions[ApiKey.API_VERSIONS]
        known = offered[0] <= request.__version__ <= offered[1]
        reply = reply_to(request if known else codec.request_type(ApiKey.API_VERSIONS, 0)())
        return reply(
            error_code=ErrorCode.none if known else ErrorCode.unsupported_version,
            api_keys=[
                reply.api_keys(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in sorted(self.versions.items())
            ],
            finalized_features=[
                reply.finalized_features(
                    name=name, max_version_level=level, min_version_level=level
                )
                for name, level in self.features.items()
            ],
            finalized_features_epoch=1 if self.features else -1,
        )

    def read_request(self, header: codec.RequestHeader, frame: memoryview, at: int) -> Any:
        return codec.read_request(header, frame, at)

    async def answer(self, header: codec.RequestHeader, request: Any) -> bytes | None:
        self.requests.append(request)
        self.client_ids.append(header.client_id)
        answer = self._handlers[header.api_key](request)
        if inspect.isawaitable(answer):
            answer = await answer
        if answer is None or isinstance(answer, bytes):
            return answer
        version = answer.__version__
        return codec.write_response(header.api_key, version, header.correlation_id, answer)


class _Connection(asyncio.Protocol):
    """Answers one request after the other, in order."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.broker = broker
        self.frames = FrameReader(FRAME_LIMIT)
        self.queue: asyncio.Queue[bytes] = asyncio.Queue()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.broker.connections.append(self)
        self.task = self.broker.loop.create_task(self._serve())

    def connection_lost(self, error: Exception | None) -> None:
        self.task.cancel()

    def data_received(self, data: bytes) -> None:
        for frame in self.frames.feed(data):
            self.queue.put_nowait(frame)

    async def _serve(self) -> None:
        while True:
            frame = memoryview(await self.queue.get())
            header, at = codec.read_request_header(frame)
            request = self.broker.read_request(header, frame, at)
            answer = await self.broker.answer(header, request)
            if answer is not None:
                self.transport.write(answer)


def frame(correlation_id: int, body: bytes) -> bytes:
    """Return a response by hand: length, correlation id, body."""
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


def metadata(*brokers: ScriptedBroker, controller: int = 0, topics=()):
    """Return a handler with the metadata of these brokers and topics: (name, error, (leader,
    epoch)...).
    """

    def handler(request):
        reply = reply_to(request)
        return reply(
            cluster_id="c",
            controller_id=controller,
            brokers=[reply.brokers(node_id=b.id, host=b.name, port=b.port) for b in brokers],
            topics=[
                reply.topics(
                    name=name,
                    topic_id=UUID(int=1),
                    error_code=error,
                    partitions=[
                        reply.topics.partitions(
                            partition_index=n,
                            error_code=ErrorCode.none,
                            leader_id=leader,
                            leader_epoch=epoch,
                            replica_nodes=(0,),
                            isr_nodes=(0,),
                        )
                        for n, (leader, epoch) in enumerate(partitions)
                    ],
                )
                for name, error, *partitions in topics
            ],
        )

    return handler


def ends(offset_of):
    """Return a handler with the end offsets of partitions, by topic and partition."""

    def handler(request):
        reply = reply_to(request)
        return reply(
            topics=[
                reply.topics(
                    name=topic.name,
                    partitions=[
                        reply.topics.partitions(
                            partition_index=p.partition_index,
                            error_code=ErrorCode.none,
                            offset=offset_of(topic.name, p.partition_index),
                        )
                        for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    return handler
