"""Requests the producer id and epoch that identify an idempotent producer's batches (KIP-98)."""

from __future__ import annotations

import datetime
import logging

from kcli.client.cluster import Cluster
from kserver.errors import ErrorCode, KafkaError, ProtocolError
from kserver.model import NO_PRODUCER_ID, ProducerId
from kserver.wire import versions
from kserver.wire.api_key import ApiKey

# Without transactions there is no timeout; Java's clients send this value.
_NO_TIMEOUT = datetime.timedelta(milliseconds=2**31 - 1)

_logger = logging.getLogger(__name__)


async def fetch_producer_id(cluster: Cluster) -> tuple[ProducerId, int]:
    """Return a new producer id and its first epoch from any broker, with retries until it succeeds.

    Raises KafkaError if the broker refuses with an error that is not retriable.
    """
    tries = 0
    while True:
        try:
            peer = await cluster.peer()
            new = versions.request(ApiKey.INIT_PRODUCER_ID, peer.version(ApiKey.INIT_PRODUCER_ID))
            response = await peer.call(
                new(
                    transactional_id=None,
                    transaction_timeout=_NO_TIMEOUT,
                    producer_id=NO_PRODUCER_ID,
                    producer_epoch=-1,
                )
            )
            if response.error_code == ErrorCode.none:
                return response.producer_id, response.producer_epoch
            if not response.error_code.retriable:
                raise KafkaError(response.error_code, "no producer id")
            _logger.debug("no producer id: %s", response.error_code.name)
        except (OSError, ProtocolError) as error:
            _logger.debug("no producer id: %s", error)
        tries += 1
        await cluster.pause(tries)
