"""Each format of -o holds the rows that it was given: read back, they are the same."""

import json
import math
import re

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kcli.rows import row_formats
from kcli.rows.listing import FORMATS
from kcli.rows.row_formats import Csv, Json, JsonLines, Table, Template, Yaml
from kcli.rows.shapes import ERROR, RowField, RowShape
from tests.support import rows as support
from tests.support.rows import READ_BACK

# No lone surrogates: no reader of UTF-8 knows them.
HOSTILE = ["", " ", "null", "~", "yes", "1e5", "0x1", "1:20", "- a", "a: b", "#", "'", '"', ","]
HOSTILE += ["\\N", "\\", "\\t", "\t", "\n", "\r\n", "\x00", "\x1b[2J", "\x85", "\u2028", "\ufeff"]
HOSTILE += ["{}", "[]", "[red]", ":smile:", "=1+1", "%s", "\u6f22", "e\u0301", "\U0001f600"]
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(HOSTILE)
INTEGERS = st.integers(-(1 << 63), (1 << 63) - 1)
VALUES = {
    "string": TEXTS,
    "integer": INTEGERS,
    "number": st.floats(allow_nan=False, allow_infinity=False),
    "boolean": st.booleans(),
    "list of integer": st.lists(INTEGERS, max_size=3),
    "list of string": st.lists(TEXTS, max_size=3),
    "map of string": st.dictionaries(TEXTS, st.none() | TEXTS, max_size=3),
}
SHAPE = RowShape(
    "k.test",
    1,
    "A row of every type.",
    tuple(
        RowField(f"{kind.replace(' ', '_')}_{number}", f"{kind}{null}", "A value.")
        for kind in VALUES
        for number, null in enumerate(("", " or null"))
    ),
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            field.name: VALUES[field.plain_type]
            | (st.none() if field.is_nullable else st.nothing())
            for field in SHAPE.fields
        }
    ),
    max_size=3,
)
ERRORS = st.lists(
    st.fixed_dictionaries({"subject": st.none() | TEXTS, "code": TEXTS, "message": TEXTS}),
    max_size=2,
)


def written(writer, rows, errors=()):
    return writer.head() + "".join(map(writer.row, rows)) + writer.tail(errors)


@pytest.mark.parametrize("name", READ_BACK)
@given(rows=ROWS)
def test_rows_are_read_back(name, rows):
    read = support.read(name, written(FORMATS[name](SHAPE), rows), SHAPE)
    assert read == (support.as_csv_tells(rows) if name == "csv" else rows)


@pytest.mark.parametrize(("writer", "read"), [(Json, json.loads), (Yaml, yaml.safe_load)])
@given(rows=ROWS, errors=ERRORS)
def test_a_document_is_its_shape_its_items_and_its_errors(writer, read, rows, errors):
    text = written(writer(SHAPE), rows, errors)
    assert read(text) == {"schema": "k.test/1", "items": rows, "errors": errors}


@given(rows=ROWS, errors=ERRORS)
def test_each_line_is_a_row_or_an_error_and_says_which(rows, errors):
    text = written(JsonLines(SHAPE), rows, errors)
    assert [json.loads(line) for line in text.split("\n")[:-1]] == [
        *({"schema": "k.test/1", **row} for row in rows),
        *({"schema": ERROR.id, **error} for error in errors),
    ]


def test_csv_tells_null_from_an_empty_text():
    shape = RowShape(
        "k.t", 1, "A row.", tuple(RowField(n, "string or null", "A text.") for n in "abd")
    )
    assert Csv(shape).row({"a": None, "b": "", "d": "x"}) == ',"",x\n'


@given(rows=ROWS, errors=ERRORS)
def test_no_document_holds_what_a_terminal_obeys(rows, errors):
    for writer in (Json, JsonLines, Yaml):
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", written(writer(SHAPE), rows, errors))


@settings(max_examples=20)
@given(ROWS, st.sampled_from([None, 20, 80]))
@example([], None)
def test_a_table_has_a_heading_and_nothing_that_breaks_its_lines(rows, columns):
    text = written(Table(SHAPE, columns), rows)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
    if columns is None:
        assert text.split()[: len(SHAPE.names)] == [name.upper() for name in SHAPE.names]
        assert text.count("\n") == 1 + len(rows)


def test_a_table_aligns_texts_left_and_numbers_right(monkeypatch):
    shape = RowShape(
        "k.t",
        1,
        "A row.",
        (RowField("topic", "string", "One."), RowField("size", "integer", "Two.")),
    )
    rows = [{"topic": "漢字", "size": 7}, {"topic": "[b]x[/b]", "size": 12345}]
    assert written(Table(shape, None), rows).splitlines() == [
        "TOPIC      SIZE",
        "漢字          7",
        "[b]x[/b]  12345",
    ]
    monkeypatch.setattr(row_formats, "TABLE_PAGE_ROWS", 2)
    assert written(Table(shape, None), rows * 2).count("TOPIC") == 2


def narrow(columns, **values):
    fields = tuple(RowField(name, "string", "One.") for name in values)
    return written(Table(RowShape("k.t", 1, "A row.", fields), columns), [values]).splitlines()


def test_a_table_on_a_narrow_terminal_breaks_no_value():
    assert narrow(10, topic="0123456789abcdef") == ["TOPIC", "0123456789abcdef"]
    assert narrow(20, id="0123456789abcdef", size="1234567") == [
        "ID",
        "0123456789abcdef",
        "... too wide for this terminal: SIZE",
    ]
    assert narrow(27, id="0123456789abcdef", size="1234567") == [
        "ID                SIZE",
        "0123456789abcdef  1234567",
    ]


def test_a_table_on_a_narrow_terminal_leaves_out_what_does_not_fit_and_wraps_texts():
    assert narrow(22, topic="orders", config="x" * 30, why="no leader since noon") == [
        "TOPIC   WHY",
        "orders  no leader",
        "        since noon",
        "... too wide for this terminal: CONFIG",
    ]
    assert narrow(None, topic="orders", why="no leader") == ["TOPIC   WHY", "orders  no leader"]


ROW = {
    "topic": "orders",
    "partition": 3,
    "isr": [1, 2],
    "configs": {"a": "b", "c": None},
    "p99": 1.25,
    "leader": None,
}
KINDS = ["string", "integer", "list of integer", "map of string", "number", "integer or null"]
OWN = RowShape(
    "k.t",
    1,
    "A row.",
    tuple(RowField(name, kind, "A value.") for name, kind in zip(ROW, KINDS, strict=True)),
)


@pytest.mark.parametrize(
    ("template", "line"),
    [
        ("{topic} {partition}", "orders 3"),
        ("", ""),
        ("{topic:8}|{topic:>8}|{topic:^8}|", "orders  |  orders| orders |"),
        ("{isr} {configs} {leader}", "1,2 a=b,c=- -"),
        ("{p99} {p99:.1f} {p99:>8.3f} {partition:.2f} {leader:.1f}", "1.25 1.2    1.250 3.00 -"),
        (r"{{}}\t\n\\t\x", "{}\t\n\\t\\x"),
    ],
)
def test_a_template_is_filled_in(template, line):
    assert Template(OWN, template).row(ROW) == line + "\n"


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{lag}", "there is no field 'lag'; known are topic, partition, isr, configs, p99, leader"),
        ("{topic.__class__}", "there is no field 'topic.__class__'"),
        ("{isr[0]}", "there is no field"),
        ("{}", "there is no field ''"),
        ("{topic", "a brace that stands for itself is written twice"),
        ("}", "a brace that stands for itself is written twice"),
        ("{topic!r}", "{topic!r} is not a format of string"),
        ("{topic:.2f}", "{topic:.2f} is not a format of string"),
        ("{partition:x}", "{partition:x} is not a format of integer"),
        ("{partition:1000000000}", "is not a format of integer"),
        ("{topic:{topic}}", "is not a format of string"),
    ],
)
def test_a_template_that_cannot_be_filled_in_is_refused(template, why):
    with pytest.raises(ValueError, match=re.escape(why)):
        Template(OWN, template)


@given(st.text(st.sampled_from("{}:<>.!f019\\tn") | st.characters(), max_size=12))
def test_any_template_is_filled_in_or_refused(template):
    try:
        parsed = Template(OWN, template)
    except ValueError:
        return
    assert parsed.row(ROW).endswith("\n")


def test_there_is_no_number_beyond_the_finite():
    shape = RowShape("k.t", 1, "A row.", (RowField("p99", "number or null", "A value."),))
    for value in (math.nan, math.inf, -math.inf):
        assert json.loads(written(Json(shape), [{"p99": value}]))["items"] == [{"p99": None}]
        assert Template(shape, "{p99} {p99:.1f}").row({"p99": value}) == "- -\n"


def test_large_numbers_are_numbers_to_old_readers_of_yaml():
    shape = RowShape("k.t", 1, "A row.", (RowField("rate", "number", "A value."),))
    for value in (1e16, 1.5e300, 5e-324, 0.1):
        text = written(Yaml(shape), [{"rate": value}])
        assert yaml.safe_load(text)["items"] == [{"rate": value}]
