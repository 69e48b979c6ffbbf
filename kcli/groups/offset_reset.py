"""--reset-offsets: computes, checks, commits and prints new offsets of groups."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kcli.command.command_runner import raise_first, unwrap
from kcli.command.options import Refused, is_set, refuse
from kcli.command.output import complain, print_output
from kcli.command.statuses import DONE, FAILED
from kcli.groups import group_text, plan_files, times
from kcli.groups.group_queries import DEAD, EMPTY, committed, describe_groups, failure
from kcli.groups.plan_files import Plan
from kcli.rows.listing import Rows
from kserver.errors import ErrorCode, KafkaError
from kserver.model import Offset, TopicPartition
from kserver.wire.special_offsets import EARLIEST, LATEST

if TYPE_CHECKING:
    from kcli.client.admin.admin import Admin
    from kcli.command.command import Options

SCENARIOS = (
    "to-offset",
    "shift-by",
    "to-datetime",
    "by-duration",
    "to-earliest",
    "to-latest",
    "to-current",
    "from-file",
)
ALL = f"[{', '.join(f'[{name}]' for name in SCENARIOS)}]"
NO_EXECUTE = (
    "WARN: No action will be performed as the --execute option is missing. In version 5.0, this "
    "command will require either --dry-run or --execute to be specified. You should add the "
    "--dry-run option explicitly if you are scripting this command and want to keep the current "
    "default behavior without prompting."
)

Offsets = dict[TopicPartition, Offset]


async def reset(admin: Admin, options: Options, groups: Sequence[str], out: Rows | None) -> int:
    """Plan for each group, commit with --execute, and print the plan; return the exit status."""
    targets = Targets(admin, options, groups)
    plan: Plan = {}
    status = DONE
    for name, group in (await describe_groups(admin, groups)).items():
        if isinstance(group, KafkaError) and group.code == ErrorCode.group_id_not_found:
            state = DEAD
        elif isinstance(group, KafkaError | Refused):
            raise Refused(failure(group))
        else:
            state = group.state
        if state not in (EMPTY, DEAD):
            why = (
                f"Assignments can only be reset if the group '{name}' is inactive, but the "
                f"current state is {state}."
            )
            _print_error(name, why, out)
            plan[name] = {}
            status = FAILED
            continue
        plan[name] = dict(sorted((await targets.of(name, out)).items()))
        if options.execute:
            await _commit(admin, name, plan[name])
    _show(options, plan, out)
    return status or targets.status


async def _commit(admin: Admin, group: str, offsets: Offsets) -> None:
    from kcli.client.group.group_descriptions import CommittedOffset

    raise_first(
        await admin.groups.commit(
            group, {partition: CommittedOffset(offset) for partition, offset in offsets.items()}
        )
    )


def _show(options: Options, plan: Plan, out: Rows | None) -> None:
    if out is not None:
        for group, offsets in plan.items():
            for (topic, partition), offset in offsets.items():
                out.row(group=group, topic=topic, partition=partition, new_offset=offset)
    elif options.export:
        for line in plan_files.csv_lines(plan, groups=len(options.group) != 1):
            print_output(line)
        print_output()
    else:
        for line in group_text.reset_lines(plan):
            print_output(line)


def _print_error(group: str, why: str, out: Rows | None) -> None:
    if out is None:
        print_output(f"\nError: {why}")
    else:
        out.problem(group, "REFUSED", why)


class Targets:
    """The new offsets that the options request; `status` is FAILED once a file lacks a group."""

    def __init__(self, admin: Admin, options: Options, groups: Sequence[str]) -> None:
        self.status = DONE
        self._admin = admin
        self._options = options
        self._scenario = next((name for name in SCENARIOS if is_set(options, name)), None)
        self._file = None
        if options.from_file is not None:
            self._file = _plan_of(options.from_file, groups[0] if len(options.group) == 1 else None)
        self._since_ms = _since_ms(options)

    async def of(self, group: str, out: Rows | None) -> Offsets:
        """Return the group's new offsets. Raises UsageError if an option is missing; Refused,
        KafkaError.
        """
        if self._scenario is None:
            refuse(f"Option '[reset-offsets]' requires one of the following scenarios: {ALL}")
        partitions = await self._scope(group)
        await self._check(partitions)
        match self._scenario:
            case "to-offset":
                return await self._within(dict.fromkeys(partitions, self._options.to_offset))
            case "to-earliest":
                return await self._list_offsets(partitions, EARLIEST)
            case "to-latest":
                return await self._list_offsets(partitions, LATEST)
            case "shift-by":
                return await self._shift(group, partitions)
            case "to-datetime" | "by-duration":
                assert self._since_ms is not None
                return await self._since(partitions, self._since_ms, out)
            case "to-current":
                return await self._current(group, partitions)
        return await self._from_file(group, out)

    async def _scope(self, group: str) -> list[TopicPartition]:
        if self._options.all_topics:
            return list((await committed(self._admin, [group]))[group])
        if self._options.topic:
            return await partitions_named(self._admin, self._options.topic)
        if self._file is None:
            refuse("One of the reset scopes should be defined: --all-topics, --topic.")
        return []

    async def _check(self, partitions: Collection[TopicPartition]) -> None:
        """Raises Refused for partitions that do not exist or have no leader."""
        topics = await self._admin.describe_topics({p.topic for p in partitions})
        leaders = {
            TopicPartition(name, p.partition): p.leader
            for name, topic in topics.items()
            for p in unwrap(topic).partitions
        }
        for wrong, why in (
            ([p for p in partitions if p not in leaders], "do not exist"),
            ([p for p in partitions if leaders.get(p) is None], "have no leader"),
        ):
            if wrong:
                raise Refused(f'The partitions "{",".join(map(str, wrong))}" {why}')

    async def _list_offsets(self, partitions: Iterable[TopicPartition], spec: int) -> Offsets:
        results = await self._admin.list_offsets(dict.fromkeys(partitions, spec))
        return {
            partition: unwrap(listed_offset).offset for partition, listed_offset in results.items()
        }

    async def _within(self, targets: Offsets) -> Offsets:
        """Return the same offsets, moved into the range of their logs."""
        first = await self._list_offsets(targets, EARLIEST)
        last = await self._list_offsets(targets, LATEST)
        targets_within = {}
        for partition, offset in targets.items():
            targets_within[partition] = min(max(offset, first[partition]), last[partition])
            if targets_within[partition] != offset:
                where = "higher than latest" if offset > last[partition] else "lower than earliest"
                complain(
                    f"WARN New offset ({offset}) is {where} offset for topic partition "
                    f"{partition}. Value will be set to {targets_within[partition]}"
                )
        return targets_within

    async def _shift(self, group: str, partitions: Collection[TopicPartition]) -> Offsets:
        current = (await committed(self._admin, [group]))[group]
        for partition in partitions:
            if partition not in current:
                raise Refused(
                    f"Cannot shift offset for partition {partition} since there is no current "
                    "committed offset"
                )
        return await self._within(
            {p: current[p].offset + self._options.shift_by for p in partitions}
        )

    async def _since(
        self, partitions: Collection[TopicPartition], since_ms: int, out: Rows | None
    ) -> Offsets:
        offsets = await self._list_offsets(partitions, since_ms)
        older = [partition for partition, offset in offsets.items() if offset < 0]
        write: Callable[[str], None] = print_output if out is None else complain
        for topic, number in older:
            write(
                f"\nWarn: Partition {number} from topic {topic} is empty. Falling back to latest "
                "known offset."
            )
        return offsets | await self._list_offsets(older, LATEST)

    async def _current(self, group: str, partitions: Collection[TopicPartition]) -> Offsets:
        current = (await committed(self._admin, [group]))[group]
        offsets = {p: current[p].offset for p in partitions if p in current}
        return offsets | await self._list_offsets(
            [p for p in partitions if p not in offsets], LATEST
        )

    async def _from_file(self, group: str, out: Rows | None) -> Offsets:
        assert self._file is not None
        if group not in self._file:
            self.status = FAILED
            _print_error(group, f"No reset plan for group {group} found", out)
            return {}
        await self._check(self._file[group])
        return await self._within(self._file[group])


async def partitions_named(admin: Admin, words: Iterable[str]) -> list[TopicPartition]:
    """Return these partitions for `TOPIC:0,1`, all for `TOPIC`. Raises KafkaError for an unknown
    topic.
    """
    partitions = [partition for word in words if ":" in word for partition in in_words(word)]
    topics = await admin.describe_topics([word for word in words if ":" not in word])
    return [
        *partitions,
        *(
            TopicPartition(name, p.partition)
            for name, topic in topics.items()
            for p in unwrap(topic).partitions
        ),
    ]


def in_words(word: str) -> list[TopicPartition]:
    """Parse `TOPIC:0,1`. Raises UsageError if it is invalid."""
    topic, _, numbers = word.partition(":")
    if not numbers or ":" in numbers:
        refuse(f"Invalid topic arg '{word}', expected topic name and partitions")
    for number in numbers.split(","):
        if not re.fullmatch(r"[0-9]{1,9}", number):
            refuse(f"Invalid partition '{number}' specified in topic arg '{word}''")
    return [TopicPartition(topic, int(number)) for number in numbers.split(",")]


def _plan_of(path: str, group: str | None) -> Mapping[str, Offsets]:
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            return plan_files.read(file, group)
    except OSError as error:
        raise Refused(f"Unable to read file {path}: {error.strerror}") from error
    except ValueError as error:
        raise Refused(f"{path}, {error}") from error


def _since_ms(options: Options) -> int | None:
    try:
        if options.to_datetime is not None:
            return times.to_epoch_ms(options.to_datetime)
        if options.by_duration is not None:
            return int(time.time() * 1000) - times.duration_ms(options.by_duration)
    except ValueError as error:
        raise Refused(str(error)) from None
    return None
