"""Topic ids as Kafka writes them: 16 bytes in URL-safe base64 without padding.

Pure.
"""

from __future__ import annotations

import base64
import binascii
from uuid import UUID

from kcli.command.options import Refused


def id_text(id: UUID) -> str:
    return base64.urlsafe_b64encode(id.bytes).decode().rstrip("=")


def topic_id(text: str) -> UUID | None:
    """Parse an id; return None for the id of all zeros, which stands for none. Raises Refused if it
    is invalid.
    """
    if len(text) > 24:
        raise Refused(
            f"Input string with prefix `{text[:24]}` is too long to be decoded as a base64 UUID"
        )
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise Refused(f"`{text}` is not an id: ids are 22 characters of base64") from None
    if len(data) != 16:
        raise Refused(
            f"Input string `{text}` decoded as {len(data)} bytes, which is not equal to the "
            "expected 16 bytes of a base64-encoded UUID"
        )
    return UUID(bytes=data) if any(data) else None
