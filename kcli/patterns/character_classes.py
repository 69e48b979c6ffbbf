"""Sets of characters as ranges of code points: the classes in Java's patterns.

Pure: values only.
"""

from __future__ import annotations

import functools
import sys
import unicodedata
from collections.abc import Iterable

Ranges = tuple[tuple[int, int], ...]
"""Code points from first to last, ascending and not adjacent."""

HIGHEST = sys.maxunicode


def union(*parts: Iterable[tuple[int, int]]) -> Ranges:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(part_range for part in parts for part_range in part):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def complement(ranges: Ranges) -> Ranges:
    others, at = [], 0
    for first, last in ranges:
        if at < first:
            others.append((at, first - 1))
        at = last + 1
    if at <= HIGHEST:
        others.append((at, HIGHEST))
    return tuple(others)


def intersection(first: Ranges, other: Ranges) -> Ranges:
    return complement(union(complement(first), complement(other)))


def characters(text: str) -> Ranges:
    return union((ord(letter), ord(letter)) for letter in text)


DIGIT = ((48, 57),)
UPPER, LOWER = ((65, 90),), ((97, 122),)
ALPHA = union(UPPER, LOWER)
_ALNUM = union(ALPHA, DIGIT)
_GRAPH = ((33, 126),)
_SPACE = ((9, 13), (32, 32))
BREAKS = characters("\n\r\x85\u2028\u2029")
VERTICAL = characters("\n\v\f\r\x85\u2028\u2029")
_HORIZONTAL = union(characters("\t \xa0\u1680\u180e\u202f\u205f\u3000"), [(0x2000, 0x200A)])
POSIX = {
    "ASCII": ((0, 127),),
    "Alnum": _ALNUM,
    "Alpha": ALPHA,
    "Blank": characters("\t "),
    "Cntrl": ((0, 31), (127, 127)),
    "Digit": DIGIT,
    "Graph": _GRAPH,
    "Lower": LOWER,
    "Print": ((32, 126),),
    "Punct": intersection(_GRAPH, complement(_ALNUM)),
    "Space": _SPACE,
    "Upper": UPPER,
    "XDigit": union(DIGIT, [(65, 70), (97, 102)]),
}
SHORT = {"d": DIGIT, "w": union(_ALNUM, characters("_")), "s": _SPACE, "h": _HORIZONTAL}
SHORT["v"] = VERTICAL
WITH_CASE = ("Lu", "Ll", "Lt")
_GROUPS = {"LC": WITH_CASE, "LD": ("L", "Nd")}
_LETTERS_OF_CATEGORIES = {
    "C": "cfnos",
    "L": "CDlmotu",
    "M": "cen",
    "N": "dlo",
    "P": "cdefios",
    "S": "ckmo",
    "Z": "lps",
}
CATEGORIES = frozenset(
    first + second for first, seconds in _LETTERS_OF_CATEGORIES.items() for second in ("", *seconds)
)


@functools.cache
def category(name: str) -> Ranges:
    """Return all characters of a general category, such as Lu, or of all that begin so, such as
    L.
    """
    names = _GROUPS.get(name, (name,))
    ranges: list[tuple[int, int]] = []
    first = None
    for point in range(HIGHEST + 2):
        belongs = point <= HIGHEST and unicodedata.category(chr(point)).startswith(names)
        if belongs and first is None:
            first = point
        elif not belongs and first is not None:
            ranges.append((first, point - 1))
            first = None
    return tuple(ranges)
