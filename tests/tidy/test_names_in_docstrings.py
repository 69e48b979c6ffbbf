"""A name of this tree that a docstring or comment puts in backticks exists.

Names are told by their form: `with_underscores`, `CamelCase`, `dotted.names`, `paths/of_files.py`.
A name exists if code has it, or a string of the code does: keys of settings, znodes and messages.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = sorted(p for room in ("kserver", "kcli") for p in (ROOT / room).rglob("*.py"))
READ = [*FILES, *sorted((ROOT / "tests").rglob("*.py")), ROOT / "setup.py"]
BACKTICKED = re.compile(r"(?<!`)`([^`\s]+)`(?!`)")
NAME = re.compile(r"(_?[a-z]\w*_\w+|_?[A-Z]\w*[a-z]\w*|[\w.]+\.\w+|[\w/]+/\w+\.py)(\(\))?")
NOT_OURS = {"String.hashCode", "DescribeProducers", "00000000000000004711.log", "_walk.pyi"}
"""Java's, Kafka's, an example, and a file that is not Python."""
WORD = re.compile(r"\w+")


def docstrings(tree: ast.AST) -> set[ast.expr]:
    """The constants that are documentation: strings that stand alone."""
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }


@cache
def words_of_code() -> frozenset[str]:
    words: set[str] = set()
    for path in READ:
        tree = ast.parse(path.read_text())
        documentation = docstrings(tree)
        words.update(path.relative_to(ROOT).with_suffix("").parts)
        for node in ast.walk(tree):
            for value in vars(node).values():
                if isinstance(value, str) and node not in documentation:
                    words.update(WORD.findall(value))
                elif isinstance(value, bytes):
                    words.update(WORD.findall(value.decode("latin-1")))
    for path in [*(ROOT / "kserver").rglob("*.txt"), *(ROOT / "kserver").rglob("*.c")]:
        words.update(WORD.findall(path.read_text()))
    return frozenset(words)


def prose(path: Path) -> str:
    text = path.read_text()
    said = [node.value for node in docstrings(ast.parse(text)) if isinstance(node, ast.Constant)]
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    said += [token.string for token in tokens if token.type == tokenize.COMMENT]
    return "\n".join(map(str, said))


def test_what_is_named_exists() -> None:
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in FILES
        for name in BACKTICKED.findall(prose(path))
        if NAME.fullmatch(name) and name not in NOT_OURS
        if not set(WORD.findall(name)) - {"py"} <= words_of_code()
    ]
    assert not missing
