from __future__ import annotations

from kcli.client.admin.descriptions import LogDirDescription, ReplicaInLogDirectory
from kserver.errors import ErrorCode
from kserver.model import TopicPartition
from kserver.wire.api_key import ApiKey
from kserver.wire.versions import reply_to
from tests.support.administering import run
from tests.support.scripted_broker import metadata


def test_records_are_deleted_at_the_leaders():
    def delete(request):
        reply = reply_to(request)
        return reply(
            topics=[
                reply.topics(
                    name=topic.name,
                    partitions=[
                        reply.topics.partitions(
                            partition_index=p.partition_index,
                            low_watermark=p.offset,
                            error_code=ErrorCode.none
                            if p.offset < 9
                            else ErrorCode.policy_violation,
                        )
                        for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    async def scenario(admin, *brokers):
        topics = [("t", ErrorCode.none, (0, 1), (1, 1))]
        for broker in brokers:
            broker.on(ApiKey.METADATA, metadata(*brokers, topics=topics))
            broker.on(ApiKey.DELETE_RECORDS, delete)
        first, second, missing = (TopicPartition(*of) for of in (("t", 0), ("t", 1), ("u", 0)))
        found = await admin.delete_records({first: 0, second: 9, missing: 1})
        assert found[first] == 0
        assert found[second].code is ErrorCode.policy_violation
        assert found[missing].code is ErrorCode.unknown_topic_or_partition
        for number, broker in enumerate(brokers):
            (request,) = broker.asked(ApiKey.DELETE_RECORDS)
            assert [p.partition_index for p in request.topics[0].partitions] == [number]

    run(scenario, brokers=2)


def test_each_broker_tells_of_its_log_directories():
    def describe(request):
        reply = reply_to(request)
        replica = reply.results.topics.partitions(
            partition_index=3, partition_size=7, offset_lag=2, is_future_key=True
        )
        return reply(
            error_code=ErrorCode.none,
            results=[
                reply.results(
                    error_code=ErrorCode.none,
                    log_dir="/a",
                    topics=[reply.results.topics(name="t", partitions=[replica])],
                    total_bytes=100,
                    usable_bytes=10,
                ),
                reply.results(error_code=ErrorCode.kafka_storage_error, log_dir="/b", topics=[]),
            ],
        )

    async def scenario(admin, *brokers):
        brokers[0].on(ApiKey.DESCRIBE_LOG_DIRS, describe)
        brokers[1].on(ApiKey.DESCRIBE_LOG_DIRS, describe, (1, 1))
        found = await admin.describe_log_dirs([0, 1])
        replica = ReplicaInLogDirectory(TopicPartition("t", 3), 7, 2, True)
        for of, room in ((0, (100, 10)), (1, (None, None))):
            good, failed = found[of]
            assert good == LogDirDescription("/a", None, [replica], *room)
            assert (failed.path, failed.replicas) == ("/b", [])
            assert failed.error.code is ErrorCode.kafka_storage_error

    run(scenario, brokers=2)


def test_replicas_are_sent_to_other_log_directories():
    def alter(request):
        reply = reply_to(request)
        return reply(
            results=[
                reply.results(
                    topic_name=topic.name,
                    partitions=[
                        reply.results.partitions(
                            partition_index=p,
                            error_code=ErrorCode.none
                            if of.path == "/a"
                            else ErrorCode.log_dir_not_found,
                        )
                        for p in topic.partitions
                    ],
                )
                for of in request.dirs
                for topic in of.topics
            ]
        )

    async def scenario(admin, broker):
        broker.on(ApiKey.ALTER_REPLICA_LOG_DIRS, alter)
        moves = {TopicPartition("t", n): path for n, path in enumerate(("/a", "/b", "/a"))}
        found = await admin.alter_replica_log_dirs(0, moves)
        assert [e and e.code for e in found.values()] == [None, ErrorCode.log_dir_not_found, None]
        assert await admin.alter_replica_log_dirs(0, {}) == {}
        assert len(broker.asked(ApiKey.ALTER_REPLICA_LOG_DIRS)) == 1

    run(scenario)
