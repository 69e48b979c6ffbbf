"""`k shapes`: the fields of the rows of -o, for people and for programs."""

from __future__ import annotations

import json

import click

from kcli.command.command import Manual, Options, command, command_named
from kcli.command.command_list import COMMANDS
from kcli.command.options import exclude, option, option_group, refuse
from kcli.command.output import print_output
from kcli.rows.listing import formatted, rows, shapes_of
from kcli.rows.shapes import ERROR, RowField, RowShape, schema
from kcli.spark.jobs import JOBS, job_named

MANUAL = Manual(
    examples=(
        ("k shapes", "Every shape with its fields."),
        ("k shapes k.topics.describe/1 -o table", "The fields of one, as rows."),
        (
            "k shapes --schema k.get-offsets/1 > offsets.schema.json",
            "The JSON Schema of what k get-offsets -o json prints.",
        ),
    ),
    see_also=("k-shapes(7)",),
)

FIELDS = RowShape(
    "k.shapes",
    1,
    "A field of a shape.",
    (
        RowField("shape", "string", "The shape, with its version."),
        RowField(
            "command", "string or null", "The command that prints this shape; null for errors."
        ),
        RowField("field", "string", "The field's name."),
        RowField("type", "string", "Type of the field."),
        RowField("doc", "string", "Description of the field."),
    ),
)


@command(manual=MANUAL)
@option_group(
    click.argument("shapes", nargs=-1, metavar="[SHAPE]..."),
    option("--schema", "Print the JSON Schema of the document that -o json prints."),
    formatted(FIELDS),
)
def shapes(options: Options) -> int:
    """Prints the fields of the rows of -o, for all shapes or the named ones."""
    all_shapes = declared()
    for id in options.shapes:
        if id not in all_shapes:
            refuse(f"unknown shape '{id}'; shapes are {', '.join(all_shapes)}")
    selection = {id: all_shapes[id] for id in options.shapes} or all_shapes
    if options.schema:
        exclude(options, "schema", ("output",))
        if len(selection) != 1:
            refuse("--schema needs one shape; name it")
        print_output(json.dumps(schema(*[shape for _, shape in selection.values()]), indent=2))
    elif options.output is not None:
        with rows(options, FIELDS) as out:
            for id, (name, shape) in selection.items():
                for field in shape.fields:
                    out.row(
                        shape=id,
                        command=name and f"k {name}",
                        field=field.name,
                        type=field.type,
                        doc=field.doc,
                    )
    else:
        print_output("\n\n".join(_text(name, shape) for name, shape in selection.values()))
    return 0


def declared() -> dict[str, tuple[str | None, RowShape]]:
    """Return every shape by its id, with the command that prints it."""
    by_id: dict[str, tuple[str | None, RowShape]] = {}
    commands = {name: command_named(name) for group in COMMANDS.values() for name in group}
    commands |= {f"spark-submit {name}": job_named(name) for name in JOBS}
    for name, subcommand in commands.items():
        for shape in shapes_of(subcommand):
            assert shape.id not in by_id, f"two shapes are called {shape.id}"
            by_id[shape.id] = name, shape
    return by_id | {ERROR.id: (None, ERROR)}


def _text(name: str | None, shape: RowShape) -> str:
    """Return a heading, and a line for each field."""
    names = max(len(field.name) for field in shape.fields)
    types = max(len(field.type) for field in shape.fields)
    lines = [f"{shape.id}, of {'k ' + name if name else 'every command'}: {shape.doc}"]
    lines += [f"  {f.name:{names}}  {f.type:{types}}  {f.doc}" for f in shape.fields]
    return "\n".join(lines)
