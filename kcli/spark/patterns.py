r"""Patterns of topics as subscribePattern has them: regular expressions in Java's dialect.

Pure: texts in, names out.

RE2 reads what Java does, \Q...\E and \p{L} too, and means the same; Java's names of ASCII classes
are put into RE2's.  What RE2 has not, because it cannot be matched in linear time (look-around,
back-references, possessive quantifiers), Python's own reads as Java does.  A class within a class,
which both would take for something else, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from kserver.errors import ConfigError

_ASCII_CLASSES = frozenset(
    [
        "lower",
        "upper",
        "ascii",
        "alpha",
        "digit",
        "alnum",
        "punct",
        "graph",
        "print",
        "blank",
        "cntrl",
        "xdigit",
        "space",
    ]
)
_TOKEN = re.compile(r"\\Q.*?(?:\\E|$)|\\([pP])\{(\w+)\}|\\.|\[\^?\]?|&&|.", re.DOTALL)


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """Those that the whole pattern matches; ConfigError where it is none."""
    matches = _compiled(pattern)
    return [name for name in names if matches(name)]


def check(pattern: str) -> None:
    """ConfigError for what is no pattern."""
    _compiled(pattern)


def _compiled(pattern: str) -> Callable[[str], Any]:
    import re2

    options = re2.Options()
    options.log_errors = False
    text = _with_names(pattern)
    try:
        return re2.compile(text, options).fullmatch  # type: ignore[no-any-return]
    except (re2.error, UnicodeEncodeError):
        pass
    try:
        return re.compile(pattern).fullmatch
    except re.error as error:
        raise ConfigError(f"option subscribePattern is no pattern: {error}") from error


def _with_names(pattern: str) -> str:
    """With Java's names of classes as RE2 has them; ConfigError for what only Java knows."""
    found = []
    in_class = False
    for token in _TOKEN.finditer(pattern):
        text = token[0]
        if (name := (token[2] or "").lower()) in _ASCII_CLASSES:
            not_ = "^" if token[1] == "P" else ""
            text = f"[:{not_}{name}:]" if in_class else f"[[:{not_}{name}:]]"
        elif text[0] == "[" or text == "&&":
            if in_class:
                raise ConfigError(
                    f"option subscribePattern has {text} within a class, as {pattern!r}: classes"
                    " within classes are not taken; write the characters out, or \\[ for itself"
                )
            in_class = text[0] == "["
        elif text == "]":
            in_class = False
        found.append(text)
    return "".join(found)
