import time

import pytest

from kserver.errors import ErrorCode, KafkaError
from kserver.group.topic_patterns import MAX_PATTERN_BYTES, check_pattern, matching

TOPICS = ["t", "t-1", "t-2", "other-t-1", "ü"]


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("t", {"t"}),
        ("t-.", {"t-1", "t-2"}),
        ("t.*", {"t", "t-1", "t-2"}),
        (".*", set(TOPICS)),
        ("^t-1$", {"t-1"}),
        ("t-1|t-2", {"t-1", "t-2"}),
        ("(?i)T", {"t"}),
        (".", {"t", "ü"}),
        ("", set()),
    ],
)
def test_a_pattern_matches_whole_names(pattern, matched):
    assert matching(pattern, TOPICS) == matched


@pytest.mark.parametrize("pattern", ["[", "(", "*", r"(?P<x>a)\1", "a(?=b)", "(?:(?:a{9}){99}){9}"])
def test_what_re2_does_not_know_is_refused(pattern):
    with pytest.raises(KafkaError) as refused:
        check_pattern(pattern)
    assert refused.value.code is ErrorCode.invalid_regular_expression
    assert f"`{pattern}`" in refused.value.message


def test_a_pattern_that_takes_much_memory_is_refused():
    with pytest.raises(KafkaError):
        check_pattern("|".join(f"topic-{n}.*" for n in range(MAX_PATTERN_BYTES // 32)))


def test_no_pattern_takes_time_beyond_the_name_s_length():
    """With Python's own this one takes 2 ** 249 steps."""
    began_s = time.process_time()
    assert matching("(a|a)*b", ["a" * 249]) == set()
    assert time.process_time() - began_s < 1
