"""The state of a planned reassignment, in a file that outlives the process.

    written     before anything is changed
    at(n)       the first n batches are done
    removed     all is done, or reverted, and nothing is throttled any more

While the file exists, moves may be under way and throttles may be set.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Self

from kcli.command.options import Refused
from kcli.reassignment.placement import Replicas
from kserver.model import TopicPartition

VERSION = 1


class PlannedMove(NamedTuple):
    partition: TopicPartition
    source: Replicas
    """Its replicas before the move."""
    target: Replicas
    size: int
    """Bytes of one replica."""

    @property
    def bytes(self) -> int:
        return self.size * len(set(self.target) - set(self.source))

    @property
    def back(self) -> PlannedMove:
        return self._replace(source=self.target, target=self.source)


@dataclass(frozen=True)
class ReassignmentJournal:
    path: Path
    cluster_id: str
    throttle: int | None
    """Bytes per second."""
    batches: Sequence[Sequence[PlannedMove]]
    done: int = 0

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a journal. Raises Refused if it does not exist or is invalid."""
        try:
            document = json.loads(path.read_text())
            if document["version"] != VERSION:
                raise ValueError(f"its version is {document['version']}")
            batches = [
                [
                    PlannedMove(
                        TopicPartition(move["topic"], move["partition"]),
                        tuple(move["from"]),
                        tuple(move["to"]),
                        move["bytes"],
                    )
                    for move in batch
                ]
                for batch in document["batches"]
            ]
            return cls(
                path, document["cluster_id"], document["throttle"], batches, document["done"]
            )
        except FileNotFoundError:
            raise Refused(
                f"{path}: the journal does not exist, so no planned reassignment was interrupted"
            ) from None
        except OSError as error:
            raise Refused(f"{path}: {error.strerror}") from error
        except (ValueError, TypeError, KeyError) as error:
            raise Refused(f"{path} is not a journal of a reassignment: {error}") from error

    def write(self) -> None:
        """Write the file atomically. Raises Refused if it cannot be written."""
        document = {
            "version": VERSION,
            "cluster_id": self.cluster_id,
            "throttle": self.throttle,
            "done": self.done,
            "batches": [
                [
                    {
                        "topic": move.partition.topic,
                        "partition": move.partition.partition,
                        "from": move.source,
                        "to": move.target,
                        "bytes": move.size,
                    }
                    for move in batch
                ]
                for batch in self.batches
            ],
        }
        new = self.path.with_name(self.path.name + ".new")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(new, "w") as file:
                json.dump(document, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, self.path)
        except OSError as error:
            raise Refused(f"{self.path}: {error.strerror}; name another with --journal") from error

    def at(self, done: int) -> ReassignmentJournal:
        """Write and return the journal with this number of batches done."""
        after = replace(self, done=done)
        after.write()
        return after

    def undoing(self) -> ReassignmentJournal:
        """Write and return the journal that reverts all batches that were begun, the last first; it
        replaces this one.
        """
        begun = self.batches[: self.done + 1]
        back = replace(
            self, batches=[[move.back for move in batch] for batch in reversed(begun)], done=0
        )
        back.write()
        return back

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def default_path(cluster_id: str) -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state, "k", f"reassignment-{cluster_id}.json")


def batches(moves: Sequence[PlannedMove], size: int) -> list[list[PlannedMove]]:
    """Divide moves into batches, the smallest moves first: errors show before much has moved."""
    ordered = sorted(moves, key=lambda move: (move.bytes, move.partition))
    return [ordered[first : first + size] for first in range(0, len(ordered), size)]
