"""Which start of a broker a log directory has seen last, and on which boot of its machine.

    last stop    boot of the machine    what was acknowledged and is not there
    clean        any                    nothing: all of it was brought to disk
    a crash      the same               nothing: the kernel has it
    a crash      another, or unknown    maybe what was not on disk yet

A broker that may lack records tells so as it registers, and the controller takes it out of every
ISR that has another live member before it may lead (KIP-966's rule).  The incarnation, a random id
of one start, lets the next start prove that a registration in ZooKeeper is that of a process which
is gone: whoever holds the lock on the directory in which its incarnation is noted has outlived it.

Pure: bytes in, bytes out.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgpack

FILE = "incarnation.msgpack"
REMEMBERED = 4
"""Starts that may have failed between noting their incarnation and registering."""


@dataclass(frozen=True, slots=True)
class Incarnation:
    boot_id: str
    """That of the machine's kernel: another one after each boot."""
    ids: tuple[str, ...]
    """Those of the last starts, the newest first."""

    def next(self, boot_id: str, incarnation_id: str) -> Incarnation:
        return Incarnation(boot_id, (incarnation_id, *self.ids)[:REMEMBERED])


NONE = Incarnation("", ())
"""In a directory that no start has noted anything in, or that another broker than k used."""


def encode(incarnation: Incarnation) -> bytes:
    data: bytes = msgpack.packb({"boot": incarnation.boot_id, "ids": incarnation.ids})
    return data


def decode(data: bytes) -> Incarnation:
    """NONE for what makes no sense: then nothing is proven by it."""
    try:
        fields = msgpack.unpackb(data)
        boot_id, ids = fields["boot"], fields["ids"]
    except (ValueError, KeyError, TypeError, msgpack.UnpackException):
        return NONE
    if not isinstance(boot_id, str) or not isinstance(ids, list):
        return NONE
    return Incarnation(boot_id, tuple(one for one in ids if isinstance(one, str)))
