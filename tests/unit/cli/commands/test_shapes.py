"""`k shapes`: what rows hold, as declared."""

import json

import jsonschema
import pytest

from kcli.commands.shapes import declared
from kcli.main import main
from kcli.rows.shapes import schema


def shapes(capsys, *words):
    status = main(["shapes", *words])
    shown = capsys.readouterr()
    return status, shown.out, shown.err


def test_every_shape_is_shown_with_every_field(capsys):
    status, out, err = shapes(capsys)
    assert (status, err) == (0, "")
    blocks = out.split("\n\n")
    for block, (id, (_, shape)) in zip(blocks, declared().items(), strict=True):
        heading, *lines = block.splitlines()
        assert heading.startswith(f"{id}, of ")
        assert [line.split()[0] for line in lines] == list(shape.names)


def test_rows_of_fields_are_of_their_own_shape(capsys):
    status, out, _ = shapes(capsys, "-o", "json")
    document = json.loads(out)
    assert status == 0
    jsonschema.validate(document, schema(declared()["k.shapes/1"][1]))
    assert {row["shape"] for row in document["items"]} == declared().keys()


@pytest.mark.parametrize("id", declared())
def test_every_schema_is_one(id, capsys):
    status, out, _ = shapes(capsys, "--schema", id)
    assert status == 0
    jsonschema.Draft202012Validator.check_schema(json.loads(out))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["k.none/1"], "unknown shape 'k.none/1'; shapes are k.topics.list/1, "),
        (["--schema"], "--schema needs one shape; name it"),
        (["--schema", "k.error/1", "-o", "csv"], 'Option "[schema]" can\'t be used with'),
    ],
)
def test_what_makes_no_sense_is_refused(words, why, capsys):
    status, out, err = shapes(capsys, *words)
    assert (status, out) == (2, "")
    assert why in err
