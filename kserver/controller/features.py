"""Features: levels of behaviour that brokers of different releases agree on (KIP-584).

    feature               levels   from that level on
    group.version         0 - 1    1: groups of the consumer protocol (KIP-848)
    transaction.version   0 - 2    1: tagged fields in __transaction_state
                                   2: every end of a transaction raises the epoch (KIP-890)

A new cluster finalizes the highest level that all its brokers support.  If a broker registers that
does not support a level, such as Apache Kafka 3's, the feature is lowered to that broker's level.
Only a request raises it again, as clients take a level for what every broker supports.  Level 0
means that a feature is not finalized.

Pure: a request and the present levels go in, the new levels come out.  Rules and error texts are
those of Kafka 4's FeatureControlManager.  Lowering a level loses no data here, so both types of
downgrade are allowed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from kserver.errors import ErrorCode, KafkaError
from kserver.metadata import GROUP_VERSION, TRANSACTION_VERSION

SUPPORTED: Mapping[str, range] = {GROUP_VERSION: range(2), TRANSACTION_VERSION: range(3)}
"""Levels that this broker supports, by feature."""

NEWEST = {name: levels.stop - 1 for name, levels in SUPPORTED.items()}


def known_to_all(
    levels: Mapping[str, int], brokers: Collection[Mapping[str, int]]
) -> dict[str, int]:
    """Return the levels, lowered where a broker supports less."""
    least = {n: min([level, *(b.get(n, 0) for b in brokers)]) for n, level in levels.items()}
    return {name: level for name, level in least.items() if level > 0}


class UpgradeType(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class Update(NamedTuple):
    """Requested level of one feature; `upgrade_type` is the number of an UpgradeType."""

    name: str
    level: int
    upgrade_type: int = UpgradeType.UPGRADE


def plan(
    updates: Sequence[Update],
    levels: Mapping[str, int],
    broker: int,
    brokers: Mapping[int, Mapping[str, int]],
) -> tuple[dict[str, int], list[KafkaError | None]]:
    """Return the new levels, and an error or None for each update: INVALID_UPDATE_VERSION.
    `brokers` are the live ones, with the levels that each supports.

    One invalid update leaves all levels unchanged.
    """
    errors = [_refusal(update, updates, levels, broker, brokers) for update in updates]
    if any(errors):
        return dict(levels), errors
    changed = dict(levels) | {update.name: update.level for update in updates}
    return {name: level for name, level in sorted(changed.items()) if level > 0}, errors


def _refusal(
    update: Update,
    updates: Sequence[Update],
    levels: Mapping[str, int],
    broker: int,
    brokers: Mapping[int, Mapping[str, int]],
) -> KafkaError | None:
    reason = _reason(update, updates, levels.get(update.name, 0), broker)
    if reason is None:
        reason = _ignorance(update, brokers)
    if reason is None:
        return None
    text = f"Invalid update version {update.level} for feature {update.name}. {reason}"
    return KafkaError(ErrorCode.invalid_update_version, text)


def _reason(update: Update, updates: Sequence[Update], now: int, broker: int) -> str | None:
    if sum(other.name == update.name for other in updates) > 1:
        return "It is named twice."
    if update.upgrade_type not in list(UpgradeType):
        return "The controller does not support the given upgrade type."
    if update.level < 0:
        return "A feature version cannot be less than 0."
    supported = SUPPORTED.get(update.name)
    if supported is None:
        return f"Local controller {broker} does not support this feature."
    if update.level not in supported:
        first, last = supported.start, supported.stop - 1
        return f"Local controller {broker} only supports versions {first}-{last}"
    if update.level < now and update.upgrade_type == UpgradeType.UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to"
            " either safe or unsafe downgrade."
        )
    if update.level > now and update.upgrade_type != UpgradeType.UPGRADE:
        return "Can't downgrade to a newer version."
    return None


def _ignorance(update: Update, brokers: Mapping[int, Mapping[str, int]]) -> str | None:
    for id_, supported in sorted(brokers.items()):
        if update.level > 0 and update.name not in supported:
            return f"Broker {id_} does not support this feature."
        if update.level > supported.get(update.name, 0):
            return f"Broker {id_} only supports versions 0-{supported[update.name]}"
    return None
