"""Explains why a record cannot be encoded, in a sentence with the remedy.

Pure: values in, an error out. It is called after an exception: a check of every record beforehand
would cost a producer much of its time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kcli.client.errors import ClientError


def encoding_fault(topic: str, records: Sequence[object]) -> ClientError | None:
    """Return the error of the first faulty record, of (timestamp, key, value, headers); None if all
    are valid.
    """
    for record in records:
        if isinstance(record, tuple) and (what := _fault(*record)) is not None:
            return ClientError(f"a record for topic {topic} cannot be sent: {what}")
    return None


def _fault(timestamp: object, key: object, value: object, headers: object) -> str | None:
    for name, part in (("key", key), ("value", value)):
        if not _is_bytes(part):
            return (
                f"its {name} is {_kind(part)}, not bytes; encode it, or give the producer a"
                f" {name}_serializer"
            )
    if not hasattr(timestamp, "__index__"):
        return f"its timestamp is {_kind(timestamp)}, not an int; give milliseconds since 1970"
    if not isinstance(headers, Iterable):
        return f"its headers are {_kind(headers)}; give pairs of a name and bytes"
    for header in headers:
        match header:
            case (str(name), content):
                if not _is_bytes(content):
                    return f"its header {name} is {_kind(content)}, not bytes; encode it"
            case (name, _):
                return f"the name of its header {name!r} is {_kind(name)}, not a str; decode it"
            case _:
                return f"its headers hold {header!r}; give pairs of a name and bytes"
    return None


def _is_bytes(part: object) -> bool:
    """Whether a part is bytes, or None, which is null on the wire."""
    if part is None:
        return True
    try:
        memoryview(part)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def _kind(value: object) -> str:
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
