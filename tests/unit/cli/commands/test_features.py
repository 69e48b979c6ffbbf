"""`k features`: what its words mean together, and what needs no cluster."""

import pytest

from kcli.main import main


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("", "name exactly one action: describe, upgrade, "),
        ("describe --feature a=1", "--feature is not allowed with describe"),
        ("upgrade --unsafe", "--unsafe is not allowed with upgrade"),
        ("disable --feature a -o json", "--output is not allowed with disable"),
        ("feature-dependencies", "argument --feature is required"),
        (
            "describe --bootstrap-server a:1 --bootstrap-controller b:1",
            'Option "[bootstrap-controller]" can\'t be used with option "[bootstrap-server]"',
        ),
    ],
)
def test_words_that_make_no_sense_are_a_usage_error(words, why, capsys):
    assert main(["features", *words.split()]) == 2
    assert capsys.readouterr().err.startswith(f"k features: {why}")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("upgrade", "You must specify at least one feature to upgrade"),
        ("disable", "You must specify at least one feature to disable"),
        ("upgrade --feature a", "Can't parse feature=level string a: equals sign not found."),
        (
            "downgrade --feature a=x",
            "Can't parse feature=level string a=x: unable to parse x as a short.",
        ),
        (
            "upgrade --feature a=40000",
            "Can't parse feature=level string a=40000: unable to parse 40000 as a short.",
        ),
        ("upgrade --feature a=1 --feature a=2", "Feature a was specified more than once."),
        ("disable --feature a --feature a", "Feature a was specified more than once."),
        (
            "upgrade --release-version 4.0 --feature a=1",
            "Can not specify `release-version` with other feature flags.",
        ),
        ("upgrade --metadata 1.0", "Unknown metadata.version '1.0'. Supported metadata.version "),
        ("version-mapping --release-version x", "Unknown metadata.version 'x'. Supported "),
        ("feature-dependencies --feature a=1", "Unknown feature: a"),
        ("feature-dependencies --feature metadata.version=1", "Unknown metadata.version 1"),
        (
            "feature-dependencies --feature group.version=2",
            "No feature:group.version with feature level 2",
        ),
    ],
)
def test_what_nobody_need_be_asked_is_refused_at_once(words, why, capsys):
    assert main(["features", *words.split()]) == 1
    assert capsys.readouterr().err.startswith(f"k features: {why}")


def test_releases_and_needs_are_printed_as_kafkas_tool_does(capsys):
    assert main(["features", "version-mapping", "--release-version", "4.0"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "metadata.version=25 (4.0)",
        "kraft.version=1",
        "transaction.version=2",
        "group.version=1",
        "eligible.leader.replicas.version=0",
        "share.version=0",
        "streams.version=0",
    ]
    named = ["metadata.version=20", "eligible.leader.replicas.version=1", "group.version=1"]
    words = [word for one in named for word in ("--feature", one)]
    assert main(["features", "feature-dependencies", *words]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "metadata.version=20 (3.8-IV0) has no dependencies.",
        "eligible.leader.replicas.version=1 requires:",
        "    metadata.version=23 (4.0-IV1)",
        "group.version=1 has no dependencies.",
    ]
