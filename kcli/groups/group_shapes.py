"""The shapes of rows about groups, and the names of states and types.

Pure: declarations.
"""

from __future__ import annotations

from kcli.rows.shapes import RowField, RowShape

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
"""Types of groups of consumers; OTHER_TYPES are the rest."""
OTHER_TYPES = ("Share", "Streams")

_GROUP = RowField("group", "string", "The group.")

LIST = RowShape(
    "k.consumer-groups.list",
    1,
    "A group of consumers.",
    (
        RowField("group", "string", "Its name."),
        RowField(
            "type", "string or null", "Classic or Consumer; null where the broker has no types."
        ),
        RowField(
            "state",
            "string or null",
            "Such as Stable or Empty; null if the broker does not send it.",
        ),
        RowField(
            "protocol", "string or null", "consumer; null where it has only committed offsets."
        ),
    ),
)

OFFSETS = RowShape(
    "k.consumer-groups.offsets",
    1,
    "A partition that a member reads or that the group committed an offset for.",
    (
        _GROUP,
        RowField("topic", "string", "Its topic."),
        RowField("partition", "integer", "Its number."),
        RowField(
            "leader_epoch", "integer or null", "The epoch that was committed with the offset."
        ),
        RowField("current_offset", "integer or null", "The committed offset; null without one."),
        RowField(
            "log_end_offset", "integer or null", "End offset of the partition; null if unknown."
        ),
        RowField("lag", "integer or null", "Number of offsets between the two."),
        RowField(
            "lag_seconds",
            "number or null",
            "Age of the record at the committed offset; 0 at the end, null if unknown.",
        ),
        RowField("consumer_id", "string or null", "Of the member that reads it; null without one."),
        RowField("host", "string or null", "Host of that member."),
        RowField("client_id", "string or null", "client.id of that member."),
    ),
)

MEMBERS = RowShape(
    "k.consumer-groups.members",
    1,
    "A member of a group.",
    (
        _GROUP,
        RowField("consumer_id", "string", "Its id."),
        RowField("group_instance_id", "string or null", "group.instance.id of a static member."),
        RowField("host", "string", "Host of the member."),
        RowField("client_id", "string", "client.id of the member."),
        RowField("partitions", "integer", "Number of partitions assigned to it."),
        RowField("assignment", "list of string", "Which, as TOPIC:PARTITION,..."),
        RowField("epoch", "integer or null", "Its epoch; null in a classic group."),
        RowField(
            "target_assignment",
            "list of string",
            "Its target assignment; empty in a classic group.",
        ),
        RowField(
            "target_epoch",
            "integer or null",
            "The epoch of the target assignment; null in a classic group.",
        ),
        RowField("upgraded", "boolean or null", "Whether it speaks KIP-848's protocol."),
    ),
)

STATE = RowShape(
    "k.consumer-groups.state",
    1,
    "A group.",
    (
        RowField("group", "string", "Its name."),
        RowField("type", "string", "Classic or Consumer."),
        RowField("state", "string", "Such as Stable or Empty."),
        RowField("coordinator", "string", "HOST:PORT of its coordinator."),
        RowField("coordinator_id", "integer", "The id of that broker."),
        RowField("assignment_strategy", "string or null", "The assignor of partitions."),
        RowField("epoch", "integer or null", "Its epoch; null for a classic group."),
        RowField("target_epoch", "integer or null", "That of the target assignment."),
        RowField("members", "integer", "How many it has."),
    ),
)

WATCH = RowShape(
    "k.consumer-groups.watch",
    1,
    "A group at one time.",
    (
        RowField("time_ms", "integer", "The time, in ms since 1970."),
        _GROUP,
        RowField("state", "string", "Such as Stable or Empty."),
        RowField("members", "integer", "How many it has."),
        RowField("partitions", "integer", "Number of partitions included in the lag."),
        RowField(
            "lag",
            "integer or null",
            "Number of records left to read; all records of a partition without a committed "
            "offset; null if unknown for a partition.",
        ),
        RowField(
            "lag_seconds",
            "number or null",
            "Age of the oldest record left to read; 0 if there is none, null if unknown.",
        ),
        RowField(
            "records_per_second",
            "number or null",
            "Change of the lag per second, over up to ten samples; negative if it shrinks; null "
            "at the first.",
        ),
    ),
)

RESET = RowShape(
    "k.consumer-groups.reset",
    1,
    "A partition and the offset that --reset-offsets gives it.",
    (
        _GROUP,
        RowField("topic", "string", "Its topic."),
        RowField("partition", "integer", "Its number."),
        RowField("new_offset", "integer", "The offset."),
    ),
)

ANY = RowShape(
    "k.groups.list",
    1,
    "A group of any type.",
    (
        RowField("group", "string", "Its name."),
        RowField("type", "string or null", "Classic, Consumer, Share or Streams."),
        RowField("protocol", "string or null", "The protocol type, such as consumer or connect."),
        RowField(
            "state",
            "string or null",
            "Such as Stable or Empty; null if the broker does not send it.",
        ),
    ),
)
