"""A live broker whose disk failed: the others lead without it, and all are told."""

import asyncio

from kserver import znodes
from kserver.controller.topics import CreatableTopic
from kserver.errors import ErrorCode
from kserver.wire.control import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from tests.unit.controller.test_controller import Broker, scenario


class BrokerOfFailingDisks(Broker):
    """Partitions in `failed` it cannot serve, and says so."""

    def __init__(self, ensemble, **config):
        super().__init__(ensemble, **config)
        self.failed = set()

    async def _publish(self, request):
        answer = await super()._publish(request)
        if not isinstance(request, LeaderAndIsrRequest):
            return answer
        topics = [
            LeaderAndIsrTopicError(
                tuple(
                    LeaderAndIsrPartitionError(
                        p.partition_index,
                        ErrorCode.kafka_storage_error
                        if (t.topic_name, p.partition_index) in self.failed
                        else ErrorCode.none,
                    )
                    for p in t.partition_states
                ),
                topic_id=t.topic_id,
            )
            for t in request.topic_states
        ]
        return LeaderAndIsrResponse(ErrorCode.none, tuple(topics))


def leaders(broker, topic):
    return [p.leader for p in broker.topics[topic].partitions]


def isrs(broker, topic):
    return [p.isr for p in broker.topics[topic].partitions]


async def until(holds):
    for _ in range(1000):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it has never come true")


@scenario
async def test_what_a_disk_cannot_serve_others_lead_until_it_can(ensemble):
    async with BrokerOfFailingDisks(ensemble) as first, Broker(ensemble, broker_id=2):
        await until(lambda: 2 in first.metadata.current.brokers)
        await until(lambda: first.controller.is_active)
        first.failed = {("a", 0)}
        await first.create(CreatableTopic("a", assignments={0: [1, 2], 1: [1, 2]}))
        await until(lambda: leaders(first, "a") == [2, 1])
        assert isrs(first, "a") == [(2,), (1, 2)]
        assert [p.offline for p in first.topics["a"].partitions] == [(1,), ()]
        # There is room again, say: the broker tells so, and is asked.
        first.failed = set()
        event = znodes.encode_log_dir_event(1)
        await first.zookeeper.create(znodes.LOG_DIR_EVENT_PREFIX, event, sequence=True)
        await until(lambda: [p.offline for p in first.topics["a"].partitions] == [(), ()])
        assert leaders(first, "a") == [2, 1]
        assert isrs(first, "a") == [(2,), (1, 2)]


@scenario
async def test_a_replica_that_is_the_only_one_keeps_leading_for_its_disk_may_work_again(ensemble):
    async with BrokerOfFailingDisks(ensemble) as broker:
        broker.failed = {("a", 0)}
        await broker.create(CreatableTopic("a"))
        await until(lambda: broker.topics["a"].partitions[0].offline == (1,))
        assert leaders(broker, "a") == [1]
