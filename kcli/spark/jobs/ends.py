"""Both ends of a job are told of the cluster by one file of properties: each is handed what is its.

What a consumer alone knows is not for a producer, and the other way round; what neither knows goes
to both, which warn of it.

Pure: settings in, settings out.
"""

from __future__ import annotations

from collections.abc import Mapping

from kcli.client.config import ConsumerConfig, ProducerConfig
from kserver.config.setting import settings_of

PREFIX = "kafka."


def for_reading(options: Mapping[str, str]) -> dict[str, str]:
    """Settings for reading, from options of the data source, which name them kafka.*."""
    return _without(options, PREFIX, ProducerConfig, ConsumerConfig)


def for_writing(options: Mapping[str, str]) -> dict[str, str]:
    return _without(options, PREFIX, ConsumerConfig, ProducerConfig)


def of_producer(properties: Mapping[str, str]) -> dict[str, str]:
    """Options from settings by their own names."""
    return _without(properties, "", ConsumerConfig, ProducerConfig)


def of_client(options: Mapping[str, str]) -> dict[str, str]:
    """The client's settings by their own names, from options of the data source."""
    return {
        name.removeprefix(PREFIX): text for name, text in options.items() if name.startswith(PREFIX)
    }


def _without(given: Mapping[str, str], prefix: str, other: type, own: type) -> dict[str, str]:
    not_ours = {prefix + key for key in settings_of(other).keys() - settings_of(own).keys()}
    return {name: text for name, text in given.items() if name not in not_ours}
