"""Client configs of both ends of a job, from one file of properties.

Keys that only a consumer has are not for a producer, and the other way round; keys that neither has
go to both, which warn of them.

Pure: configs in, configs out.
"""

from __future__ import annotations

from collections.abc import Mapping

from kcli.client.config import ConsumerConfig, ProducerConfig
from kserver.config.setting import settings_of

PREFIX = "kafka."


def for_reading(options: Mapping[str, str]) -> dict[str, str]:
    """Return configs for reading, from options of the data source, named kafka.*."""
    return _without(options, PREFIX, ProducerConfig, ConsumerConfig)


def for_writing(options: Mapping[str, str]) -> dict[str, str]:
    return _without(options, PREFIX, ConsumerConfig, ProducerConfig)


def of_producer(properties: Mapping[str, str]) -> dict[str, str]:
    """Return a producer's configs from configs by their own names."""
    return _without(properties, "", ConsumerConfig, ProducerConfig)


def of_client(options: Mapping[str, str]) -> dict[str, str]:
    """Return the client's configs by their own names, from options of the data source."""
    return {
        name.removeprefix(PREFIX): text for name, text in options.items() if name.startswith(PREFIX)
    }


def _without(options: Mapping[str, str], prefix: str, other: type, own: type) -> dict[str, str]:
    not_ours = {prefix + key for key in settings_of(other).keys() - settings_of(own).keys()}
    return {name: text for name, text in options.items() if name not in not_ours}
