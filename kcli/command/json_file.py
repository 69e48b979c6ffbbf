"""Reads the JSON files that commands are given. An error has the file, the place and the remedy.

document = read("plan.json")

Refused: plan.json: The input string is not a valid JSON: line 1, column 71: a comma before ];
    remove it
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from kcli.command.options import Refused

VERSION = 1
"""The version of the files that Kafka's tools read."""

_BLANKS = re.compile(r"[ \t\r\n]*")


def read(path: str, kind: str = "The input string is not a valid JSON") -> Any:
    """Return the document in the file.

    Raises Refused if it cannot be read, or is not JSON; `kind` is the text of Kafka's tool for
    that.
    """
    try:
        # A file may begin with a byte order mark.
        with open(path, encoding="utf-8-sig") as file:
            text = file.read()
    except OSError as error:
        raise Refused(f"Unable to read file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Refused(f"{path}: {kind}: {error}") from error
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise Refused(f"{path}: {kind}: {_fault(text, error)}") from error
    except (ValueError, RecursionError) as error:
        raise Refused(
            f"{path}: {kind}: a number is too long, or the nesting is too deep"
        ) from error


def check_version(document: Mapping[str, Any], path: str) -> None:
    """Raises Refused unless the file's version, if it has one, is supported."""
    version = document.get("version", VERSION)
    if type(version) is not int:
        raise Refused(
            f'{path}: "version" must be the integer {VERSION}, but is {json.dumps(version)[:80]}'
        )
    if version != VERSION:
        raise Refused(f"Not supported version field value {version}")


def _fault(text: str, error: json.JSONDecodeError) -> str:
    """Return the line and column of the first mistake, and the remedy if it is a common one."""
    if not text.strip():
        return "the file is empty"
    at = _after_blanks(text, error.pos)
    what = error.msg
    # Python points after the comma, and from 3.13 on at it.
    comma = at if text.startswith(",", at) else len(text[:at].rstrip()) - 1
    closing = _after_blanks(text, comma + 1)
    if text[comma : comma + 1] == "," and text[closing : closing + 1] in ("]", "}"):
        at, what = comma, f"a comma before {text[closing]}; remove it"
    elif text.startswith(("//", "/*", "#"), at):
        what = "a comment, which JSON does not have; remove it"
    elif text.startswith("'", at):
        what = "a single quote; enclose names and strings in double quotes"
    before = text[:at]
    column = at - (before.rfind("\n") + 1) + 1
    return f"line {before.count(chr(10)) + 1}, column {column}: {what}"


def _after_blanks(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    assert match is not None
    return match.end()
