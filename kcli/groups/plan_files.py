"""Plans for new offsets as files: the output of --export, the input of --from-file.

    orders,0,17             the offset of a partition, of the only group that is named
    billing,orders,0,17     of a group

Pure: text in, plans out; and back.
"""

from __future__ import annotations

import csv
import io
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from kserver.model import Offset, TopicPartition

Plan: TypeAlias = dict[str, dict[TopicPartition, Offset]]
"""New offsets of the partitions of each group."""

MAX_PARTITION = 0x7FFFFFFF
MAX_OFFSET = 0x7FFFFFFFFFFFFFFF

# Kafka's writer quotes texts that are longer or have a character that sorts before this one.
_MAX_BARE_LENGTH = 24
_MIN_BARE_CHARACTER = "-"


def csv_lines(
    plan: Mapping[str, Mapping[TopicPartition, Offset]], *, groups: bool
) -> Iterator[str]:
    """Yield a line for each partition, with the group's name or without."""
    for group, offsets in plan.items():
        for (topic, partition), offset in offsets.items():
            name = [_quote(group)] if groups else []
            yield ",".join([*name, _quote(topic), str(partition), str(offset)])


def read(lines: Iterable[str], group: str | None) -> Plan:
    """Read a plan. `group` is the only group that is named, if there is only one; lines of three
    fields are for it.

    Raises ValueError, with the line, if one is invalid.
    """
    plan: Plan = defaultdict(dict)
    for number, line, fields in _rows(lines):
        if len(fields) == 3 and group is not None:
            fields = [group, *fields]
        if len(fields) != 4 or not all(re.fullmatch("[0-9]{1,19}", n) for n in fields[2:]):
            shape = (
                "TOPIC,PARTITION,OFFSET" if group is not None else "GROUP,TOPIC,PARTITION,OFFSET"
            )
            raise ValueError(f"line {number}: '{line}' is not {shape}")
        name, topic = fields[:2]
        partition, offset = int(fields[2]), int(fields[3])
        if partition > MAX_PARTITION or offset > MAX_OFFSET:
            raise ValueError(f"line {number}: '{line}' has a number that is too large")
        plan[name][TopicPartition(topic, partition)] = offset
    return dict(plan)


def _rows(lines: Iterable[str]) -> Iterator[tuple[int, str, list[str]]]:
    """Yield the number of the line in which a row begins, its text, and its fields. A name in
    quotes may contain line breaks.
    """
    number = 1
    source = iter(lines)
    for first in source:
        row_lines = [first]
        # csv.reader would read past an open quote, so the lines of a row are collected first.
        while sum(line.count('"') for line in row_lines) % 2 and (more := next(source, None)):
            row_lines.append(more)
        text = "".join(row_lines).strip(" \r\n")
        if text:
            try:
                fields = next(csv.reader(io.StringIO(text, newline="")))
            except csv.Error:
                fields = []
            yield number, text, fields
        number += len(row_lines)


def _quote(text: str) -> str:
    if len(text) <= _MAX_BARE_LENGTH and all(
        character >= _MIN_BARE_CHARACTER for character in text
    ):
        return text
    return '"' + text.replace('"', '""') + '"'
