"""Transactions by hand: one from begin to end, and one that hangs."""

from __future__ import annotations

import datetime

from kserver.errors import ErrorCode
from kserver.peer import Peer
from kserver.wire.api_key import ApiKey
from kserver.wire.batch import encode_batch
from kserver.wire.versions import request

TIMEOUT = datetime.timedelta(seconds=60)


async def _initialized(peer: Peer, name: str) -> dict[str, int]:
    new = request(ApiKey.INIT_PRODUCER_ID, 2)
    while True:
        answer = await peer.call(new(transactional_id=name, transaction_timeout=TIMEOUT))
        if answer.error_code is ErrorCode.none:
            return {
                "producer_id": answer.producer_id,
                "producer_epoch": answer.producer_epoch,
            }
        assert answer.error_code.retriable or answer.error_code is ErrorCode.not_coordinator
        find = request(ApiKey.FIND_COORDINATOR, 2)
        await peer.call(find(key=name, key_type=1))


async def _produced(
    peer: Peer, name: str, topic: str, values: list[bytes], who: dict[str, int]
) -> None:
    batch = encode_batch(
        [(1000, None, value, ()) for value in values],
        base_sequence=0,
        transactional=True,
        **who,
    )
    new = request(ApiKey.PRODUCE, 9)
    data = new.topic_data.partition_data(index=0, records=batch)
    produced = await peer.call(
        new(
            transactional_id=name,
            acks=-1,
            timeout=TIMEOUT,
            topic_data=[new.topic_data(name=topic, partition_data=[data])],
        )
    )
    assert produced.responses[0].partition_responses[0].error_code is ErrorCode.none


async def hanging(address: str, name: str, topic: str, values: list[bytes]) -> None:
    """Write one transactional batch to partition 0 without notifying the coordinator.

    The broker accepts it with transaction.partition.verification.enable=false, as all did before
    Kafka 3.6.
    """
    host, _, port = address.rpartition(":")
    peer = await Peer.connect(host, int(port))
    await _produced(peer, name, topic, values, await _initialized(peer, name))
    peer.close()


async def transaction(peer: Peer, name: str, topic: str, values: list[bytes], commit: bool) -> None:
    """Begin, write one batch to partition 0, and end: by hand."""
    who = await _initialized(peer, name)
    new = request(ApiKey.ADD_PARTITIONS_TO_TXN, 3)
    topics = [new.v3_and_below_topics(name=topic, partitions=(0,))]
    named = {f"v3_and_below_{key}": value for key, value in who.items()} | {
        "v3_and_below_transactional_id": name,
        "v3_and_below_topics": topics,
    }
    while True:
        added = await peer.call(new(**named))
        code = added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        if code is ErrorCode.none:
            break
        assert code.retriable
    await _produced(peer, name, topic, values, who)
    new = request(ApiKey.END_TXN, 3)
    while True:
        ended = await peer.call(new(transactional_id=name, committed=commit, **who))
        if ended.error_code is ErrorCode.none:
            break
        assert ended.error_code.retriable
