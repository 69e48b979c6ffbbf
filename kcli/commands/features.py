"""`k features`: the cluster's features, and their levels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from kcli import release_features
from kcli.command.command import OLDER, Manual, Options, command
from kcli.command.command_runner import CLUSTER, admin_config, confirm, reason, run
from kcli.command.options import (
    CONNECTION,
    INT,
    Refused,
    cluster,
    exclude,
    is_set,
    option,
    option_group,
    refuse,
    yes,
)
from kcli.command.output import print_output
from kcli.command.statuses import DONE
from kcli.release_features import METADATA_VERSION
from kcli.rows.listing import Rows, formatted, rows_if_asked
from kcli.rows.shapes import RowField, RowShape

if TYPE_CHECKING:
    from kcli.client.admin.admin import Admin
    from kcli.client.admin.features import FeatureUpdate, UpgradeType
    from kserver.errors import KafkaError

MANUAL = Manual(
    kafka="kafka-features.sh",
    examples=(
        (
            "k features describe",
            "Each feature, the levels that the broker supports, and its current level.",
        ),
        (
            "k features upgrade --feature transaction.version=2 --dry-run",
            "Check whether transactions could use the newer protocol.",
        ),
        ("k features disable --feature share.version", "Set a feature to level 0."),
        ("k features version-mapping --release-version 4.0", "The levels of a release."),
    ),
    differences=(
        "Options may stand before and after the name of the action, and names of options are not "
        "abbreviated.",
        "Without --bootstrap-server and --bootstrap-controller, the usual default is used; "
        "version-mapping and feature-dependencies connect to no broker, and need neither.",
        "With --unsafe, the command asks at a terminal before it changes anything, unless --yes "
        "is given.",
    ),
    see_also=("k-transactions", "k-broker-api-versions"),
)

_FEATURE = RowField("feature", "string", "Its name.")
DESCRIBE = RowShape(
    "k.features.describe",
    1,
    "A feature that the broker supports.",
    (
        _FEATURE,
        RowField("supported_min", "integer", "The lowest level that it supports."),
        RowField("supported_max", "integer", "The highest."),
        RowField("finalized", "integer", "The level of the cluster; 0 if the feature is off."),
        RowField("epoch", "integer or null", "The epoch of the levels: how often they changed."),
    ),
)
MAPPING = RowShape(
    "k.features.version-mapping",
    1,
    "A feature of a release.",
    (_FEATURE, RowField("level", "integer", "The default level of the release.")),
)
DEPENDENCIES = RowShape(
    "k.features.feature-dependencies",
    1,
    "A feature at a level.",
    (
        _FEATURE,
        RowField("level", "integer", "The level."),
        RowField("needs", "list of string", "Its dependencies, as feature=level."),
    ),
)

UPDATES = ("upgrade", "downgrade", "disable")
ACTIONS = {
    "describe": ("node-id",),
    "upgrade": ("feature", "release-version", "metadata", "dry-run"),
    "downgrade": ("feature", "release-version", "metadata", "dry-run", "unsafe", "yes"),
    "disable": ("feature", "dry-run", "unsafe", "yes"),
    "version-mapping": ("release-version",),
    "feature-dependencies": ("feature",),
}
"""The options of each action, in addition to those of all."""
LEVELS = range(-(1 << 15), 1 << 15)


@command(manual=MANUAL)
@click.argument("action", nargs=-1, metavar="|".join(ACTIONS))
@option_group(
    option(
        "--feature",
        "The feature and its level; for disable, only the feature.  Repeatable.",
        "FEATURE=LEVEL",
        multiple=True,
    ),
    option(
        "--release-version",
        "All features, at the default levels of this release: 4.3, 3.9-IV0.",
        "RELEASE",
    ),
    option("--node-id", "describe: the broker to ask.  Default: any.", "ID", type=INT),
    option("--unsafe", "downgrade, disable: also if metadata may be lost for good."),
    option("--dry-run", "Let the cluster validate the update, and change nothing."),
    yes,
    formatted(DESCRIBE, MAPPING, DEPENDENCIES),
    cluster,
    option(
        "--bootstrap-controller",
        "KRaft controllers to connect to instead.",
        "HOST:PORT,...",
        section=CONNECTION,
    ),
    option("--metadata", "The metadata.version, by name.", "RELEASE", section=OLDER),
)
def features(options: Options) -> int:
    """Describes the features of a cluster, and changes their levels.

    A feature can be raised to a level that all brokers support; from then on brokers and clients
    may use it.  version-mapping prints the levels of a release of Apache Kafka, and
    feature-dependencies the other features that a level needs.
    """
    action = _action(options)
    if options.bootstrap_controller is not None:
        options.bootstrap_server = options.bootstrap_controller
    if action in UPDATES:
        return run(_update(options, action), options.timeout, CLUSTER)
    shape = {"describe": DESCRIBE, "version-mapping": MAPPING}.get(action, DEPENDENCIES)
    with rows_if_asked(options, shape) as out:
        if action == "describe":
            return run(_describe(options, out), options.timeout, CLUSTER)
        if action == "version-mapping":
            _print_mapping(options.release_version, out)
        else:
            _print_dependencies(options.feature, out)
    return DONE


def _action(options: Options) -> str:
    if len(options.action) != 1 or options.action[0] not in ACTIONS:
        refuse(f"name exactly one action: {', '.join(ACTIONS)}")
    action: str = options.action[0]
    every = {name for names in ACTIONS.values() for name in names}
    for name in sorted(every.difference(ACTIONS[action])):
        if is_set(options, name):
            refuse(f"--{name} is not allowed with {action}")
    exclude(options, "bootstrap-controller", ("bootstrap-server",))
    if action in UPDATES and options.output is not None:
        refuse(f"--output is not allowed with {action}")
    if action == "feature-dependencies" and not options.feature:
        refuse("argument --feature is required")
    return action


async def _describe(options: Options, out: Rows | None) -> int:
    async with _admin(options) as admin:
        metadata = await admin.features.describe(options.node_id)
    for name, (least, most) in sorted(metadata.supported.items()):
        level = metadata.finalized.get(name, 0)
        if out is not None:
            out.row(
                feature=name,
                supported_min=least,
                supported_max=most,
                finalized=level,
                epoch=metadata.epoch,
            )
            continue
        lowest, highest, now = (release_features.shown(name, n) for n in (least, most, level))
        print_output(
            f"Feature: {name:<40}  SupportedMinVersion: {lowest:<15}  "
            f"SupportedMaxVersion: {highest:<15}  FinalizedVersionLevel: {now:<15}  "
            f"Epoch: {'-' if metadata.epoch is None else metadata.epoch}"
        )
    return DONE


# Updates


async def _update(options: Options, action: str) -> int:
    from kcli.client.admin.features import UpgradeType

    if action == "upgrade":
        kind = UpgradeType.UPGRADE
    else:
        kind = UpgradeType.UNSAFE_DOWNGRADE if options.unsafe else UpgradeType.SAFE_DOWNGRADE
    updates = _updates(options, action, kind)
    if not updates:
        raise Refused(f"You must specify at least one feature to {action}")
    async with _admin(options) as admin:
        if options.unsafe and not options.dry_run:
            names = ", ".join(sorted(updates))
            await confirm(options, f"{action} {names}, which may lose metadata for good")
        results = await admin.features.update(updates, validate_only=options.dry_run)
    failed = 0
    for name, error in sorted(results.items()):
        print_output(_outcome_text(action, name, updates[name].level, error, options.dry_run))
        failed += error is not None
    if failed:
        raise Refused(f"{failed} out of {len(updates)} operation(s) failed.")
    return DONE


def _outcome_text(
    action: str, name: str, level: int, error: KafkaError | None, dry_run: bool
) -> str:
    to = "" if action == "disable" else f" to {level}"
    if error is not None:
        no = "Can not" if dry_run else "Could not"
        return f"{no} {action} {name}{to}. {reason(error)}"
    done = "disabled" if action == "disable" else f"{action}d"
    return f"{name} {'can be' if dry_run else 'was'} {done}{to}."


def _updates(options: Options, action: str, kind: UpgradeType) -> dict[str, FeatureUpdate]:
    from kcli.client.admin.features import FeatureUpdate

    if action == "disable":
        _are_different(options.feature)
        return {name: FeatureUpdate(0, kind) for name in options.feature}
    if options.release_version is not None:
        if options.metadata is not None or options.feature:
            raise Refused("Can not specify `release-version` with other feature flags.")
        levels = _levels(options.release_version)
        # A feature is never upgraded to level 0.
        return {
            name: FeatureUpdate(level, kind)
            for name, level in levels.items()
            if level or action != "upgrade"
        }
    updates: dict[str, FeatureUpdate] = {}
    if options.metadata is not None:
        print_output(" `metadata` flag is deprecated and may be removed in a future release.")
        updates[METADATA_VERSION] = FeatureUpdate(_metadata_level(options.metadata), kind)
    pairs = [_name_and_level(text) for text in options.feature]
    _are_different([*updates, *(name for name, _ in pairs)])
    return updates | {name: FeatureUpdate(level, kind) for name, level in pairs}


def _are_different(names: list[str]) -> None:
    for at, name in enumerate(names):
        if name in names[:at]:
            raise Refused(f"Feature {name} was specified more than once.")


def _name_and_level(text: str) -> tuple[str, int]:
    name, equals, word = text.partition("=")
    if not equals:
        raise Refused(f"Can't parse feature=level string {text}: equals sign not found.")
    word = word.strip()
    try:
        level = int(word) if word.isascii() and "_" not in word else None
    except ValueError:
        level = None
    if level is None or level not in LEVELS:
        raise Refused(
            f"Can't parse feature=level string {text}: unable to parse {word} as a short."
        )
    return name.strip(), level


# Releases


def _metadata_level(release: str) -> int:
    level = release_features.metadata_level(release)
    if level is None:
        releases = ", ".join(release_features.RELEASES)
        raise Refused(
            f"Unknown metadata.version '{release}'. Supported metadata.version are: {releases}"
        )
    return level


def _levels(release: str) -> Mapping[str, int]:
    level = _metadata_level(release)
    return {METADATA_VERSION: level} | {
        name: release_features.first_level(name, level) for name in release_features.SINCE
    }


def _print_mapping(release: str | None, out: Rows | None) -> None:
    release = release_features.LATEST if release is None else release
    for name, level in _levels(release).items():
        if out is not None:
            out.row(feature=name, level=level)
        else:
            print_output(f"{name}={level}" + (f" ({release})" if name == METADATA_VERSION else ""))


def _print_dependencies(texts: list[str], out: Rows | None) -> None:
    for text in texts:
        name, level = _name_and_level(text)
        needs = _needs(name, level)
        if out is not None:
            out.row(feature=name, level=level, needs=[f"{n}={at}" for n, at in needs.items()])
        elif not needs:
            print_output(f"{_level_text(name, level)} has no dependencies.")
        else:
            print_output(f"{_level_text(name, level)} requires:")
            for needed, at in needs.items():
                print_output(f"    {_level_text(needed, at)}")


def _needs(name: str, level: int) -> Mapping[str, int]:
    """Return the dependencies of a level, which brokers do not report. Raises Refused if it is
    unknown here.
    """
    if name == METADATA_VERSION:
        if level not in release_features.NAMES:
            raise Refused(f"Unknown metadata.version {level}")
        return {}
    if name not in release_features.SINCE:
        raise Refused(f"Unknown feature: {name}")
    if not 0 <= level < len(release_features.SINCE[name]):
        raise Refused(f"No feature:{name} with feature level {level}")
    return release_features.NEEDS.get((name, level), {})


def _level_text(name: str, level: int) -> str:
    if name == METADATA_VERSION:
        return f"{name}={level} ({release_features.NAMES[level]})"
    return f"{name}={level}"


def _admin(options: Options) -> Admin:
    from kcli.client.admin.admin import Admin

    controllers = options.bootstrap_controller
    bootstrap = {} if controllers is None else {"bootstrap_controllers": controllers}
    return Admin(admin_config(options, **bootstrap))
