"""Patterns mean what they mean to Java 17, over texts and over bytes."""

from __future__ import annotations

import warnings

import pytest

from kcli.patterns.java_patterns import PatternError, compiled, compiled_for_bytes, split

MEANINGS = [
    (r"\Qtest.a\E", ["test.a"], ["test_a"]),
    (r"\Qa", ["a"], []),
    (r"a\Qb\E*", ["abb"], []),
    (r"[^\Qa-z\E]", ["b"], ["-"]),
    (r"\p{Punct}+", ["$-_"], ["a"]),
    (r"\p{Alpha}\p{Digit}\p{Space}", ["a1 "], ["aa "]),
    (r"\P{Lower}", ["A", "é"], ["a"]),
    (r"[\p{Upper}\p{XDigit}]+", ["Zf0"], ["g"]),
    (r"\p{L}\pN", ["é1", "é²"], ["1é"]),
    (r"\p{IsLu}\p{gc=Ll}", ["Äö"], ["äö"]),
    (r"(?<n>.)\k<n>", ["aa"], ["ab"]),
    (r"(.)\1", ["aa"], ["ab"]),
    (r"(a)\11", ["aa1"], ["a1"]),
    (r"a\z", ["a"], ["a\n"]),
    (r"a\Z\n?", ["a", "a\n"], []),
    (r"a$\s*", ["a\r\n"], ["a\n\n"]),
    ("(?m)a$\n^b", ["a\nb"], []),
    ("[a-z&&[^b]]", ["a"], ["b"]),
    ("[a-z&&[^b]&&[b-d]]", ["c"], ["e", "b"]),
    ("[^a-z&&[^b]]", ["b", "-"], ["c"]),
    ("[a-c[x-z]]", ["y"], ["d"]),
    ("[]a]", ["]", "a"], []),
    ("[a&b]", ["&"], []),
    ("[[:alpha:]]", [":"], ["z"]),
    ("[a-]", ["-"], ["b"]),
    (".", ["a"], ["\r", "\u2028", "\x85"]),
    ("(?s).", ["\n"], []),
    ("(?d).", ["\r"], []),
    (r"\w\d\s", ["a1 "], ["é1 ", "a1\xa0"]),
    (r"\h\v\R", ["\xa0\x0b\r\n"], []),
    ("(?i)k", ["K"], ["\u212a"]),
    ("(?i)[^b]", ["c"], ["B"]),
    (r"(?i)\p{Lower}", ["A"], []),
    (r"(?i)(a)\1", ["aA"], ["ab"]),
    ("(?i:a)B", ["AB"], ["Ab"]),
    ("(a|(?i)b)B", ["BB"], ["Bb", "AB"]),
    ("(?x) a b # c", ["ab"], ["a b"]),
    ("a++b", ["aab"], []),
    ("a++a", [], ["aa"]),
    ("(?>a|ab)c", [], ["abc"]),
    ("a(?=b).", ["ab"], ["ac"]),
    ("(?<!a)b", ["b"], []),
    ("a{2,}", ["aaa"], ["a"]),
    (r"\x41\x{42}\u0043\0104\cA\e", ["ABCD\x01\x1b"], []),
    (r"\N{LATIN SMALL LETTER A}", ["a"], []),
    (r"\bé\b", ["é"], []),
    (r"\B", [""], []),
]
"""A pattern, texts that it matches from end to end, and texts that it does not, by Java 17."""


@pytest.mark.parametrize(("pattern", "matching", "others"), MEANINGS)
def test_a_pattern_matches_what_java_matches(pattern, matching, others):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        matches = compiled(pattern).fullmatch
    assert [text for text in matching + others if matches(text)] == matching


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(", "is an invalid regex: a group ( is not closed by )"),
        ("a)", "is an invalid regex: the ) does not close a group"),
        ("[a", "is an invalid regex: a class [ is not closed by ]"),
        ("[]", "is an invalid regex: a class [ is not closed by ]"),
        ("*a", "is an invalid regex: there is nothing before * to repeat"),
        ("a**", "is an invalid regex: a** repeats a repetition; write (?:...) around it"),
        ("a{", "is an invalid regex: a repetition { is not closed by }"),
        ("a{,2}", "is an invalid regex: {,2} is not a repetition, such as {1}, {1,} or {1,2}"),
        ("a{2,1}", "is an invalid regex: {2,1} is out of range"),
        ("(?P<n>a)", "is an invalid regex: (?P is not a group"),
        ("(?#c)", "is an invalid regex: (?# is not a group"),
        (r"\y", r"is an invalid regex: \y is not an escape here"),
        (r"[\b]", r"is an invalid regex: \b is not an escape here"),
        (r"\E", r"is an invalid regex: \E is not an escape here"),
        ("[b-a]", "is an invalid regex: the range from b is out of order, or has no end"),
        (r"\k<n>(?<n>a)", r"is an invalid regex: \k<n> refers to no group before it"),
        ("(?<=a+)b", "is an invalid regex: a look-behind (?<= or (?<! must have a fixed"),
        (r"\Ga", r"has \G, which is not supported"),
        (r"\X", r"has \X, which is not supported"),
        ("(?U)a", "has the flag (?U), which is not supported"),
        (r"\b{g}", r"has \b{g}, which is not supported"),
        (r"\p{IsLatin}", r"has \p{IsLatin}, which is not supported; classes are \p{Alpha}"),
        (r"\p{alpha}", r"has \p{alpha}, which is not supported; classes are \p{Alpha}"),
        ("\\", r"is an invalid regex: it ends with \\"[:-1]),
    ],
)
def test_what_cannot_be_translated_is_refused_with_its_name(pattern, why):
    with pytest.raises(PatternError) as caught:
        compiled(pattern)
    assert str(caught.value).startswith(f"{pattern} {why}")


@pytest.mark.parametrize(
    ("pattern", "data", "found"),
    [
        ("é+", "éé", b"\xc3\xa9\xc3\xa9"),
        (r"\xff", b"\xc3\xff", b"\xff"),
        ("[^a]+", b"a\xff\x00", b"\xff\x00"),
        (r"\W\Z", b"\x85", b"\x85"),
        ("a.", b"a\r", None),
        ("a.", b"a\x85", b"a\x85"),
    ],
)
def test_over_bytes_a_character_is_a_byte_or_its_utf_8(pattern, data, found):
    match = compiled_for_bytes(pattern).search(data.encode() if isinstance(data, str) else data)
    assert found == (match and match[0])


@pytest.mark.parametrize("pattern", ["[é]", r"\p{L}", r"[\u0100]"])
def test_over_bytes_a_class_of_characters_beyond_ascii_is_refused(pattern):
    with pytest.raises(PatternError, match="which is not supported"):
        compiled_for_bytes(pattern)


@pytest.mark.parametrize(
    ("pattern", "text", "parts"),
    [(",", ",a,,b,,", ["", "a", "", "b"]), ("(,)", "a,b", ["a", "b"]), ("", "ab", ["a", "b"])],
)
def test_a_text_is_split_as_java_splits_it(pattern, text, parts):
    assert split(compiled(pattern), text) == parts
