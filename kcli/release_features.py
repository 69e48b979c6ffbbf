"""Features of Kafka's releases: the levels of metadata.version by name, the level of each feature
in a new cluster of a release, and the dependencies of levels.

Pure: tables, as of Kafka 4.3.1, from MetadataVersion and Feature.
"""

from __future__ import annotations

METADATA_VERSION = "metadata.version"

RELEASES = {
    "3.3-IV3": 7,
    "3.4-IV0": 8,
    "3.5-IV0": 9,
    "3.5-IV1": 10,
    "3.5-IV2": 11,
    "3.6-IV0": 12,
    "3.6-IV1": 13,
    "3.6-IV2": 14,
    "3.7-IV0": 15,
    "3.7-IV1": 16,
    "3.7-IV2": 17,
    "3.7-IV3": 18,
    "3.7-IV4": 19,
    "3.8-IV0": 20,
    "3.9-IV0": 21,
    "4.0-IV0": 22,
    "4.0-IV1": 23,
    "4.0-IV2": 24,
    "4.0-IV3": 25,
    "4.1-IV0": 26,
    "4.1-IV1": 27,
    "4.2-IV0": 28,
    "4.2-IV1": 29,
    "4.3-IV0": 30,
    "4.4-IV0": 31,
}
"""Each release's metadata.version; the last one is not released."""
LATEST = "4.3-IV0"
OLDEST = "3.3-IV3"
NAMES = {level: name for name, level in RELEASES.items()}

SINCE: dict[str, tuple[int, ...]] = {
    "kraft.version": (7, 21),
    "transaction.version": (7, 24, 24),
    "group.version": (7, 22),
    "eligible.leader.replicas.version": (7, 26),
    "share.version": (7, 28),
    "streams.version": (7, 29),
}
"""At index l the first metadata.version at which new clusters have the feature at level l."""

NEEDS = {("eligible.leader.replicas.version", 1): {METADATA_VERSION: 23}}
"""Dependencies of feature levels; others have none."""


def metadata_level(release: str) -> int | None:
    """Return the level of 4.0-IV3, or of 4.0 and 4.0.1, which stand for the last of 4.0; None if it
    is not a release.
    """
    if release in RELEASES:
        return RELEASES[release]
    short = ".".join(release.split(".")[:2])
    of_short = (RELEASES[name] for name in RELEASES if name.startswith(f"{short}-IV"))
    return max((level for level in of_short if level <= RELEASES[LATEST]), default=None)


def first_level(feature: str, metadata_version: int) -> int:
    """Return the level of new clusters at that metadata.version."""
    return max(
        level
        for level, since in enumerate(SINCE[feature])
        if since <= metadata_version or not level
    )


def shown(feature: str, level: int) -> str:
    """Return a level as in Kafka's tool: that of metadata.version by its name."""
    if feature != METADATA_VERSION:
        return str(level)
    return NAMES.get(level, f"UNKNOWN {level}")
