r"""Translates regular expressions in Java's dialect, used by Kafka's options, to Python's `re`.

    translate(r"\Qtest.a\E[a-z&&[^b]]")      "test\x2ea[ac-z]"

Pure: texts in, texts and compiled patterns out.

The translation is explicit: it has no flags, and each class is a set of ranges. Patterns over bytes
have the same meaning for characters of one byte; others are the bytes of their UTF-8, and escapes
such as \xff are single bytes. Patterns that Python cannot match are refused.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any, AnyStr, NoReturn

from kcli.patterns.character_classes import (
    ALPHA,
    BREAKS,
    CATEGORIES,
    HIGHEST,
    LOWER,
    POSIX,
    SHORT,
    UPPER,
    VERTICAL,
    WITH_CASE,
    Ranges,
    category,
    characters,
    complement,
    intersection,
    union,
)
from kserver.errors import ConfigError

END = "\\Z"
"""The end of the text, in a translation."""
BEFORE_LAST_BREAK = rf"(?!(?<=\r)\n)(?=(?:\r\n|[\n\r\x85\u2028\u2029])?{END})"
"""The end, or before a line break at the end of the text: $ and \\Z in a translation."""

_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_HIGHEST_ASCII = 0x7F
_HIGHEST_BYTE = 0xFF
_MAX_REPETITIONS = (1 << 31) - 1
_IS_ASCII_ONLY = "a class in a pattern over bytes must have ASCII characters only"


class PatternError(ConfigError):
    """An invalid or unsupported pattern; the text has the pattern and the reason."""


def translate(pattern: str, *, over_bytes: bool = False) -> str:
    """Translate a pattern for `re`; over bytes, for its encoding as Latin-1.

    Raises PatternError.
    """
    translation = _Translation(pattern, over_bytes)
    return translation.whole()


def compiled(pattern: str) -> re.Pattern[str]:
    """Translate and compile a pattern. Raises PatternError."""
    result: re.Pattern[str] = _compiled(pattern, translate(pattern))
    return result


def compiled_for_bytes(pattern: str) -> re.Pattern[bytes]:
    """Translate and compile a pattern over bytes. Raises PatternError."""
    text = translate(pattern, over_bytes=True)
    result: re.Pattern[bytes] = _compiled(pattern, text.encode("latin-1"))
    return result


def split(pattern: re.Pattern[AnyStr], text: AnyStr) -> list[AnyStr]:
    """Return the parts between the matches, without empty ones at the end: Java's Pattern.split."""
    parts, at = [], 0
    for match in pattern.finditer(text):
        if match.end() == 0:
            continue
        parts.append(text[at : match.start()])
        at = match.end()
    parts.append(text[at:])
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts


def _compiled(pattern: str, text: str | bytes) -> Any:
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        why = error.msg if isinstance(error, re.error) else "it is too large"
        if "look-behind" in why:
            why = "a look-behind (?<= or (?<! must have a fixed length here"
        raise PatternError(f"{pattern} is an invalid regex: {why}") from None


def _without_quotes(pattern: str) -> list[tuple[str, bool]]:
    r"""Return a pattern's characters, and whether each is quoted, as between \Q and \E."""
    tokens: list[tuple[str, bool]] = []
    at, quoted = 0, False
    while at < len(pattern):
        if quoted:
            end = pattern.find("\\E", at)
            end = len(pattern) if end < 0 else end
            tokens += [(letter, True) for letter in pattern[at:end]]
            at, quoted = end + 2, False
        elif pattern.startswith("\\Q", at):
            at, quoted = at + 2, True
        else:
            size = 2 if pattern[at] == "\\" else 1
            tokens += [(letter, False) for letter in pattern[at : at + size]]
            at += size
    return tokens


class _Translation:
    """The translation of one pattern; each method reads a part of it and returns its
    translation.
    """

    def __init__(self, pattern: str, over_bytes: bool) -> None:
        self._pattern = pattern
        self._over_bytes = over_bytes
        self._tokens = _without_quotes(pattern)
        self._at = 0
        self._flags = frozenset[str]()
        self._groups = 0
        self._open: list[int] = []
        self._names: dict[str, int] = {}

    def whole(self) -> str:
        text = self._alternatives()
        if self._at < len(self._tokens):
            self._invalid("the ) does not close a group")
        return text

    def _invalid(self, why: str) -> NoReturn:
        raise PatternError(f"{self._pattern} is an invalid regex: {why}")

    def _unsupported(self, construct: str, instead: str = "") -> NoReturn:
        rest = f"; {instead}" if instead else ""
        raise PatternError(f"{self._pattern} has {construct}, which is not supported{rest}")

    def _skip_comments(self) -> None:
        """Skip white space and comments, if the flag x is on."""
        if "x" not in self._flags:
            return
        while self._at < len(self._tokens):
            letter, quoted = self._tokens[self._at]
            if quoted or letter not in " \t\n\v\f\r#":
                return
            self._at += 1
            if letter == "#":
                while self._at < len(self._tokens) and self._tokens[self._at][0] not in "\r\n":
                    self._at += 1

    def _peek(self) -> str:
        """Return the next character, if it may be an operator; else nothing."""
        self._skip_comments()
        return self._raw()

    def _raw(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._tokens[at][0] if at < len(self._tokens) and not self._tokens[at][1] else ""

    def _take(self, text: str) -> bool:
        if all(self._raw(number) == letter for number, letter in enumerate(text)):
            self._at += len(text)
            return True
        return False

    def _up_to(self, end: str, construct: str) -> str:
        letters = []
        while not self._take(end):
            if self._at == len(self._tokens):
                self._invalid(f"{construct} is not closed by {end}")
            letters.append(self._tokens[self._at][0])
            self._at += 1
        return "".join(letters)

    def _alternatives(self) -> str:
        alternatives = []
        while self._peek() != ")":
            if self._peek() == "|":
                self._at += 1
                alternatives.append("|")
            elif self._at < len(self._tokens):
                alternatives.append(self._repeated())
            else:
                break
        return "".join(alternatives)

    def _repeated(self) -> str:
        start = self._at
        atom = self._atom()
        operator = self._peek()
        if atom is None:
            if operator and operator in "*+?":
                self._invalid(f"there is nothing before {operator} to repeat")
            return ""
        if operator and operator in "*+?":
            self._at += 1
            times = operator
        elif operator == "{":
            times = self._times()
        else:
            return atom
        if self._peek() and self._peek() in "?+":
            times += self._raw()
            self._at += 1
        if self._peek() and self._peek() in "*+?{":
            text = "".join(letter for letter, _ in self._tokens[start : self._at + 1])
            self._invalid(f"{text} repeats a repetition; write (?:...) around it")
        return f"(?:{atom}){times}"

    def _times(self) -> str:
        self._at += 1
        text = self._up_to("}", "a repetition {")
        numbers = re.fullmatch(r"([0-9]+)(,([0-9]*))?", text)
        if numbers is None:
            self._invalid(f"{{{text}}} is not a repetition, such as {{1}}, {{1,}} or {{1,2}}")
        counts = [int(number) for number in (numbers[1], numbers[3]) if number]
        if max(counts) > _MAX_REPETITIONS or counts != sorted(counts):
            self._invalid(f"{{{text}}} is out of range")
        return f"{{{text}}}"

    def _atom(self) -> str | None:
        """Return the next atom; None for flags, which apply from here on."""
        letter = self._peek()
        if letter and letter in "*+?{":
            self._invalid(f"there is nothing before {letter} to repeat")
        if letter not in ("(", "[", "\\", ".", "^", "$"):
            letter = self._tokens[self._at][0]
            self._at += 1
            return self._character(ord(letter))
        self._at += 1
        match letter:
            case "(":
                return self._group()
            case "[":
                return self._class_text(self._class())
            case "\\":
                return self._escaped()
            case ".":
                return self._any()
            case "^":
                return self._line_start() if "m" in self._flags else r"\A"
        return self._line_end() if "m" in self._flags else self._before_last_break()

    def _group(self) -> str | None:
        before = self._flags
        opened = 0
        if not self._take("?"):
            self._groups += 1
            opened = self._groups
            start = "("
        elif self._take(":"):
            start = "(?:"
        elif self._raw() and self._raw() in "=!>":
            start = f"(?{self._raw()}"
            self._at += 1
        elif self._take("<="):
            start = "(?<="
        elif self._take("<!"):
            start = "(?<!"
        elif self._take("<"):
            name = self._up_to(">", "the name of a group (?<")
            if not re.fullmatch("[A-Za-z][A-Za-z0-9]*", name):
                self._invalid(f"the name in (?<{name}> must consist of ASCII letters and digits")
            if name in self._names:
                self._invalid(f"there are two groups (?<{name}>")
            self._groups += 1
            opened = self._names[name] = self._groups
            start = f"(?P<{name}>"
        else:
            if self._set_flags() == ")":
                return None
            start = "(?:"
        self._open.append(opened)
        inner = self._alternatives()
        if not self._take(")"):
            self._invalid("a group ( is not closed by )")
        self._open.pop()
        self._flags = before
        return f"{start}{inner})"

    def _set_flags(self) -> str:
        """Read flags, as in (?i) or (?i-s:; return the character that ends them."""
        on, flags = True, set(self._flags)
        while True:
            letter = self._raw()
            self._at += 1
            if letter and letter in ":)":
                self._flags = frozenset(flags)
                return letter
            if letter == "-" and on:
                on = False
            elif letter and letter in "idmsxuU":
                if on and letter in "uU":
                    self._unsupported(f"the flag (?{letter})")
                (flags.add if on else flags.discard)(letter)
            else:
                self._invalid(f"(?{letter} is not a group")

    def _escaped(self) -> str:
        """Read an escape outside of a class."""
        letter = self._raw()
        if letter == "B" or letter == "b":
            if self._raw(1) == "{":
                self._unsupported("\\b{g}")
            self._at += 1
            # Python's own \\B never matches an empty text.
            return r"\b" if letter == "b" else r"(?!\b)"
        if letter and letter in "GX":
            self._unsupported(f"\\{letter}")
        anchors = {"A": r"\A", "z": END}
        if letter in anchors:
            self._at += 1
            return anchors[letter]
        if letter == "Z":
            self._at += 1
            return self._before_last_break()
        if letter == "R":
            self._at += 1
            return f"(?:\\r\\n|{self._class_text(VERTICAL)})"
        if letter == "k":
            return self._named_reference()
        if letter and letter in "123456789":
            return self._reference()
        escape = self._class_escape()
        if isinstance(escape, int) and (not self._over_bytes or escape > _HIGHEST_BYTE):
            return self._character(escape)
        if isinstance(escape, int):
            return self._class_text(self._with_case(((escape, escape),)))
        return self._class_text(escape)

    def _named_reference(self) -> str:
        self._at += 1
        if not self._take("<"):
            self._invalid("\\k must be followed by the name of a group, as in \\k<name>")
        name = self._up_to(">", "\\k<")
        if name not in self._names:
            self._invalid(f"\\k<{name}> refers to no group before it")
        return self._reference_to(self._names[name], f"\\k<{name}>")

    def _reference(self) -> str:
        number = int(self._raw())
        self._at += 1
        while (digit := self._raw()) and digit in "0123456789":
            if number * 10 + int(digit) > self._groups:
                break
            number = number * 10 + int(digit)
            self._at += 1
        return self._reference_to(number, f"\\{number}")

    def _reference_to(self, number: int, text: str) -> str:
        if number > self._groups:
            self._invalid(f"{text} refers to no group before it")
        if number in self._open:
            self._unsupported(f"{text} within the group that it refers to")
        if "i" not in self._flags:
            return f"(?:\\{number})"
        return f"(?i:\\{number})" if self._over_bytes else f"(?ai:\\{number})"

    def _character(self, point: int) -> str:
        ranges = self._with_case(((point, point),))
        if self._over_bytes and point > _HIGHEST_ASCII:
            data = chr(point).encode(errors="surrogatepass")
            return f"(?:{''.join(map(_text, data))})"
        return self._class_text(ranges)

    def _any(self) -> str:
        if "s" in self._flags:
            excluded: Ranges = ()
        elif "d" in self._flags:
            excluded = characters("\n")
        else:
            excluded = BREAKS
        return self._class_text(complement(self._in_bytes(excluded)))

    def _line_start(self) -> str:
        if "d" in self._flags:
            return rf"(?:(?!{END})(?:\A|(?<=\n)))"
        others = "" if self._over_bytes else r"\x85\u2028\u2029"
        return rf"(?:(?!{END})(?:\A|(?<=[\n{others}])|(?<=\r)(?!\n)))"

    def _line_end(self) -> str:
        if "d" in self._flags:
            return rf"(?=\n|{END})"
        others = "" if self._over_bytes else r"\x85\u2028\u2029"
        return rf"(?:(?!(?<=\r)\n)(?=[\n\r{others}]|{END}))"

    def _before_last_break(self) -> str:
        if "d" in self._flags:
            return rf"(?=\n?{END})"
        if self._over_bytes:
            return BEFORE_LAST_BREAK.replace(r"\x85\u2028\u2029", "")
        return BEFORE_LAST_BREAK

    def _class(self) -> Ranges:
        """Read a class up to its ]; return its ranges. && and [ nest."""
        excluded = self._take("^")
        ranges: Ranges | None = None
        part: Ranges | None = None
        while True:
            letter = self._peek()
            if self._at == len(self._tokens):
                self._invalid("a class [ is not closed by ]")
            if letter == "]" and (part is not None or ranges is not None):
                self._at += 1
                if part is None:
                    self._invalid("&& has nothing after it")
                ranges = part if ranges is None else intersection(ranges, part)
                return complement(ranges) if excluded else ranges
            if letter == "&" and self._raw(1) == "&":
                if part is None or self._raw(2) == "&":
                    self._invalid("&& has nothing before or after it")
                self._at += 2
                ranges = part if ranges is None else intersection(ranges, part)
                part = None
            elif letter == "[":
                self._at += 1
                part = union(part or (), self._class())
            else:
                part = union(part or (), self._range())

    def _range(self) -> Ranges:
        first = self._class_character()
        if not isinstance(first, int):
            return first
        if self._peek() != "-" or self._raw(1) in ("[", "]"):
            return self._with_case(((first, first),))
        self._at += 1
        self._skip_comments()
        if self._at == len(self._tokens):
            self._invalid("a class [ is not closed by ]")
        last = self._class_character()
        if not isinstance(last, int) or last < first:
            self._invalid(f"the range from {chr(first)} is out of order, or has no end")
        return self._with_case(((first, last),))

    def _class_character(self) -> int | Ranges:
        if self._take("\\"):
            character = self._class_escape()
            highest = _HIGHEST_BYTE
        else:
            character = ord(self._tokens[self._at][0])
            highest = _HIGHEST_ASCII
            self._at += 1
        if self._over_bytes and isinstance(character, int) and character > highest:
            self._unsupported(f"{chr(character)} in a class", _IS_ASCII_ONLY)
        return character

    def _class_escape(self) -> int | Ranges:
        """Read an escape that is allowed in a class: return a code point, or ranges of
        characters.
        """
        if self._at == len(self._tokens):
            self._invalid("it ends with \\")
        letter = self._tokens[self._at][0]
        self._at += 1
        if letter in _CONTROLS:
            return ord(_CONTROLS[letter])
        if letter.lower() in SHORT:
            ranges = self._in_bytes(SHORT[letter.lower()])
            return complement(ranges) if letter.isupper() else ranges
        match letter:
            case "p" | "P":
                name = self._up_to("}", "\\p{") if self._take("{") else self._next("\\p")
                ranges = self._property(name)
                return complement(ranges) if letter == "P" else ranges
            case "x":
                digits = self._up_to("}", "\\x{") if self._take("{") else self._next("\\x", 2)
                return self._number(digits, 16, f"\\x{digits}")
            case "u":
                digits = self._next("\\u", 4)
                point = self._number(digits, 16, f"\\u{digits}")
                if 0xD800 <= point < 0xDC00 and self._take("\\u"):
                    digits = self._next("\\u", 4)
                    low = self._number(digits, 16, f"\\u{digits}")
                    point = 0x10000 + (point - 0xD800 << 10) + (low - 0xDC00)
                return point
            case "0":
                return self._octal()
            case "c":
                return ord(self._next("\\c")) ^ 64
            case "N":
                name = self._up_to("}", "\\N{") if self._take("{") else ""
                try:
                    return ord(unicodedata.lookup(name))
                except (KeyError, TypeError):
                    self._invalid(f"\\N{{{name}}} is not the name of a character")
        if letter.isascii() and letter.isalnum():
            self._invalid(f"\\{letter} is not an escape here")
        return ord(letter)

    def _next(self, construct: str, count: int = 1) -> str:
        letters = [letter for letter, _ in self._tokens[self._at : self._at + count]]
        if len(letters) < count:
            self._invalid(f"it ends within {construct}")
        self._at += count
        return "".join(letters)

    def _number(self, digits: str, base: int, construct: str) -> int:
        if not re.fullmatch("[0-9A-Fa-f]{1,8}", digits) or int(digits, base) > HIGHEST:
            self._invalid(f"{construct} is not the code of a character")
        return int(digits, base)

    def _octal(self) -> int:
        digits = ""
        while (digit := self._raw()) and digit in "01234567" and len(digits) < 3:
            if len(digits) == 2 and digits[0] > "3":
                break
            digits += digit
            self._at += 1
        if not digits:
            self._invalid("\\0 must be followed by the octal number of a character")
        return int(digits, 8)

    def _property(self, name: str) -> Ranges:
        for prefix in ("gc=", "general_category="):
            if name.lower().startswith(prefix):
                name = name[len(prefix) :]
                return self._of_category(name, f"\\p{{{prefix}{name}}}")
        if name in POSIX:
            if "i" in self._flags and name in ("Lower", "Upper"):
                return ALPHA
            return POSIX[name]
        if name == "L1":
            return ((0, 0xFF),)
        if name.startswith("Is") and name[2:] in CATEGORIES:
            name = name[2:]
        return self._of_category(name, f"\\p{{{name}}}")

    def _of_category(self, name: str, construct: str) -> Ranges:
        if name not in CATEGORIES:
            self._unsupported(construct, "classes are \\p{Alpha} and the like, or \\p{Lu}")
        if self._over_bytes:
            self._unsupported(construct, _IS_ASCII_ONLY)
        if "i" in self._flags and name in WITH_CASE:
            name = "LC"
        return category(name)

    def _in_bytes(self, ranges: Ranges) -> Ranges:
        return intersection(ranges, POSIX["ASCII"]) if self._over_bytes else ranges

    def _with_case(self, ranges: Ranges) -> Ranges:
        """Add the ASCII letters of the other case, if the flag i is on."""
        if "i" not in self._flags:
            return ranges
        small = intersection(ranges, LOWER)
        large = intersection(ranges, UPPER)
        return union(
            ranges,
            ((first - 32, last - 32) for first, last in small),
            ((first + 32, last + 32) for first, last in large),
        )

    def _class_text(self, ranges: Ranges) -> str:
        if self._over_bytes:
            ranges = intersection(ranges, ((0, _HIGHEST_BYTE),))
        if not ranges:
            return f"[^{_text(0)}-{_text(_HIGHEST_BYTE if self._over_bytes else HIGHEST)}]"
        if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
            return _text(ranges[0][0])
        pieces = (
            _text(first) if first == last else f"{_text(first)}-{_text(last)}"
            for first, last in ranges
        )
        return f"[{''.join(pieces)}]"


def _text(point: int) -> str:
    letter = chr(point)
    return letter if letter.isalnum() or point > _HIGHEST_BYTE else f"\\x{point:02x}"
