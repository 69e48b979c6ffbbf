"""An error in a JSON file names the file, the place and the remedy."""

from __future__ import annotations

import pytest

from kcli.command import json_file
from kcli.command.options import Refused


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "the file is empty"),
        (" \n", "the file is empty"),
        ('{"a": [1,\n  2,\n ]}', "line 2, column 4: a comma before ]; remove it"),
        ('{"a": 1 , }', "line 1, column 9: a comma before }; remove it"),
        ("[,]", "line 1, column 2: "),
        ('{\n // why\n "a": 1}', "line 2, column 2: a comment, which JSON does not have; remove"),
        ('{"a": 1, /* b */ "c": 2}', "line 1, column 10: a comment, "),
        ("# plan\n{}", "line 1, column 1: a comment, "),
        ("{'a': 1}", "line 1, column 2: a single quote; enclose names and strings in double"),
        ("{\"a\": 'b'}", "line 1, column 7: a single quote; "),
        ('{"a": 1', "line 1, column 8: Expecting ',' delimiter"),
        ("{} {}", "line 1, column 4: Extra data"),
        ("[" * 100_000, "a number is too long, or the nesting is too deep"),
        ("9" * 10_000, "a number is too long, or the nesting is too deep"),
    ],
    ids=range(14),
)
def test_a_fault_is_told_with_its_place_and_the_remedy(text, told, tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(Refused) as caught:
        json_file.read(str(path), "not JSON")
    assert str(caught.value).startswith(f"{path}: not JSON: {told}")


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path):
    path = tmp_path / "plan.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": [1]}')
    assert json_file.read(str(path)) == {"a": [1]}


def test_a_file_that_is_not_there_or_is_not_text_is_named(tmp_path):
    path = tmp_path / "plan.json"
    with pytest.raises(Refused, match=f"^Unable to read file {path}: No such file or directory$"):
        json_file.read(str(path))
    path.write_bytes(b"\xff")
    with pytest.raises(Refused, match=f"^{path}: The input string is not a valid JSON: 'utf-8' "):
        json_file.read(str(path))
