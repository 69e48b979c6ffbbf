"""Which partition a record goes to.

Pure: keys and counts in, numbers out.

A record with a key goes where Java's clients send it: murmur2 of the key, its sign bit cleared,
modulo the number of partitions (Kafka: BuiltInPartitioner, Utils.murmur2).  Records without a key
stay with one partition for a batch's worth of bytes and then move on (KIP-794); that choice is the
accumulator's, which knows the batches.
"""

from __future__ import annotations

import functools
import struct

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF

# Keys repeat; a key met before costs a look-up, a new one a microsecond for every 8 bytes.
_REMEMBERED_KEYS = 1 << 15


@functools.lru_cache(_REMEMBERED_KEYS)
def murmur2(data: bytes) -> int:
    """The 32-bit hash, unsigned."""
    size = len(data)
    words = size // 4
    hash = _SEED ^ size
    for k in struct.unpack_from(f"<{words}I", data):
        k = k * _MULTIPLIER & _MASK
        k = (k ^ k >> 24) * _MULTIPLIER & _MASK
        hash = (hash * _MULTIPLIER & _MASK) ^ k
    if size % 4:
        hash = (hash ^ int.from_bytes(data[4 * words :], "little")) * _MULTIPLIER & _MASK
    hash = (hash ^ hash >> 13) * _MULTIPLIER & _MASK
    return hash ^ hash >> 15


def partition_for_key(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions
