"""A Kafka client: producer, consumer and admin client on asyncio, with a blocking wrapper.

    from kcli.client import Consumer, Producer

    config, security, settings    configuration keys and Kafka's defaults
    old_config_names              keys of Kafka 0.8
    class_loader                  code that configs name: Kafka's classes, or Python's
    serialization, interceptors   values to bytes and back; hooks that see every record
    errors                        exceptions of the clients
    arguments                     checks of the callers' arguments
    cluster                       brokers, leaders, connections; retries until a deadline
    topic_metadata                metadata of topics, and which of what brokers report is used
    offsets                       offsets by time, deletion of records
    coordinators                  requests to the coordinator of a group or transactional id
    controller                    requests to the controller

    producer/, consumer/,         each with a list of its parts
      group/, admin/

    blocking                      all of it for plain threads

Of kserver it imports wire, peer, config, model and errors, and nothing of the broker. Names in
`__all__` are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kcli.client.admin.admin import Admin, NewTopic
    from kcli.client.blocking import Blocking
    from kcli.client.config import AdminConfig, ConsumerConfig, ProducerConfig
    from kcli.client.consumer.consumer import Consumer, ConsumerRecord
    from kcli.client.consumer.consumer_metadata import SubscriptionPattern
    from kcli.client.consumer.listener import RebalanceListener
    from kcli.client.errors import ClientError, TransactionFailed
    from kcli.client.group.group_descriptions import CommittedOffset
    from kcli.client.group.group_metadata import GroupMetadata
    from kcli.client.interceptors import ConsumerInterceptor, ProducerInterceptor
    from kcli.client.producer.producer import Producer, RecordMetadata
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
    "Admin": "kcli.client.admin.admin",
    "AdminConfig": "kcli.client.config",
    "Blocking": "kcli.client.blocking",
    "ClientError": "kcli.client.errors",
    "CommittedOffset": "kcli.client.group.group_descriptions",
    "Consumer": "kcli.client.consumer.consumer",
    "ConsumerConfig": "kcli.client.config",
    "ConsumerInterceptor": "kcli.client.interceptors",
    "ConsumerRecord": "kcli.client.consumer.consumer",
    "GroupMetadata": "kcli.client.group.group_metadata",
    "KafkaError": "kserver.errors",
    "NewTopic": "kcli.client.admin.admin",
    "Producer": "kcli.client.producer.producer",
    "ProducerConfig": "kcli.client.config",
    "ProducerInterceptor": "kcli.client.interceptors",
    "RebalanceListener": "kcli.client.consumer.listener",
    "RecordMetadata": "kcli.client.producer.producer",
    "SubscriptionPattern": "kcli.client.consumer.consumer_metadata",
    "TopicPartition": "kserver.model",
    "TransactionFailed": "kcli.client.errors",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
