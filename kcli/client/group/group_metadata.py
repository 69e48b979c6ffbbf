"""GroupMetadata: a consumer's identity in its group, for commits on its behalf.

`Consumer.group_metadata()` returns it, `send_offsets_to_transaction` takes it: the coordinator
fences offsets of a member of an earlier generation (KIP-447).
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GroupMetadata"]


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """The defaults stand for no member: only a group without members accepts its commits.

    `generation_id` is the generation of a classic group, and the member's epoch of a group by
    KIP-848.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
