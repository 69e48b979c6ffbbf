"""GroupMetadata: who a consumer is in its group, for what commits on its behalf.

`Consumer.group_metadata()` gives it, `send_offsets_to_transaction` takes it: the coordinator fences
offsets of a member that was given another generation since (KIP-447).
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GroupMetadata"]


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """With the defaults it is no member's: only a group without members takes its commits.

    `generation_id` is the generation of a classic group, and the member's epoch of a group by
    KIP-848.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
