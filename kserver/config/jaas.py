"""Entry of a JAAS configuration, as in Kafka's keys `...sasl.jaas.config`.

Pure: text in, values out.

    org.apache.zookeeper.server.auth.DigestLoginModule required username="k" password="secret";
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

_ENTRY = re.compile(
    r"\s*(?P<module>[\w.$]+)\s+(?:required|requisite|sufficient|optional)\b"
    r"(?P<options>(?:\s+[\w.]+\s*=\s*(?:\"(?:[^\"\\]|\\.)*\"|[^\s\";]+))*)\s*;\s*",
    re.IGNORECASE | re.DOTALL,
)
_OPTION = re.compile(r"([\w.]+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s\";]+))", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


class LoginModule(NamedTuple):
    name: str
    """Name of its Java class, without the package."""
    options: Mapping[str, str]


def parse_jaas(text: str) -> LoginModule:
    """Parse an entry.  Raises ValueError without the text, which contains passwords."""
    entry = _ENTRY.fullmatch(text)
    if entry is None:
        raise ValueError('not of the form: MODULE required username="NAME" password="PASSWORD";')
    options = {
        key: plain or _ESCAPED.sub(r"\1", quoted)
        for key, quoted, plain in _OPTION.findall(entry["options"])
    }
    return LoginModule(entry["module"].rpartition(".")[2], options)
