"""Topics that match subscribePattern, a regular expression in Java's dialect.

Pure: texts in, names out.

RE2 matches in linear time; a translated pattern that it does not support (look-around,
back-references, possessive quantifiers) is matched by Python's `re`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kcli.patterns import java_patterns
from kcli.patterns.java_patterns import PatternError
from kserver.errors import ConfigError


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names that the whole pattern matches. Raises ConfigError if it is invalid."""
    matches = _compiled(pattern)
    return [name for name in names if matches(name)]


def check(pattern: str) -> None:
    """Raises ConfigError if the pattern is invalid."""
    _compiled(pattern)


def _compiled(pattern: str) -> Callable[[str], Any]:
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        compiled = java_patterns.compiled(pattern)
    except PatternError as error:
        raise ConfigError(f"option subscribePattern: {error}") from error
    # A name has no line breaks, so all kinds of ends are equal.
    text = compiled.pattern.replace(java_patterns.BEFORE_LAST_BREAK, java_patterns.END)
    text = text.replace(java_patterns.END, r"\z")
    try:
        return re2.compile(text, options).fullmatch  # type: ignore[no-any-return]
    except (re2.error, UnicodeEncodeError):
        return compiled.fullmatch
