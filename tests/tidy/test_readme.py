"""README's table of commands is made from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kcli.command.command import command_named
from kcli.command.command_list import COMMANDS

README = (Path(__file__).parents[2] / "README.md").read_text()
REFUSED = "refused: "


def rows() -> Iterator[str]:
    """A row for each group: commands that take the place of a script, with the script where its
    name is not `kafka-NAME.sh`."""
    for group, commands in COMMANDS.items():
        cells = []
        for name, summary in commands.items():
            script = command_named(name).manual.kafka
            if script and not summary.startswith(REFUSED):
                is_regular = script == f"kafka-{name}.sh"
                cells.append(f"`{name}`" if is_regular else f"`{name}` (`{script}`)")
        if cells:
            yield f"| {group} | {', '.join(cells)} |"


def test_the_table_of_scripts_has_every_command_that_takes_the_place_of_one() -> None:
    expected = "\n".join(rows())
    assert expected in README, f"put these rows into README.md:\n{expected}"
