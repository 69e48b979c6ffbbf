"""Word lists of the private idiom that plain English replaces: none in what a user reads, and in
docstrings and comments never more than there are.

    python tests/tidy/test_plain_english.py [USER | CODE]      lists every place, with its rule

A user reads the strings of both packages (messages, log lines, `--help`), the manual pages, README
and its kin.  A count here may be lowered, and never raised.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(p for room in ("kserver", "kcli") for p in (ROOT / room).rglob("*.py"))
PAGES = sorted(
    path
    for pattern in (
        "*.md",
        "kserver/*.md",
        "man/*",
        "examples/**/*.md",
        "tests/bench/*.md",
        "tests/soak/*.md",
    )
    for path in ROOT.glob(pattern)
    if path.is_file()
)
RULES = {
    name: re.compile(pattern, re.IGNORECASE)
    for name, pattern in {
        "anew: again, from scratch": r"\banew\b",
        "he, nobody, whoever: it, the client": r"\b(he|him|his|himself|nobody|whoever)\b",
        "is no X: is not an X": r"(?<!there )\b(is|are|was|were) no (?!longer\b|more\b)(?=\w)",
        "so many: N, this many": r"\bso (many|much|long)\b(?! as)",
        "told, tells: sent, reported, received": r"\b(told|tells)\b",
        "passed over: ignored, skipped": r"\bpass(es|ed|ing)? (\w+ )?over\b",
        "but for: except": r"\b(but for|save for)\b",
        "beside: next to, besides": r"\bbeside\b",
        "which there is not: which does not exist": r"\bwhich there (is|are) not\b",
    }.items()
}
OPENINGS = "What, Who, Whoever, Those: an imperative, or a noun"
RULES_OF_DOCSTRINGS = {OPENINGS: re.compile(r"\A\s*(What|Who|Whoever|Those)\b")}
MOST_IN_CODE = {
    OPENINGS: 3,
    "he, nobody, whoever: it, the client": 1,
    "is no X: is not an X": 1,
    "so many: N, this many": 3,
    "but for: except": 1,
}
"""Of docstrings and comments, by rule."""


class Place(NamedTuple):
    rule: str
    where: str
    text: str


def _is_documentation(tree: ast.AST) -> set[ast.expr]:
    return {n.value for n in ast.walk(tree) if isinstance(n, ast.Expr)}


def _strings(tree: ast.AST) -> Iterator[tuple[ast.Constant, bool]]:
    documentation = _is_documentation(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node, node in documentation


def _found(rules: dict[str, re.Pattern[str]], text: str, where: str) -> Iterator[Place]:
    for name, pattern in rules.items():
        for match in pattern.finditer(text):
            around = text[max(0, match.start() - 40) : match.end() + 40]
            yield Place(name, where, " ".join(around.split()))


@cache
def for_users() -> tuple[Place, ...]:
    places: list[Place] = []
    for path in PACKAGES:
        for node, is_documentation in _strings(ast.parse(path.read_text())):
            if not is_documentation:
                where = f"{path.relative_to(ROOT)}:{node.lineno}"
                places += _found(RULES, str(node.value), where)
    for path in PAGES:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            places += _found(RULES, line, f"{path.relative_to(ROOT)}:{number}")
    return tuple(places)


@cache
def in_code() -> tuple[Place, ...]:
    places: list[Place] = []
    for path in PACKAGES:
        source = path.read_text()
        name = path.relative_to(ROOT)
        for node, is_documentation in _strings(ast.parse(source)):
            if is_documentation:
                rules = RULES | RULES_OF_DOCSTRINGS
                places += _found(rules, str(node.value), f"{name}:{node.lineno}")
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                places += _found(RULES, token.string, f"{name}:{token.start[0]}")
    return tuple(places)


def test_what_users_read_has_none() -> None:
    listed = "\n".join(f"{p.where}: {p.rule}: {p.text}" for p in for_users())
    assert not for_users(), listed


@pytest.mark.parametrize("rule", [*RULES, OPENINGS])
def test_docstrings_and_comments_have_no_more_than_they_had(rule: str) -> None:
    places = [place for place in in_code() if place.rule == rule]
    most = MOST_IN_CODE.get(rule, 0)
    listed = "\n".join(f"{place.where}: {place.text}" for place in places)
    assert len(places) <= most, f"{len(places)} of {rule!r}, at most {most}:\n{listed}"
    assert len(places) == most, f"lower MOST_IN_CODE of {rule!r} to {len(places)}"


if __name__ == "__main__":
    chosen = in_code() if sys.argv[1:] == ["CODE"] else for_users()
    for place in chosen:
        print(f"{place.where}: {place.rule}: {place.text}")
    print(dict(Counter(place.rule for place in chosen)))
