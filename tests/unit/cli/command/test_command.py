"""Words are read as jopt-simple reads them, help is laid out, and `k` itself is an overview."""

import re
from types import SimpleNamespace

import click
import pytest

from kcli.command.command import (
    OLDER,
    Duration,
    Integer,
    Manual,
    Milliseconds,
    command,
    command_named,
)
from kcli.command.options import option, option_group
from kcli.manual import NAMES
from kcli.spark.jobs import JOBS, job_named

TAKEN: list[SimpleNamespace] = []


@command(manual=Manual(examples=[("k sample --topic a", "An example.")]))
@option_group(
    option("--topic", "A topic.  See above.", "NAME"),
    option("--time", "A time.", "MS", type=Integer(64)),
    option("--patience", "A stretch of time.", "TIME", type=Duration()),
    option("--old-patience", "One that Kafka has.", "TIME", type=Duration("ms")),
    option("--linger", "Another, of any whole number.", "TIME", type=Milliseconds()),
    option("--config", "A setting.", "KEY=VALUE", multiple=True),
    option("--list", "A flag.", section="Action"),
    option("--codec", "A codec.", "[NAME]", if_bare="gzip"),
    option("--consumer.config", "A file.", "FILE", instead="--command-config", section=OLDER),
    option("--command-config", "A file.", "FILE"),
    option("--broker-list", "Old.", "HOST", instead="--server", yields=True, section=OLDER),
    option("--server", "New.", "HOST"),
    option("--messages", "Old.", "N", type=Integer(64), instead="--num-records", section=OLDER),
    option("--num-records", "New.", "N", type=Integer(64)),
)
def sample(given: SimpleNamespace) -> int:
    """Takes options.

    A second paragraph is for the manual.
    """
    TAKEN.append(given)
    return 0


def read(*words: str) -> SimpleNamespace:
    with sample.make_context("k sample", list(words)) as context:
        assert sample.invoke(context) == 0
    return TAKEN.pop()


def refusal(*words: str) -> str:
    with pytest.raises(click.UsageError) as caught:
        read(*words)
    return caught.value.format_message()


@pytest.mark.parametrize(
    "words", [("--topic", "a"), ("--topic=a",), ("-topic", "a"), ("-topic=a",), ("--topic=", "a")]
)
def test_all_forms_of_an_option_are_the_same(words):
    assert read(*words).topic == "a"


def test_a_needed_value_is_the_next_word_whatever_it_looks_like():
    assert read("--time", "-1").time == -1
    assert read("--topic", "--list").topic == "--list"
    assert read("--topic", "--").topic == "--"


def test_a_value_may_be_empty_and_hold_equals_signs():
    assert read("--topic", "").topic == ""
    assert read("--config=a=b=c").config == ("a=b=c",)


def test_an_optional_value_stops_at_what_looks_like_an_option():
    assert read("--codec", "--list").codec == "gzip"
    assert read("--codec").codec == "gzip"
    assert read("--codec", "zstd").codec == "zstd"
    assert read("--codec=zstd").codec == "zstd"
    assert read("--codec", "-").codec == "-"


def test_names_are_not_abbreviated():
    assert refusal("--topi", "a") == "topi is not a recognized option (did you mean --topic?)"


def test_an_unknown_word_with_one_dash_is_named_by_its_first_letter():
    assert refusal("-zoo") == "z is not a recognized option"


def test_a_missing_value_is_refused():
    assert refusal("--topic") == "Option topic requires an argument"


def test_only_repeatable_options_may_be_repeated():
    assert read("--config", "a=1", "--config", "b=2").config == ("a=1", "b=2")
    assert read("--list", "--list").list
    assert (
        refusal("--topic", "a", "-topic=b")
        == "Found multiple arguments for option topic, but you asked for only one"
    )


def test_stray_words_and_values_of_flags_are_ignored():
    assert read("stray", "--list=x", "-", "words").list


def test_two_dashes_end_the_options():
    assert not read("--", "--list", "--nonsense").list


@pytest.mark.parametrize("text", ["x", "", " 1", "1_0", "9223372036854775808", "0x1"])
def test_what_is_no_number_is_refused(text):
    assert refusal("--time", text) == f"Cannot parse argument '{text}' of option time"


@pytest.mark.parametrize("text", ["+5", "-9223372036854775808", "007"])
def test_numbers_are_javas(text):
    assert read("--time", text).time == int(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5", 5), ("0.5", 0.5), ("500ms", 0.5), ("1.5s", 1.5), ("5m", 300), ("2h", 7200)],
)
def test_a_duration_is_in_seconds_or_has_a_unit(text, seconds):
    assert read("--patience", text).patience == pytest.approx(seconds)


def test_a_duration_that_kafka_has_is_in_milliseconds_or_has_a_unit():
    assert read("--old-patience", "5000").old_patience == 5
    assert read("--old-patience", "5s").old_patience == 5
    for text, ms in (("5000", 5000), ("-1", -1), ("0", 0), ("2s", 2000), ("1.5m", 90_000)):
        assert read("--linger", text).linger == ms
    assert "Cannot parse argument '2d' of option linger" in refusal("--linger", "2d")


@pytest.mark.parametrize("page", [*NAMES, *JOBS])
def test_each_duration_says_its_unit(page):
    found = job_named(page) if page in JOBS else command_named(page)
    for one in found.options():
        if isinstance(one.type, Duration):
            unit = "seconds" if one.type.unit == "s" else "milliseconds"
            assert re.search(rf"\b{unit}\b", one.help), one.word


@pytest.mark.parametrize("text", ["", "0", "0s", "-1", "5 m", "5d", "s", "1e3", ".5s", "P1D", "٣s"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(click.UsageError, match="of option patience"):
        read("--patience", text)


def test_an_older_spelling_hands_its_value_over():
    given = read("--consumer.config", "f")
    assert given.command_config == "f"
    assert not hasattr(given, "consumer_config")


def test_both_spellings_at_once_are_refused():
    assert (
        refusal("--consumer.config", "a", "--command-config", "b")
        == "Options --consumer.config and --command-config cannot be specified together."
    )


def test_an_older_spelling_that_yields_is_ignored_beside_the_new_one():
    assert read("--broker-list", "old", "--server", "new").server == "new"
    assert read("--broker-list", "old").server == "old"


def test_a_0_is_a_value_of_an_older_spelling_and_beside_one():
    assert read("--messages", "0").num_records == 0
    assert (
        refusal("--num-records", "0", "--messages", "5")
        == "Options --messages and --num-records cannot be specified together."
    )


def test_help_groups_options_and_keeps_older_spellings_last():
    text = sample.get_help(click.Context(sample, info_name="k sample"))
    headings = [line for line in text.splitlines() if line.endswith(":") and line[0] != " "]
    assert headings == ["Options:", "Action:", "Older spellings:", "Examples:"]
    assert "second paragraph" not in text
    assert "A topic.  See k-sample(1)." in text
    assert "  # An example.\n  k sample --topic a" in text
