"""What callers hand to the clients, checked where it comes in: a ClientError names the argument.

Pure: values in, nothing or values out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from kcli.client.errors import ClientError
from kcli.client.group_descriptions import CommittedOffset
from kserver.model import Offset, TopicPartition

T = TypeVar("T")


def expect_whole_number(name: str, value: object) -> None:
    """None is fine: the argument was not given."""
    if value is not None and not hasattr(value, "__index__"):
        raise ClientError(f"{name} is a whole number, not {value!r}")


def expect_milliseconds(name: str, value: object) -> None:
    if not hasattr(value, "__float__") and not hasattr(value, "__index__"):
        raise ClientError(f"{name} is a number of milliseconds, not {value!r}")


def committable(
    offsets: Mapping[TopicPartition, Offset | CommittedOffset] | None,
) -> dict[TopicPartition, CommittedOffset] | None:
    """Offsets with what else is committed; None stands for all that was read."""
    if offsets is None:
        return None
    expect_offsets(offsets)
    return {p: CommittedOffset(o) if isinstance(o, int) else o for p, o in offsets.items()}


def expect_offsets(value: object) -> None:
    if not isinstance(value, Mapping):
        raise ClientError(
            f"offsets are a mapping such as {{TopicPartition('orders', 0): 17}}, not {value!r}"
        )


def items(name: str, values: Iterable[T]) -> tuple[T, ...]:
    if not isinstance(values, Iterable):
        raise ClientError(f"{name} are a list or another iterable, not {values!r}")
    return tuple(values)
