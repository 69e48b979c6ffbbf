"""ConsumerMetadata: the topics that a consumer subscribes to, and their current metadata.

Topics are given by name, or by a pattern that is matched against all topics. Metadata is requested
every metadata.max.age.ms, and sooner while a named topic does not exist; a group's leader also
watches the topics of other members.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from uuid import UUID

from kcli.client.cluster import Cluster
from kcli.client.config import ConsumerConfig
from kcli.client.topic_metadata import TopicMetadata
from kserver.errors import ErrorCode, KafkaError, ProtocolError

_logger = logging.getLogger(__name__)

_REFUSALS = {
    ErrorCode.invalid_topic_exception: "Invalid topics: [{}]",
    ErrorCode.topic_authorization_failed: "Not authorized to access topics: [{}]",
}


@dataclass(frozen=True, slots=True)
class SubscriptionPattern:
    """A regular expression in RE2 syntax, matched against topic names by the coordinator (KIP-848).
    A str or `re.Pattern` in its place is matched by the client.
    """

    regex: str


class ConsumerMetadata:
    """The subscribed topics and their partitions, as the cluster last described them.  `wake` is
    called when they may have changed.
    """

    def __init__(
        self, config: ConsumerConfig, cluster: Cluster, wake: Callable[[], object]
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._wake = wake
        self.regex = ""
        """The regular expression for the coordinator to match, or ""."""
        self._names: tuple[str, ...] = ()
        self._pattern: re.Pattern[str] | None = None
        self._others: frozenset[str] = frozenset()
        self._errors: dict[str, KafkaError] = {}
        self._look = asyncio.Event()
        self._is_known = False
        self._matched_topics: dict[str, TopicMetadata] | None = None
        self._matches: tuple[str, ...] = ()

    def subscribe(
        self, names: Iterable[str], pattern: re.Pattern[str] | SubscriptionPattern | None
    ) -> None:
        self.regex = pattern.regex if isinstance(pattern, SubscriptionPattern) else ""
        self._names = tuple(sorted(set(names)))
        self._pattern = pattern if isinstance(pattern, re.Pattern) else None
        self._matched_topics = None
        self._others = frozenset()
        self._errors = {}
        self._is_known = self._pattern is None
        self._look.set()

    @property
    def is_known(self) -> bool:
        """Whether the topics are known: for a pattern, once all topics were listed."""
        return self._is_known

    def topics(self) -> tuple[str, ...]:
        """Return the subscribed topics. Raises KafkaError if a named one is unauthorized or
        invalid.
        """
        if self._pattern is None:
            for name in self._names:
                if name in self._errors:
                    raise self._errors[name]
            return self._names
        topics = self._cluster.topics
        if topics is not self._matched_topics:
            self._matched_topics = topics
            hide_internal = self._config.exclude_internal_topics
            matches = (
                name
                for name, topic in topics.items()
                if self._pattern.fullmatch(name) and not (hide_internal and topic.is_internal)
            )
            self._matches = tuple(sorted(matches))
        return self._matches

    def counts(self, names: Iterable[str]) -> dict[str, int]:
        """Return the number of partitions of each topic that is known to exist."""
        topics = self._cluster.topics
        return {name: len(topics[name].partitions) for name in names if name in topics}

    def names_by_id(self) -> dict[UUID, str]:
        return {topic.id: name for name, topic in self._cluster.topics.items() if topic.id}

    def look(self) -> None:
        """Request metadata now."""
        self._look.set()

    async def watch(self, names: Collection[str]) -> None:
        """Watch these topics too; return once those that exist are known."""
        self._others = frozenset(names)
        if any(name not in self._cluster.topics for name in self._all()):
            await self._refresh()

    def unwatch(self) -> None:
        self._others = frozenset()

    async def run(self) -> None:
        tries = 0
        while True:
            self._look.clear()
            try:
                if self._asks_for_all or self._names or self._others:
                    await self._refresh()
                tries = tries + 1 if self._is_incomplete() else 0
            except (OSError, KafkaError, ProtocolError) as error:
                _logger.debug("no metadata: %s", error)
                tries += 1
            pause = self._cluster.backoff(tries) if tries else self._max_age
            try:
                async with asyncio.timeout(pause):
                    await self._look.wait()
            except TimeoutError:
                pass

    @property
    def _max_age(self) -> float:
        return self._config.metadata_max_age_ms / 1000

    def _all(self) -> set[str]:
        return {*self._names, *self._others}

    @property
    def _asks_for_all(self) -> bool:
        return self._pattern is not None or bool(self.regex)

    def _is_incomplete(self) -> bool:
        return any(name not in self._cluster.topics for name in self._names)

    async def _refresh(self) -> None:
        names = None if self._asks_for_all else sorted(self._all())
        create = self._config.allow_auto_create_topics
        refusals = await self._cluster.refresh(names, create=create and names is not None)
        self._errors = {
            name: KafkaError(error.code, _REFUSALS.get(error.code, "topic {}").format(name))
            for name, error in refusals.items()
            if not error.code.retriable
        }
        self._is_known = True
        self._wake()
