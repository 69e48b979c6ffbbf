"""Times in the format of Java's SimpleDateFormat, for --date-format.

Pure: a time and a pattern in, text out.

    yyyy-MM-dd HH:mm:ss:SSS     2026-01-31 09:05:07:042
    EEE d MMM, h:mm a           Sat 31 Jan, 9:05 AM
    yyyy-MM-dd'T'HH:mm:ssXXX    2026-01-31T09:05:07+01:00
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime

_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+|'")

_NUMBERS: dict[str, Callable[[datetime], int]] = {
    "M": lambda time: time.month,
    "L": lambda time: time.month,
    "d": lambda time: time.day,
    "D": lambda time: time.timetuple().tm_yday,
    "u": lambda time: time.isoweekday(),
    "H": lambda time: time.hour,
    "k": lambda time: time.hour or 24,
    "K": lambda time: time.hour % 12,
    "h": lambda time: time.hour % 12 or 12,
    "m": lambda time: time.minute,
    "s": lambda time: time.second,
    "S": lambda time: time.microsecond // 1000,
}
_MONTHS = "January February March April May June July August September October November December"
_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"


def formatted(time: datetime, pattern: str) -> str:
    """Format a time with a zone. Raises ValueError if the pattern is invalid."""
    text = []
    for match in _TOKEN.finditer(pattern):
        token, quoted, letter = match[0], match[1], match[2]
        if quoted is not None:
            text.append(quoted.replace("''", "'") or "'")
        elif token == "'":
            raise ValueError("Unterminated quote")
        elif letter is None:
            text.append(token)
        else:
            text.append(_field(time, letter, len(token)))
    return "".join(text)


def _field(time: datetime, letter: str, width: int) -> str:
    match letter:
        case "y" | "Y":
            return f"{time.year % 100:02}" if width == 2 else f"{time.year:0{width}}"
        case "M" | "L" if width >= 3:
            return _name(_MONTHS.split()[time.month - 1], width)
        case "E":
            return _name(_DAYS.split()[time.weekday()], width)
        case "a":
            return "AM" if time.hour < 12 else "PM"
        case "G":
            return "AD"
        case "z":
            return time.tzname() or ""
        case "Z":
            return f"{time:%z}"
        case "X" if width <= 3:
            return _iso_zone(time, width)
        case _ if letter in _NUMBERS:
            return f"{_NUMBERS[letter](time):0{width}}"
    raise ValueError(f"Illegal pattern character '{letter}'")


def _name(name: str, width: int) -> str:
    return name if width >= 4 else name[:3]


def _iso_zone(time: datetime, width: int) -> str:
    zone = f"{time:%z}"
    if zone == "+0000":
        return "Z"
    return (zone[:3], zone, f"{zone[:3]}:{zone[3:]}")[width - 1]
