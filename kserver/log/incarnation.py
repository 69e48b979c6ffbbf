"""The last starts of a broker in a log directory, and the boot of the machine at the last one.

    last stop    boot of the machine    acknowledged records that may be lost
    clean        any                    none: all were flushed to disk
    a crash      the same               none: the kernel has them
    a crash      another, or unknown    those that were not flushed

A broker that may lack records reports that when it registers, and the controller removes it from
every ISR that has another live member before it may lead (KIP-966's rule).  The incarnation is a
random id of one start.  It lets the next start prove that a registration in ZooKeeper belongs to a
process that has ended: the process that holds the lock on the directory in which that incarnation
is noted has outlived it.

Pure: bytes in, bytes out.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgpack

FILE = "incarnation.msgpack"
REMEMBERED = 4
"""Number of starts to remember: some may fail between noting their incarnation and registering."""


@dataclass(frozen=True, slots=True)
class Incarnation:
    boot_id: str
    """Boot id of the machine's kernel, which changes at each boot."""
    ids: tuple[str, ...]
    """Incarnation ids of the last starts, newest first."""

    def next(self, boot_id: str, incarnation_id: str) -> Incarnation:
        return Incarnation(boot_id, (incarnation_id, *self.ids)[:REMEMBERED])


NONE = Incarnation("", ())
"""For a directory without a noted start, or one that another implementation than k used."""


def encode(incarnation: Incarnation) -> bytes:
    data: bytes = msgpack.packb({"boot": incarnation.boot_id, "ids": incarnation.ids})
    return data


def decode(data: bytes) -> Incarnation:
    """Return the stored incarnation, or NONE, which proves nothing, if the data is invalid."""
    try:
        fields = msgpack.unpackb(data)
        boot_id, ids = fields["boot"], fields["ids"]
    except (ValueError, KeyError, TypeError, msgpack.UnpackException):
        return NONE
    if not isinstance(boot_id, str) or not isinstance(ids, list):
        return NONE
    return Incarnation(boot_id, tuple(id_ for id_ in ids if isinstance(id_, str)))
