"""Controlled shutdown: moves leadership to other brokers before this one stops.

    response of the controller                 next
    no partitions remain                       the broker stops; it is not missed
    some remain: no other replica in sync      retry after controlled.shutdown.retry.backoff.ms, or
                                               after brokers have registered or disappeared
    none: unreachable, or controller changed   the same, or once another controller is known
    -: no other broker is live                 the broker stops: no other broker can take over
    -: ZooKeeper does not respond for LOST_S   the same: no controller can write new leaders
    -: failed controlled.shutdown.max.retries  the broker stops as if it were killed: its session
       times                                   ends, and the controller elects new leaders

(Kafka: KafkaServer.controlledShutdown.)
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence

from kserver import znodes
from kserver.config.broker import BrokerConfig
from kserver.errors import KafkaError
from kserver.metadata import ClusterMetadata, MetadataCache
from kserver.model import TopicPartition
from kserver.world.session import until_lost
from kserver.world.zookeeper import ZooKeeper

log = logging.getLogger(__name__)

LOST_S = 3.0
NAMED = 5
"""Maximum number of remaining partitions that are logged by name."""


async def while_connected(hand_over: Awaitable[bool], zookeeper: ZooKeeper) -> bool:
    """Return whether no partitions remain; False also if ZooKeeper is lost meanwhile."""
    handing = asyncio.ensure_future(hand_over)
    lost = asyncio.ensure_future(until_lost(zookeeper, znodes.CONTROLLER, LOST_S))
    try:
        await asyncio.wait((handing, lost), return_when=asyncio.FIRST_COMPLETED)
        if handing.done():
            return handing.result()
        log.warning(
            "controlled shutdown incomplete: ZooKeeper has not responded for %.0f s", LOST_S
        )
        return False
    finally:
        handing.cancel()
        lost.cancel()


async def hand_over(
    request_shutdown: Callable[[], Awaitable[Sequence[TopicPartition]]],
    metadata: MetadataCache,
    config: BrokerConfig,
) -> bool:
    """Return whether no partitions remain.  `request_shutdown` returns those that do, or
    raises KafkaError or OSError."""
    tries, backoff_s = (
        config.controlled_shutdown_max_retries,
        config.controlled_shutdown_retry_backoff_ms / 1000,
    )
    reason = f"it was not asked for: controlled.shutdown.max.retries is {tries}"
    for number in range(1, tries + 1):
        image = metadata.current
        # No other broker could take over.
        if len(image.brokers) < 2:
            return True

        def is_news(now: ClusterMetadata, before: ClusterMetadata = image) -> bool:
            return (now.controller, now.brokers.keys()) != (
                before.controller,
                before.brokers.keys(),
            )

        try:
            remaining = await request_shutdown()
        except (KafkaError, OSError) as error:
            log.info("controlled shutdown, attempt %d of %d failed: %s", number, tries, error)
            reason = f"the controller could not be asked: {error}"
        else:
            if not remaining:
                return True
            reason = "no other replica can lead the remaining partitions"
            first_remaining = ", ".join(map(str, remaining[:NAMED]))
            more = f" and {len(remaining) - NAMED} more" if len(remaining) > NAMED else ""
            log.info(
                "controlled shutdown, attempt %d of %d: still leading %s%s",
                number,
                tries,
                first_remaining,
                more,
            )
        # Retry early if a change may allow another broker to take over.
        if number < tries:
            with contextlib.suppress(TimeoutError):
                await metadata.wait_for(is_news, backoff_s)
    log.warning("controlled shutdown incomplete: %s", reason)
    return False
