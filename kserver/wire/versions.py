"""Requests and responses in one form, converted to the client's version.

Pure: no I/O, no clock, no await.  kio has a dataclass for each version of each message.  A handler
builds its response with every field it knows.  `reply_to(request)` returns a builder that keeps
the fields of the client's version, and sets missing ones to the schema's default, else the type's
zero.

    reply = reply_to(request)
    reply(topics=[reply.topics(name=..., error_code=...) for ...])

`request(api_key, version)` builds requests in the same way.

Of kio 0.6.5's 89 APIs only ten client-facing ones remove or move fields between versions: produce,
fetch, metadata, offset_commit, offset_fetch, find_coordinator, leave_group, delete_topics,
add_partitions_to_txn, update_features.  Their handlers normalize the request in their first lines;
all others read it directly.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import typing
from typing import Any

from kserver.errors import ErrorCode
from kserver.wire import codec
from kserver.wire.guard import entity_in


def reply_to(request: Any) -> MessageShape:
    """Return the builder of responses to `request`, in its version."""
    return response(request.__api_key__, request.__version__)


@functools.cache
def request(api_key: int, version: int) -> MessageShape:
    """Return the builder of requests.  Raises ProtocolError for a version that does not exist."""
    return _shape(codec.request_type(api_key, version))


@functools.cache
def response(api_key: int, version: int) -> MessageShape:
    """Return the builder of responses, like `request`."""
    return _shape(codec.response_type(api_key, version))


class MessageShape:
    """Builds one entity of one version; its attributes build nested entities, by field name."""

    __slots__ = ("_cls", "_names", "_parts", "_zeros")

    def __init__(self, cls: Any) -> None:
        hints = typing.get_type_hints(cls)
        fields = dataclasses.fields(cls)
        self._cls = cls
        self._names = frozenset(f.name for f in fields)
        self._parts = {f.name: _shape(part) for f in fields if (part := entity_in(hints[f.name]))}
        self._zeros = {
            f.name: _zero(hints[f.name])
            for f in fields
            if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        }

    def __call__(self, **fields: Any) -> Any:
        names = self._names
        values = {k: tuple(v) if type(v) is list else v for k, v in fields.items() if k in names}
        return self._cls(**self._zeros | values)

    def __getattr__(self, name: str) -> Any:
        return self._parts.get(name, ABSENT)


class _Absent:
    """Placeholder for an entity that this version lacks; it builds None, at any depth."""

    def __call__(self, **_: Any) -> None:
        return None

    def __getattr__(self, name: str) -> _Absent:
        return self


ABSENT = _Absent()


@functools.cache
def _shape(cls: Any) -> MessageShape:
    return MessageShape(cls)


_ZEROS = (
    (ErrorCode, ErrorCode.none),
    (bool, False),
    (int, 0),
    (float, 0.0),
    (str, ""),
    (bytes, b""),
    (datetime.timedelta, datetime.timedelta(0)),
    (datetime.datetime, datetime.datetime.fromtimestamp(0, datetime.UTC)),
)


def _zero(hint: Any) -> Any:
    if type(None) in typing.get_args(hint):
        return None
    if typing.get_origin(hint) is tuple:
        return ()
    if entity := entity_in(hint):
        return _shape(entity)()
    return next(zero for kind, zero in _ZEROS if issubclass(hint, kind))
