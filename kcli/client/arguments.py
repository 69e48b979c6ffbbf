"""Checks of the arguments that callers pass to the clients; a ClientError names the argument.

Pure: values in, nothing or values out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from kcli.client.cluster import expect_topic_name
from kcli.client.errors import ClientError
from kserver.model import Offset, TopicPartition

if TYPE_CHECKING:
    from kcli.client.admin.descriptions import ConfigResource
    from kcli.client.consumer.consumer_metadata import SubscriptionPattern
    from kcli.client.group.group_descriptions import CommittedOffset

T = TypeVar("T")
K = TypeVar("K")


def expect_whole_number(name: str, value: object) -> None:
    """Raises ClientError unless the value is a whole number or None (argument omitted)."""
    if value is not None and not hasattr(value, "__index__"):
        raise ClientError(f"{name} is a whole number, not {value!r}")


def expect_milliseconds(name: str, value: object) -> None:
    if not hasattr(value, "__float__") and not hasattr(value, "__index__"):
        raise ClientError(f"{name} is a number of milliseconds, not {value!r}")


def committable(
    offsets: Mapping[TopicPartition, Offset | CommittedOffset] | None,
) -> dict[TopicPartition, CommittedOffset] | None:
    """Return the offsets as CommittedOffset; None stands for every position."""
    return None if offsets is None else committed(offsets)


def committed(
    offsets: Mapping[TopicPartition, Offset | CommittedOffset],
) -> dict[TopicPartition, CommittedOffset]:
    """Return the offsets as CommittedOffset (offset, leader epoch, metadata)."""
    # Imported here because it costs `k topics` a millisecond of its start.
    from kcli.client.group.group_descriptions import CommittedOffset

    if not isinstance(offsets, Mapping):
        raise ClientError(
            f"offsets are a mapping such as {{TopicPartition('orders', 0): 17}}, not {offsets!r}"
        )
    for partition, offset in offsets.items():
        expect_partition(partition)
        if not isinstance(offset, int | CommittedOffset):
            raise ClientError(
                f"the offset of {partition} is a whole number or a CommittedOffset, not {offset!r}"
            )
    return {p: CommittedOffset(o) if isinstance(o, int) else o for p, o in offsets.items()}


def times(value: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
    """Return the mapping of partitions to times in ms since 1970 after a check."""
    if not isinstance(value, Mapping):
        raise ClientError(
            "times_ms is a mapping such as {TopicPartition('orders', 0): 1700000000000}, not"
            f" {value!r}"
        )
    for partition, time_ms in value.items():
        expect_partition(partition)
        if not isinstance(time_ms, int):
            raise ClientError(f"the time of {partition} is in whole milliseconds, not {time_ms!r}")
    return value


def expect_offset(value: object) -> None:
    """Raises ClientError unless the value is an offset in a log. The special values of ListOffsets,
    which are negative, are refused.
    """
    expect_whole_number("offset", value)
    if isinstance(value, int) and value < 0:
        raise ClientError(f"offset is 0 or more, not {value}")


def items(name: str, values: Iterable[T]) -> tuple[T, ...]:
    if not isinstance(values, Iterable):
        raise ClientError(f"{name} are a list or another iterable, not {values!r}")
    return tuple(values)


def names(name: str, values: Iterable[str]) -> tuple[str, ...]:
    """Return the names as a tuple. A single str is refused: it is an iterable of its characters."""
    if isinstance(values, str):
        raise ClientError(f"{name} are a list of str: [{values!r}], not {values!r}")
    return all_of(str, name, values)


def all_of(kind: type[T], name: str, values: Iterable[T]) -> tuple[T, ...]:
    """Return the values as a tuple after a check that each is of that type."""
    checked_values = items(name, values)
    for value in checked_values:
        if not isinstance(value, kind):
            raise ClientError(f"{name} are of type {kind.__name__}; this one is not: {value!r}")
    return checked_values


def config_resources(values: Iterable[ConfigResource]) -> tuple[ConfigResource, ...]:
    """Return the resources as a tuple after a check that each is a type and a name."""
    checked_values = items("resources", values)
    for value in checked_values:
        match value:
            case (int(), str()):
                pass
            case _:
                raise ClientError(
                    f"a resource is a type and a name, (ConfigType.TOPIC, 'orders'), not {value!r}"
                )
    return checked_values


def by_partition(name: str, value: Mapping[TopicPartition, T]) -> Mapping[TopicPartition, T]:
    """Return the mapping after a check that each key is a partition."""
    if not isinstance(value, Mapping):
        raise ClientError(f"{name} is a mapping by TopicPartition, not {value!r}")
    for partition in value:
        expect_partition(partition)
    return value


def by_kind(kind: type[K], name: str, value: Mapping[K, T]) -> Mapping[K, T]:
    """Return the mapping after a check that each key is of that type."""
    if not isinstance(value, Mapping):
        raise ClientError(f"{name} is a mapping by {kind.__name__}, not {value!r}")
    all_of(kind, f"the keys of {name}", value)
    return value


def pattern(
    value: str | re.Pattern[str] | SubscriptionPattern | None,
) -> re.Pattern[str] | SubscriptionPattern | None:
    """Return a pattern of topics, compiled if it is a str."""
    if value is None or isinstance(value, re.Pattern):
        return value
    if isinstance(value, str):
        try:
            return re.compile(value)
        except re.error as error:
            raise ClientError(f"pattern {value!r} is not a regular expression: {error}") from error

    from kcli.client.consumer.consumer_metadata import SubscriptionPattern

    if not isinstance(value, SubscriptionPattern):
        raise ClientError(
            f"pattern is a str, an re.Pattern or a SubscriptionPattern, not {value!r}"
        )
    return value


def partitions(values: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    """Return the partitions as a tuple after a check of each."""
    checked_values = items("partitions", values)
    for value in checked_values:
        expect_partition(value)
    return checked_values


def some_partitions(
    values: Iterable[TopicPartition] | None,
) -> tuple[TopicPartition, ...] | None:
    """Do the same as `partitions`; None stands for all."""
    return None if values is None else partitions(values)


def expect_partition(value: object) -> None:
    if not is_partition(value):
        raise ClientError(f"a partition is TopicPartition(topic, number), not {value!r}")
    assert isinstance(value, tuple)
    expect_topic_name(value[0])


def is_partition(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and hasattr(value[1], "__index__")
