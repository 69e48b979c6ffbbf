"""A Kafka client: producer, consumer and admin client on asyncio, with a blocking wrapper.

    from kcli.client import Consumer, Producer

    config, security, settings    configuration keys and Kafka's defaults
    old_config_names              keys of Kafka 0.8
    class_loader                  code that configs name: Kafka's classes, or Python's
    serialization, interceptors   values to bytes and back; hooks that see every record
    errors                        exceptions of the clients
    arguments                     checks of the callers' arguments
    cluster                       brokers, leaders, connections; retries until a deadline
    admin, offsets, quotas,       topics, configurations, offsets, quotas, brokers, log directories
      configs, topics, log_dirs,
      scram, record_times,
      reassignments, elections
    replica_fetches               records of one replica, leader or follower
    groups, group_descriptions    admin.groups: groups and their committed offsets
    transaction_admin, features   admin.transactions, admin.features
    coordinators                  requests to the coordinator of a group or transactional id
    controller                    requests to the controller
    descriptions                  types of the admin client's arguments and results

    producer                      send, try_send, flush
    record_appender               a record's way through interceptors, serializers, partitioner
    accumulator, partitioner      records into batches, within buffer.memory
    partition_queue               one partition's batches: order, sequences, idempotence
    sender, broker_sender         batches to their leaders; timers, metadata, responses
    produce, produce_decision,    Produce's bytes, what an error means, the producer id
      producer_id
    transactions,                 states of a transaction and errors; its requests
      transaction_manager
    transaction_successor         ends transactions that producers elsewhere left open for it

    consumer                      subscribe, assign, poll, seek, commit
    subscription                  assigned partitions and their positions
    fetcher, fetch_session        fetches ahead from every leader; resets and checks positions
    completed_fetch               a response's bytes into records, without aborted ones
    group                         a consumer's group: a membership, and commits
    consumer_metadata             the topics that a consumer subscribes to
    membership, member            member of a classic group: requests; states and errors
    consumer_group,               member of a group by KIP-848: requests; states and errors
      consumer_member
    assignors, sticky             client-side assignment of partitions to members
    group_protocol                subscriptions and assignments as bytes
    commits                       OffsetCommit and OffsetFetch
    group_coordinator             the broker that coordinates the group
    group_metadata                a consumer's identity in its group
    listener                      callbacks for assigned and revoked partitions

    blocking                      all of it for plain threads

Of kserver it imports wire, peer, config, model and errors, and nothing of the broker. Names in
`__all__` are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kcli.client.admin import Admin, NewTopic
    from kcli.client.blocking import Blocking
    from kcli.client.config import AdminConfig, ConsumerConfig, ProducerConfig
    from kcli.client.consumer import Consumer, ConsumerRecord
    from kcli.client.consumer_metadata import SubscriptionPattern
    from kcli.client.errors import ClientError, TransactionFailed
    from kcli.client.group_descriptions import CommittedOffset
    from kcli.client.group_metadata import GroupMetadata
    from kcli.client.interceptors import ConsumerInterceptor, ProducerInterceptor
    from kcli.client.listener import RebalanceListener
    from kcli.client.producer import Producer, RecordMetadata
    from kserver.errors import KafkaError
    from kserver.model import TopicPartition

__all__ = [
    "Admin",
    "AdminConfig",
    "Blocking",
    "ClientError",
    "CommittedOffset",
    "Consumer",
    "ConsumerConfig",
    "ConsumerInterceptor",
    "ConsumerRecord",
    "GroupMetadata",
    "KafkaError",
    "NewTopic",
    "Producer",
    "ProducerConfig",
    "ProducerInterceptor",
    "RebalanceListener",
    "RecordMetadata",
    "SubscriptionPattern",
    "TopicPartition",
    "TransactionFailed",
]

_HOMES = {
    "Admin": "kcli.client.admin",
    "AdminConfig": "kcli.client.config",
    "Blocking": "kcli.client.blocking",
    "ClientError": "kcli.client.errors",
    "CommittedOffset": "kcli.client.group_descriptions",
    "Consumer": "kcli.client.consumer",
    "ConsumerConfig": "kcli.client.config",
    "ConsumerInterceptor": "kcli.client.interceptors",
    "ConsumerRecord": "kcli.client.consumer",
    "GroupMetadata": "kcli.client.group_metadata",
    "KafkaError": "kserver.errors",
    "NewTopic": "kcli.client.admin",
    "Producer": "kcli.client.producer",
    "ProducerConfig": "kcli.client.config",
    "ProducerInterceptor": "kcli.client.interceptors",
    "RebalanceListener": "kcli.client.listener",
    "RecordMetadata": "kcli.client.producer",
    "SubscriptionPattern": "kcli.client.consumer_metadata",
    "TopicPartition": "kserver.model",
    "TransactionFailed": "kcli.client.errors",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
