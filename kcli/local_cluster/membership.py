"""Whether the brokers of a cluster know each other and a controller."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable

from kserver.errors import KafkaError, ProtocolError
from kserver.peer import Peer, PeerOptions
from kserver.wire import versions
from kserver.wire.api_key import ApiKey

ANSWER_MS = 1000


async def is_complete(addresses: Iterable[str], ids: Collection[int]) -> bool:
    """Whether each broker at `addresses` knows exactly these brokers, and one of them as the
    controller.
    """
    views = await asyncio.gather(*map(_view_of, addresses))
    return all(brokers == set(ids) and controller in ids for brokers, controller in views)


async def _view_of(address: str) -> tuple[set[int], int]:
    """Return the brokers that the one at HOST:PORT knows, and the controller; none if it does not
    respond.
    """
    host, _, port = address.rpartition(":")
    try:
        options = PeerOptions(setup_timeout_ms=ANSWER_MS, request_timeout_ms=ANSWER_MS)
        peer = await Peer.connect(host, int(port), options)
    except (OSError, ProtocolError):
        return set(), -1
    try:
        new = versions.request(ApiKey.METADATA, peer.version(ApiKey.METADATA))
        response = await peer.call(new(topics=()))
    except (OSError, ProtocolError, KafkaError):
        return set(), -1
    finally:
        peer.close()
    return {broker.node_id for broker in response.brokers}, response.controller_id
