"""Patterns of topics as subscribePattern has them: regular expressions in Java's dialect.

Pure: texts in, names out.

RE2 matches in linear time; a translated pattern that it does not know (look-around,
back-references, possessive quantifiers) is left to Python's `re`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kcli import java_patterns
from kcli.java_patterns import PatternError
from kserver.errors import ConfigError


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
    try:
        compiled = java_patterns.compiled(pattern)
    except PatternError as error:
        raise ConfigError(f"option subscribePattern: {error}") from error
    # A name has no line breaks, so that all ends of a text are one.
    text = compiled.pattern.replace(java_patterns.BEFORE_LAST_BREAK, java_patterns.END)
    text = text.replace(java_patterns.END, r"\z")
    try:
        return re2.compile(text, options).fullmatch  # type: ignore[no-any-return]
    except (re2.error, UnicodeEncodeError):
        return compiled.fullmatch
