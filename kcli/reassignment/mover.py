"""Executes a planned reassignment: batch by batch, throttled, with a journal of completed batches.

    throttled   the rate for copying the batch's replicas is set
    begun       the controller has accepted the batch
    moving      until no partition of the batch moves any more, and each is where it should be;
                a broker that is down is waited for
    done        noted in the journal; the next batch begins

At the end, however it comes, throttles are removed. On Ctrl-C ongoing moves are cancelled first:
without a throttle they would use the whole network. A killed process leaves throttles behind, and
the journal, by which the next run removes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.filesize import decimal

from kcli.client.admin.descriptions import ConfigResource, Reassignment
from kcli.client.errors import ClientError
from kcli.command.command_runner import reason
from kcli.command.options import Refused
from kcli.command.output import complain, print_output, transient
from kcli.reassignment import throttles
from kcli.reassignment.journal import PlannedMove, ReassignmentJournal
from kcli.reassignment.sizes import bytes_of_replicas
from kserver.errors import ErrorCode, KafkaError, ProtocolError
from kserver.model import BrokerId, TopicPartition

if TYPE_CHECKING:
    from kcli.client.admin.admin import Admin

LOOK_AGAIN_S = 0.2
PROGRESS_S = 2.0
"""Seconds for the brokers to report what they have copied; it is only displayed."""
SETTLED_S = 10.0
"""Seconds for a change to reach every broker."""
AWAY_S = 60.0
"""Seconds for a broker to register again before its throttle is changed: as long as a request to
one that is registered and does not respond."""
GONE = (ErrorCode.unknown_topic_or_partition,)
UNREACHED = (ClientError, KafkaError, ProtocolError, OSError)


class Mover:
    def __init__(self, admin: Admin, journal: ReassignmentJournal) -> None:
        self._admin = admin
        self._journal = journal
        self._total = sum(m.bytes for batch in journal.batches[journal.done :] for m in batch)
        self._moved = 0
        """Bytes of the batches that are done."""

    async def run(self) -> None:
        """Execute all batches and remove the journal. Raises Refused if it cannot continue; the
        journal is kept then.
        """
        try:
            for number in range(self._journal.done, len(self._journal.batches)):
                batch = self._journal.batches[number]
                await self._throttle(batch)
                await self._begin(batch)
                await self._watch(batch)
                self._journal = self._journal.at(number + 1)
                self._moved += sum(move.bytes for move in batch)
            await self._clear_throttles()
        except asyncio.CancelledError:
            await self._give_up("")
            raise
        except UNREACHED as error:
            await self._give_up(reason(error))
            raise Refused(f"{reason(error)}: {self._continuation_text()}") from error
        except Refused as error:
            await self._give_up(str(error))
            raise Refused(f"{error}: {self._continuation_text()}") from error
        finally:
            transient("")
        self._journal.remove()

    def _continuation_text(self) -> str:
        return f"use --resume to continue, or --undo to revert (journal {self._journal.path})"

    async def _give_up(self, why: str) -> None:
        """Cancel ongoing moves and remove throttles; report if that fails."""
        try:
            done = self._journal.done
            under_way = [move for batch in self._journal.batches[done : done + 1] for move in batch]
            if under_way and (active := await self._active(under_way)):
                await self._admin.alter_reassignments(dict.fromkeys(active))
            await self._clear_throttles()
        except UNREACHED as error:
            complain(f"the moves could not be cancelled, and throttles remain: {reason(error)}")
        if not why:
            complain(f"Stopped: {self._continuation_text()}.")

    # A batch

    async def _begin(self, batch: Sequence[PlannedMove]) -> None:
        results = await self._admin.alter_reassignments({m.partition: m.target for m in batch})
        for partition, refused in results.items():
            if refused is not None and refused.code in GONE:
                complain(f"{partition} was deleted, and is skipped")
            elif refused is not None:
                raise Refused(f"{partition}: {reason(refused)}")

    async def _watch(self, batch: Sequence[PlannedMove]) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        while active := await self._active(batch):
            partitions = f"partitions that move: {len(active)}"
            try:
                async with asyncio.timeout(PROGRESS_S):
                    now = await self._copied_bytes(batch)
            except UNREACHED:
                transient(f"{partitions}; a broker does not respond")
                await asyncio.sleep(LOOK_AGAIN_S)
                continue
            rate = now / max(loop.time() - began, LOOK_AGAIN_S)
            rest_bytes = self._total - self._moved - now
            left_s = timedelta(seconds=round(rest_bytes / rate)) if rate else "?"
            transient(
                f"{decimal(self._moved + now)} of {decimal(self._total)}, "
                f"{decimal(round(rate))}/s, {left_s} left; {partitions}"
            )
            await asyncio.sleep(LOOK_AGAIN_S)
        await self._check(batch)
        print_output(f"Moved: {', '.join(str(move.partition) for move in batch)}.")

    async def _active(self, batch: Sequence[PlannedMove]) -> Mapping[TopicPartition, Reassignment]:
        return await self._admin.list_reassignments([move.partition for move in batch])

    async def _copied_bytes(self, batch: Sequence[PlannedMove]) -> int:
        """Return the bytes that have been copied."""
        new_replicas = {m.partition: set(m.target) - set(m.source) for m in batch}
        brokers = sorted(set[BrokerId]().union(*new_replicas.values()))
        sizes = await bytes_of_replicas(self._admin, brokers)
        return sum(
            size
            for (broker, p), size in sizes.items()
            if p in new_replicas and broker in new_replicas[p]
        )

    async def _check(self, batch: Sequence[PlannedMove]) -> None:
        """Raises Refused if partitions are not at their targets, moved or cancelled by another
        client. Brokers learn of the end after the controller, so they are given SETTLED_S to report
        it.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + SETTLED_S
        while others := await self._unexpected_moves(batch):
            if loop.time() > deadline:
                raise Refused(f"{others[0]} by another client")
            await asyncio.sleep(LOOK_AGAIN_S)

    async def _unexpected_moves(self, batch: Sequence[PlannedMove]) -> list[str]:
        described = await self._admin.describe_topics(sorted({m.partition.topic for m in batch}))
        others = []
        for move in batch:
            topic = described[move.partition.topic]
            if isinstance(topic, KafkaError):
                continue
            (there,) = (p for p in topic.partitions if p.partition == move.partition.partition)
            if tuple(there.replicas) != move.target:
                others.append(
                    f"{move.partition} was moved to {', '.join(map(str, there.replicas))}"
                )
        return others

    # Throttles

    async def _throttle(self, batch: Sequence[PlannedMove]) -> None:
        rate = self._journal.throttle
        if rate is None:
            return
        moving = {
            move.partition: throttles.PartitionMove(
                frozenset(move.source), frozenset(move.target) - frozenset(move.source)
            )
            for move in batch
        }
        await self._alter(throttles.topic_throttles(moving))
        await self._alter(throttles.broker_throttles(moving, rate))

    async def _clear_throttles(self) -> None:
        if self._journal.throttle is None:
            return
        moves = [move for batch in self._journal.batches for move in batch]
        brokers = {b for move in moves for b in (*move.source, *move.target)}
        await self._alter(throttles.without_broker_throttles(sorted(brokers)))
        topics = sorted({move.partition.topic for move in moves})
        await self._alter(throttles.without_topic_throttles(topics))

    async def _alter(self, changes: throttles.Changes) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + AWAY_S
        results: Mapping[ConfigResource, KafkaError | None]
        while changes:
            results = await self._admin.incremental_alter_configs(changes)
            away = []
            for resource, refused in results.items():
                if refused is None or refused.code in GONE:
                    continue
                if refused.code != ErrorCode.broker_not_available or loop.time() > deadline:
                    raise refused
                away.append(resource)
            changes = {resource: changes[resource] for resource in away}
            if changes:
                await asyncio.sleep(LOOK_AGAIN_S)
