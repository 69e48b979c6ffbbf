"""kio messages with something in every field."""

from __future__ import annotations

import dataclasses
import datetime
import typing
import uuid

from kserver.errors import ErrorCode
from kserver.wire import codec
from kserver.wire.guard import entity_in

VERSIONS = [
    (key, version)
    for key in codec.api_key_map
    for version in range(codec.versions_of(key)[0], codec.versions_of(key)[1] + 1)
]
"""Every API key with each of its versions."""

VALUES = (
    (ErrorCode, ErrorCode.rebalance_in_progress),
    (bool, True),
    (int, 5),
    (float, 0.5),
    (str, "text"),
    (bytes, b"bytes"),
    (uuid.UUID, uuid.UUID(int=7)),
    (datetime.timedelta, datetime.timedelta(milliseconds=1500)),
    (datetime.datetime, datetime.datetime.fromtimestamp(1_700_000_000, datetime.UTC)),
)


def filled(cls: typing.Any, elements: int = 2) -> typing.Any:
    """Return an entity of kio's dataclass `cls`, with this many elements in each array and no
    nulls.
    """
    hints = typing.get_type_hints(cls)
    return cls(**{f.name: _value(hints[f.name], elements) for f in dataclasses.fields(cls)})


def _value(hint: typing.Any, elements: int) -> typing.Any:
    kinds = [kind for kind in (hint, *typing.get_args(hint)) if kind is not type(None)]
    if array := next((kind for kind in kinds if typing.get_origin(kind) is tuple), None):
        return (_value(typing.get_args(array)[0], elements),) * elements
    if entity := entity_in(hint):
        return filled(entity, elements)
    kinds = [kind for kind in kinds if isinstance(kind, type)]
    return next(value for kind, value in VALUES if issubclass(kinds[0], kind))
