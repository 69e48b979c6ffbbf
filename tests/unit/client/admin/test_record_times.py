from __future__ import annotations

from random import Random

from kcli.client.admin.record_times import record_times
from kcli.client.cluster import Cluster
from kcli.client.config import AdminConfig
from kserver.errors import ErrorCode
from kserver.model import TopicPartition
from kserver.wire.api_key import ApiKey
from kserver.wire.batch import encode_batch
from kserver.wire.versions import reply_to
from tests.support.loop import SimLoop, simulate
from tests.support.scripted_broker import ScriptedBroker, metadata

T0, T1, T2 = (TopicPartition("t", n) for n in range(3))


def times(logs, offsets, *, one_by_one: bool = False):
    """What is found of `logs`: batches, or an error; the number of fetches."""

    def fetched(request):
        reply = reply_to(request)
        partitions = []
        for asked in request.topics[0].partitions:
            log = logs[asked.partition]
            is_first = not any(p.records for p in partitions)
            shown = b"" if isinstance(log, ErrorCode) or (one_by_one and not is_first) else log
            partitions.append(
                reply.responses.partitions(
                    partition_index=asked.partition,
                    error_code=log if isinstance(log, ErrorCode) else ErrorCode.none,
                    records=shown,
                )
            )
        return reply(responses=[reply.responses(topic="t", partitions=partitions)])

    async def main(loop: SimLoop):
        broker = ScriptedBroker(loop, "broker-0", id=0)
        topics = [("t", ErrorCode.none, (0, 1), (0, 1), (0, 1))]
        broker.on(ApiKey.METADATA, metadata(broker, topics=topics))
        broker.on(ApiKey.FETCH, fetched)
        await broker.start()
        config = AdminConfig.of({"bootstrap.servers": "broker-0:9092"})
        cluster = Cluster(config, random=Random(1))
        found = await record_times(cluster, offsets, cluster.deadline(1000))
        await cluster.close()
        return found, len(broker.asked(ApiKey.FETCH))

    return simulate(main, 1)


def log(*times_ms: int) -> bytes:
    return encode_batch([(time, b"k", b"v", ()) for time in times_ms], base_offset=5)


def test_the_time_is_that_of_the_record_at_the_offset():
    logs = [log(10, 20, 30), log(40, 50, 60)]
    assert times(logs, {T0: 6, T1: 5}) == ({T0: 20, T1: 40}, 1)


def test_large_batches_come_one_by_one():
    logs = [log(1), log(2), log(3)]
    found = times(logs, {T0: 5, T1: 5, T2: 5}, one_by_one=True)
    assert found == ({T0: 1, T1: 2, T2: 3}, 3)


def test_where_there_is_no_record_there_is_no_time():
    logs = [b"", ErrorCode.offset_out_of_range, log(-1)]
    assert times(logs, {T0: 5, T1: 5, T2: 5})[0] == {T0: None, T1: None, T2: None}


def test_what_may_not_be_read_is_refused():
    found, _ = times([ErrorCode.topic_authorization_failed, log(7)], {T0: 5, T1: 5})
    assert found[T0].code is ErrorCode.topic_authorization_failed
    assert found[T1] == 7
