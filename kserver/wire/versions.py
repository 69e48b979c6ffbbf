"""One shape inside, every version at the edge.

Pure: no I/O, no clock, no await.  kio gives each version of each message its own dataclass.  A
handler builds its answer with every field it knows; `reply_to(request)` returns the builder that
keeps the fields the caller's version has, and fills those it has and the handler left out with the
schema's default, else the type's zero.

    reply = reply_to(request)
    reply(topics=[reply.topics(name=..., error_code=...) for ...])

`request(api_key, version)` builds requests in the same way.

Of kio 0.6.5's 89 APIs only ten client-facing ones lose or move fields between versions: produce,
fetch, metadata, offset_commit, offset_fetch, find_coordinator, leave_group, delete_topics,
add_partitions_to_txn, update_features.  Their handlers flatten the request in their first lines;
all others read it as it is.
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
    """The builder of answers to `request`, in its version."""
    return _response(request.__api_key__, request.__version__)


@functools.cache
def request(api_key: int, version: int) -> MessageShape:
    """The builder of requests; raises ProtocolError for a version that does not exist."""
    return _shape(codec.request_type(api_key, version))


@functools.cache
def _response(api_key: int, version: int) -> MessageShape:
    return _shape(codec.response_type(api_key, version))


class MessageShape:
    """Builds one entity of one version; its nested entities hang off it by field name."""

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

    def __call__(self, **given: Any) -> Any:
        names = self._names
        known = {k: tuple(v) if type(v) is list else v for k, v in given.items() if k in names}
        return self._cls(**self._zeros | known)

    def __getattr__(self, name: str) -> Any:
        return self._parts.get(name, ABSENT)


class _Absent:
    """Stands for an entity this version does not have: builds nothing, however deep."""

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
