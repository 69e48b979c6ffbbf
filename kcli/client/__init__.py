"""A Kafka client: producer, consumer, admin; asyncio inside, a blocking face over it.

    from kcli.client import Consumer, Producer

    config, security, settings    what each can be told, and Kafka's defaults
    old_names                     what Kafka 0.8 called it
    named                         code that settings name: Kafka's classes, or Python's
    serialization, interceptors   values to bytes and back; what sees every record
    errors                        what a client raises of its own
    arguments                     what callers hand in, checked
    cluster                       brokers, leaders, connections; trying again until a deadline
    admin, offsets, quotas,       topics, configurations, offsets, quotas, brokers, their disks
      configs, topics, log_dirs,
      scram, record_times,
      reassignments, elections
    replica_fetches               what one replica holds, whether it leads or not
    groups, group_descriptions    admin.groups: groups and what they committed
    transaction_admin, features   admin.transactions, admin.features
    coordinators                  who leads a group or a transactional id, asked and asked again
    controller                    the controller, likewise
    descriptions                  what is told and asked there

    producer                      send, try_send, flush
    record_appender               a record's way through interceptors, serializers, partitioner
    accumulator, partitioner      records into batches, within a limit of memory
    partition_queue               one partition's batches: order, sequences, idempotence
    sender, broker_sender         batches to their leaders; timers, metadata, answers
    produce, verdict, identity    the request's bytes, what an error means, the producer id
    transactions,                 what may follow what, and what refusals mean; who asks for it
      transaction_manager
    handover                      ends transactions that producers elsewhere left open for it

    consumer                      subscribe, assign, poll, seek, commit
    subscription                  what is read and how far
    fetcher, fetch_session        fetches ahead from every leader; resets and checks positions
    completed_fetch               an answer's bytes into records, aborted ones left out
    group                         what a consumer with a group has: a membership, and commits
    consumer_metadata             the topics that it has subscribed to
    membership, member            its part in a classic group; states, and what answers mean
    consumer_group,               its part in a group by KIP-848; likewise
      consumer_member
    assignors, sticky             who of a group reads what
    group_protocol                what its members tell each other
    commits                       how far the group has come
    group_coordinator             the broker that leads the group
    group_metadata                who a consumer is in its group
    listener                      what is told of partitions that come and go

    blocking                      all of it for plain threads

Within Kafka's protocol it knows of kserver's wire, peer, config, model and errors, and nothing of
its broker.  What is named in `__all__` is imported when it is first used.
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
