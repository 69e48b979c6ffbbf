"""`k scripts`: scripts with the names of Kafka's that run `k`, for programs that call those."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from kcli.command.command import Manual, Options, command, command_named
from kcli.command.options import Refused, dry_run, option, option_group, refuse
from kcli.command.output import print_output, would
from kcli.command.statuses import DONE

INSTALL = "install"
MARK = "# Written by k scripts install."

MANUAL = Manual(
    examples=(
        (
            "k scripts install /opt/kafka/bin",
            "Programs that call /opt/kafka/bin/kafka-topics.sh run k.",
        ),
        ("k scripts install ~/bin --k /opt/k/bin/k", "For a cron job, whose PATH has no k."),
    ),
    differences=("Kafka has no such command: its archive contains the scripts.",),
    see_also=("k-completion",),
)


@command(manual=MANUAL)
@click.argument("words", nargs=-1, metavar=f"{INSTALL} DIR")
@option_group(
    option(
        "--k", "Path of the k that the scripts run.  Default: k on the PATH at that time.", "PATH"
    ),
    dry_run,
)
def scripts(options: Options) -> int:
    """Writes a script for each command that replaces one of Kafka's: kafka-topics.sh runs k topics
    with the same arguments, and so on.

    Scripts from an earlier run are overwritten.  If another file has the name of a script, the
    command refuses, and writes nothing.
    """
    if len(options.words) != 2 or options.words[0] != INSTALL:
        refuse(f"name a directory: k scripts {INSTALL} DIR")
    return _install(Path(options.words[1]), options)


def _install(directory: Path, options: Options) -> int:
    k = options.k or "k"
    k = os.path.abspath(k) if os.sep in k else k
    texts = {directory / name: text for name, text in scripts_of(k).items()}
    foreign = [path.name for path in texts if not _may_be_written(path)]
    if foreign:
        raise Refused(
            f"{directory} contains files that k did not write: {', '.join(foreign)}; remove them, "
            "or name another directory"
        )
    if options.dry_run:
        would(*(f"write {path}" for path in texts))
        return DONE
    directory.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        # Replaced atomically: another process may be about to run it.
        written = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            written.write_text(text)
            written.chmod(0o755)
            written.replace(path)
        except OSError:
            written.unlink(missing_ok=True)
            raise
        print_output(str(path))
    return DONE


def scripts_of(k: str) -> dict[str, str]:
    """Return the scripts by Kafka's name; `k` is the command that they run."""
    from kcli.command.command_list import COMMANDS

    commands = [name for group in COMMANDS.values() for name in group]
    kafkas = {command_named(name).manual.kafka: name for name in commands}
    return {
        script: f'#!/bin/sh\n{MARK}\nexec {shlex.quote(k)} {name} "$@"\n'
        for script, name in kafkas.items()
        if script
    }


def _may_be_written(path: Path) -> bool:
    """Whether no file exists there, or one that `k scripts` wrote."""
    if not os.path.lexists(path):
        return True
    if path.is_symlink() or not path.is_file():
        return False
    return MARK in path.read_text(errors="replace").splitlines()[:2]
