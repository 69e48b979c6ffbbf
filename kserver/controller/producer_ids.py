"""Blocks of producer ids: each broker gets the next thousand, and no block is assigned twice.

/latest_producer_id_block holds the last block and its broker.  The controller writes it
conditional on the version that it read.  The rest of a block is lost when its broker stops.
(Kafka: KafkaController.allocateProducerIds, ZkProducerIdManager.)
"""

from __future__ import annotations

import logging
from functools import partial

from kserver import znodes
from kserver.controller.claimed_store import ClaimedStore
from kserver.errors import ErrorCode, KafkaError, UnreadableZnode
from kserver.model import BrokerId, ProducerId
from kserver.world.session import until_connected
from kserver.world.zookeeper import Create, Op, SetData
from kserver.znodes import ProducerIdBlock

log = logging.getLogger(__name__)

BLOCK_SIZE = 1000
LAST_PRODUCER_ID: ProducerId = (1 << 63) - 1


async def allocate(store: ClaimedStore, broker: BrokerId) -> ProducerIdBlock:
    """Allocate the next block.  Raises KafkaError if no ids are left or the last block is
    unreadable, BadVersion if the znode was changed concurrently, and SessionExpired."""
    path = znodes.PRODUCER_ID_BLOCK
    znode = await until_connected(partial(store.find, path))
    block = block_after(znode[0] if znode is not None else b"", broker)
    data = znodes.encode_producer_id_block(block)
    write: Op = Create(path, data) if znode is None else SetData(path, data, znode[1].version)
    await store.write([write])
    log.info("broker %d: allocated producer ids %d to %d", broker, block.first, block.last)
    return block


def block_after(last: bytes, broker: BrokerId) -> ProducerIdBlock:
    """Return the next block; `last` is empty if Kafka created the znode and no block was allocated
    yet."""
    try:
        first = znodes.decode_producer_id_block(last).last + 1 if last else 0
    except UnreadableZnode as error:
        text = f"{error}: set its block_end above every producer id in use"
        raise KafkaError(ErrorCode.kafka_storage_error, text) from error
    if first > LAST_PRODUCER_ID - BLOCK_SIZE:
        raise KafkaError(ErrorCode.unknown_server_error, "Have exhausted all producerIds.")
    return ProducerIdBlock(broker, first, first + BLOCK_SIZE - 1)
