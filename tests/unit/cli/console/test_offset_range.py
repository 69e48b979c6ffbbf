"""--offset says where to read, in rpk's grammar."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcli.console import offset_range
from kcli.console.offset_range import (
    AfterStart,
    Edge,
    Exact,
    Last,
    Malformed,
    OffsetRange,
    Since,
    parse,
)

NOW_MS = 1_700_000_000_000
MINUTE_MS = 60_000
START, END = Edge.START, Edge.END
DAY_MS = 1_644_796_800_000
"""2022-02-14."""


@pytest.mark.parametrize(
    ("text", "start", "stop"),
    [
        ("start", START, None),
        ("oldest", START, None),
        ("Earliest", START, None),
        ("end", END, None),
        ("newest", END, None),
        ("latest", END, None),
        ("47", Exact(47), None),
        ("47:", Exact(47), None),
        ("+5", AfterStart(5), None),
        ("-10", Last(10), None),
        ("10:20", Exact(10), Exact(20)),
        ("10-20", Exact(10), Exact(20)),
        (":20", START, Exact(20)),
        ("47:end", Exact(47), END),
        ("+5:end", AfterStart(5), END),
        ("-10:end", Last(10), END),
        (":end", START, END),
        (str((1 << 63) - 1), Exact((1 << 63) - 1), None),
        ("@1700000000000", Since(NOW_MS), None),
        ("@1700000000", Since(NOW_MS), None),
        ("@1700000000:", Since(NOW_MS), None),
        ("@-10m", Since(NOW_MS - 10 * MINUTE_MS), None),
        ("@-10m:-5m", Since(NOW_MS - 10 * MINUTE_MS), Since(NOW_MS - 5 * MINUTE_MS)),
        ("@-1h30m:1s", Since(NOW_MS - 90 * MINUTE_MS), Since(NOW_MS + 1000)),
        ("@-1.5h:end", Since(NOW_MS - 90 * MINUTE_MS), END),
        ("@-2d", Since(NOW_MS - 2 * 1440 * MINUTE_MS), None),
        ("@-3ms", Since(NOW_MS - 3), None),
        ("@:-1h", START, Since(NOW_MS - 60 * MINUTE_MS)),
        ("@2022-02-14", Since(DAY_MS), None),
        ("@2022-02-14:1h", Since(DAY_MS), Since(DAY_MS + 60 * MINUTE_MS)),
        ("@2022-02-14:2022-02-15", Since(DAY_MS), Since(DAY_MS + 1440 * MINUTE_MS)),
        ("@2022-02-14T00:01:1m", Since(DAY_MS + MINUTE_MS), Since(DAY_MS + 2 * MINUTE_MS)),
        ("@2022-02-14T00:00:00.5Z:end", Since(DAY_MS + 500), END),
        ("@2022-02-14T01:00+01:00", Since(DAY_MS), None),
        (
            "@2022-02-14T00:00:00Z:2022-02-14T00:00:01Z",
            Since(DAY_MS),
            Since(DAY_MS + 1000),
        ),
        ("@1700000000000:1700000000001", Since(NOW_MS), Since(NOW_MS + 1)),
        ("@-9999999d", Since(0), None),
    ],
)
def test_a_text_stands_for_a_range(text, start, stop):
    assert parse(text, NOW_MS) == OffsetRange(start, stop)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "-",
        "--1",
        "-0",
        "x",
        "1x",
        "1:2:3",
        "20:10",
        "10:10",
        "10-",
        "-10-5",
        "10-end",
        "1:-5",
        str(1 << 63),
        "9" * 5000,
        "@",
        "@:",
        "@end",
        "@12",
        "@-5m:-10m",
        "@2022-02-30",
        "@2022-02-14T25:00",
        "@1h:x",
        "@-10m:-5m:",
        "@-1y",
    ],
)
def test_what_is_no_range_is_refused(text):
    with pytest.raises(Malformed):
        parse(text, NOW_MS)


@given(st.text(alphabet="0123456789:-+@ msthdTZend.", max_size=24))
def test_any_text_is_a_range_or_refused(text):
    try:
        found = parse(text, NOW_MS)
    except Malformed:
        return
    assert isinstance(found, OffsetRange)


def test_each_form_in_the_table_can_be_read():
    """The docstring is what the manual page shows."""
    table = (offset_range.__doc__ or "").split("TIME    1700000000000")[0]
    forms = [line[4:31].split() for line in table.splitlines() if line.startswith("    ")]
    texts = [text for form in forms for text in form]
    assert len(texts) > 20
    for text in texts:
        assert parse(text.replace("TIME:TIME", "-2h:-1h").replace("TIME", "-1h"), NOW_MS)
