"""The shapes of rows about groups, and the words that states and types have.

Pure: declarations.
"""

from __future__ import annotations

from kcli.rows.shapes import Field, Shape

STATES = (
    "Stable",
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "Dead",
)
TYPES = ("Classic", "Consumer")
"""Of groups of consumers; the other ones are OTHER_TYPES."""
OTHER_TYPES = ("Share", "Streams")

_GROUP = Field("group", "string", "The group.")

LIST = Shape(
    "k.consumer-groups.list",
    1,
    "A group of consumers.",
    (
        Field("group", "string", "Its name."),
        Field("type", "string or null", "Classic or Consumer; null where the broker has no types."),
        Field("state", "string or null", "Such as Stable or Empty; null where it is not told."),
        Field("protocol", "string or null", "consumer; null where it has only committed offsets."),
    ),
)

OFFSETS = Shape(
    "k.consumer-groups.offsets",
    1,
    "A partition that a member reads or that the group committed an offset for.",
    (
        _GROUP,
        Field("topic", "string", "Its topic."),
        Field("partition", "integer", "Its number."),
        Field("leader_epoch", "integer or null", "The epoch that was committed with the offset."),
        Field("current_offset", "integer or null", "The committed offset; null without one."),
        Field("log_end_offset", "integer or null", "Where the partition ends; null if not known."),
        Field("lag", "integer or null", "How many offsets are between the two."),
        Field(
            "lag_seconds",
            "number or null",
            "How old the record at the committed offset is; 0 at the end, null if not known.",
        ),
        Field("consumer_id", "string or null", "Of the member that reads it; null without one."),
        Field("host", "string or null", "Where that member is."),
        Field("client_id", "string or null", "What that member calls itself."),
    ),
)

MEMBERS = Shape(
    "k.consumer-groups.members",
    1,
    "A member of a group.",
    (
        _GROUP,
        Field("consumer_id", "string", "Its id."),
        Field("group_instance_id", "string or null", "That of a static member."),
        Field("host", "string", "Where it is."),
        Field("client_id", "string", "What it calls itself."),
        Field("partitions", "integer", "How many it reads."),
        Field("assignment", "list of string", "Which, as TOPIC:PARTITION,..."),
        Field("epoch", "integer or null", "Its epoch; null in a classic group."),
        Field("target_assignment", "list of string", "What it shall read; empty in classic ones."),
        Field("target_epoch", "integer or null", "The epoch of that; null in a classic group."),
        Field("upgraded", "boolean or null", "Whether it speaks KIP-848's protocol."),
    ),
)

STATE = Shape(
    "k.consumer-groups.state",
    1,
    "A group.",
    (
        Field("group", "string", "Its name."),
        Field("type", "string", "Classic or Consumer."),
        Field("state", "string", "Such as Stable or Empty."),
        Field("coordinator", "string", "HOST:PORT of its coordinator."),
        Field("coordinator_id", "integer", "The id of that broker."),
        Field("assignment_strategy", "string or null", "How partitions are shared out."),
        Field("epoch", "integer or null", "Its epoch; null for a classic group."),
        Field("target_epoch", "integer or null", "That of the target assignment."),
        Field("members", "integer", "How many it has."),
    ),
)

WATCH = Shape(
    "k.consumer-groups.watch",
    1,
    "A group at one time.",
    (
        Field("time_ms", "integer", "The time, in ms since 1970."),
        _GROUP,
        Field("state", "string", "Such as Stable or Empty."),
        Field("members", "integer", "How many it has."),
        Field("partitions", "integer", "Of how many the lag is told."),
        Field(
            "lag",
            "integer or null",
            "How many records it has to read, of a partition without a committed offset all; null "
            "if not known of one.",
        ),
        Field(
            "lag_seconds",
            "number or null",
            "How old the oldest record is that it has to read next; 0 where none waits, null if "
            "not known.",
        ),
        Field(
            "records_per_second",
            "number or null",
            "How the lag changes, over up to ten looks; below zero it shrinks; null at the first.",
        ),
    ),
)

RESET = Shape(
    "k.consumer-groups.reset",
    1,
    "A partition and the offset that --reset-offsets gives it.",
    (
        _GROUP,
        Field("topic", "string", "Its topic."),
        Field("partition", "integer", "Its number."),
        Field("new_offset", "integer", "The offset."),
    ),
)

ANY = Shape(
    "k.groups.list",
    1,
    "A group of any type.",
    (
        Field("group", "string", "Its name."),
        Field("type", "string or null", "Classic, Consumer, Share or Streams."),
        Field("protocol", "string or null", "What its members are, such as consumer or connect."),
        Field("state", "string or null", "Such as Stable or Empty; null where it is not told."),
    ),
)
