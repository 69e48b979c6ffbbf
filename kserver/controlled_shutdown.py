"""What a broker leads is handed over before it stops.

    the controller answers                     next
    nothing remains                            the broker stops: nobody misses it
    something remains: nobody else is in sync  asked again, controlled.shutdown.retry.backoff.ms
                                               later, or once brokers have come or gone
    it cannot be reached, or is another now    the same, or once another is known
    no other broker lives                      the broker stops: there is nobody to take over
    ZooKeeper answers nothing for LOST_S       the same: no controller can write who leads
    asked controlled.shutdown.max.retries      the broker stops as if it were killed: its session
    times                                      ends, and the controller elects

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
"""So many of the partitions that remain are told in the log."""


async def while_connected(hand_over: Awaitable[bool], zookeeper: ZooKeeper) -> bool:
    """Whether nothing remains; False as well where ZooKeeper is lost meanwhile."""
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
    ask: Callable[[], Awaitable[Sequence[TopicPartition]]],
    metadata: MetadataCache,
    config: BrokerConfig,
) -> bool:
    """Whether nothing remains; `ask` gives what does, or raises KafkaError or OSError."""
    tries, backoff_s = (
        config.controlled_shutdown_max_retries,
        config.controlled_shutdown_retry_backoff_ms / 1000,
    )
    for number in range(1, tries + 1):
        image = metadata.current
        if len(image.brokers) < 2:
            return True

        def is_news(now: ClusterMetadata, before: ClusterMetadata = image) -> bool:
            return (now.controller, now.brokers.keys()) != (
                before.controller,
                before.brokers.keys(),
            )

        try:
            remaining = await ask()
        except (KafkaError, OSError) as error:
            log.info("controlled shutdown, attempt %d of %d failed: %s", number, tries, error)
        else:
            if not remaining:
                return True
            named = ", ".join(map(str, remaining[:NAMED]))
            more = f" and {len(remaining) - NAMED} more" if len(remaining) > NAMED else ""
            log.info(
                "controlled shutdown, attempt %d of %d: still leading %s%s",
                number,
                tries,
                named,
                more,
            )
        if number < tries:
            with contextlib.suppress(TimeoutError):
                await metadata.wait_for(is_news, backoff_s)
    log.warning(
        "controlled shutdown incomplete: no other replica can lead the remaining partitions"
    )
    return False
