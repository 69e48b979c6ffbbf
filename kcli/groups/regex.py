"""Checks patterns that a broker subscribes consumers by: RE2's syntax (KIP-848), with errors in the
words of Kafka's RE2/J.

    wrong("orders-.*")      None
    wrong("(?=orders)")     "invalid or unsupported Perl syntax"

Pure: text in, a text or None out.
"""

from __future__ import annotations

_WORDS = {
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "bad repetition operator": "invalid nested repetition operator",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "trailing \\": "trailing backslash at end of expression",
    "invalid named capture group": "invalid named capture",
}


def wrong(pattern: str) -> str | None:
    """Return the error of an invalid pattern, or None."""
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(pattern, options)
    except UnicodeEncodeError:
        return "invalid UTF-8"
    except re2.error as error:
        (why,) = error.args
        kind = (why.decode(errors="replace") if isinstance(why, bytes) else str(why)).split(": ")[0]
        return _WORDS.get(kind, kind)
    return None
