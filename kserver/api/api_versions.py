"""ApiVersions (key 18): v0-v4.

Behaviour:
- Lists the APIs of the table with their implemented versions; an unfinished API is not listed.
- Only Produce is listed from v0, although v0-v2 are not served: if v0 is missing, librdkafka 2.0
  does not compress with gzip, snappy or lz4 when its user requested that (KAFKA-18659).
- An unknown version gets UNSUPPORTED_VERSION in a v0 body that lists the range of ApiVersions, so
  that the client can retry (KIP-511; users of kafka-python and KoP were disconnected by brokers
  that close the connection).
- From v3, lists the features and their finalized levels.  Features whose minimum is 0 are listed as
  supported only from v4 (KAFKA-17011: older clients cannot parse them).

Errors: UNSUPPORTED_VERSION, INVALID_REQUEST (an invalid client name or version).

Versions:
- v1 throttle time; v3 client software name and version, features; v4 features with minimum 0
"""

from __future__ import annotations

import functools
import re
import struct

from kserver.api.context import Parts, Session
from kserver.controller.features import SUPPORTED
from kserver.errors import ErrorCode
from kserver.network.conversation import Response
from kserver.wire.api_key import ApiKey
from kserver.wire.codec import RequestHeader, read_request, write_response
from kserver.wire.versions import response as response_shape

KEY, VERSIONS = 18, range(0, 5)

FIRST_WITH_MINIMUM_0 = 4
LISTED_FROM: dict[int, int] = {ApiKey.PRODUCE: 0}
"""First listed version of APIs that list versions which are not served."""

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
_SIZE_BYTES = 4
_CORRELATION_ID = struct.Struct(">i")
_BODY = 8
"""Offset of the body in a frame: after its size and the correlation id."""
_V0 = struct.Struct(">iihihhh")
"""Size, correlation id, error code, count of one API, its key, lowest and highest version."""


def handle_frame(
    header: RequestHeader, frame: memoryview, at: int, session: Session, parts: Parts
) -> Response:
    request = read_request(header, frame, at)
    version, correlation_id = header.api_version, header.correlation_id
    if version >= 3:
        software = (request.client_software_name, request.client_software_version)
        if not all(_SOFTWARE.fullmatch(text) for text in software):
            refusal = response_shape(KEY, version)(error_code=ErrorCode.invalid_request)
            return write_response(KEY, version, correlation_id, refusal)
        session.client_software = software
    features = parts.metadata.current.features
    whole = _written(
        version, tuple(session.served.items()), tuple(features.levels.items()), features.epoch
    )
    return whole[:_SIZE_BYTES] + _CORRELATION_ID.pack(correlation_id) + whole[_BODY:]


def refuse_version(header: RequestHeader) -> bytes:
    """Return UNSUPPORTED_VERSION in a v0 response, whatever version was requested."""
    return _V0.pack(
        _V0.size - 4,
        header.correlation_id,
        ErrorCode.unsupported_version.value,
        1,
        KEY,
        VERSIONS.start,
        VERSIONS.stop - 1,
    )


@functools.lru_cache(maxsize=16)
def _written(
    version: int,
    served: tuple[tuple[int, range], ...],
    finalized: tuple[tuple[str, int], ...],
    features_epoch: int,
) -> bytes:
    """Return the response with correlation id 0. Almost every connection begins with the same one,
    which takes 0.4 ms to write.
    """
    reply = response_shape(KEY, version)
    response = reply(
        error_code=ErrorCode.none,
        api_keys=[
            reply.api_keys(
                api_key=key,
                min_version=LISTED_FROM.get(key, of.start),
                max_version=of.stop - 1,
            )
            for key, of in served
        ],
        supported_features=[
            reply.supported_features(
                name=name, min_version=levels.start, max_version=levels.stop - 1
            )
            for name, levels in SUPPORTED.items()
            if levels.start > 0 or version >= FIRST_WITH_MINIMUM_0
        ],
        finalized_features_epoch=features_epoch,
        finalized_features=[
            reply.finalized_features(name=name, min_version_level=level, max_version_level=level)
            for name, level in finalized
        ],
    )
    return write_response(KEY, version, 0, response)
