"""What the manual pages and --help say is what the code declares."""

from __future__ import annotations

import shlex

import click
import pytest

from kcli import manual
from kcli.command.command import Command, Option, command_named
from kcli.command.command_list import COMMANDS
from kcli.commands.shapes import declared
from kcli.main import main
from kcli.rows.listing import shapes_of
from kcli.spark import jobs
from kcli.spark.jobs import JOBS, job_named
from kcli.spark.submission import Submission
from kserver.metrics import catalog

PAGES = manual.pages()
REFERENCES = {name.rpartition(".")[0] for name in PAGES}


def spoken(page: str) -> str:
    """A page's text without roff's escapes and fonts."""
    for escape in ("\\fB", "\\fI", "\\fR", "\\&"):
        page = page.replace(escape, "")
    return page.replace("\\-", "-").replace("\\(aq", "'").replace("\\(ti", "~").replace("\\e", "\\")


@pytest.fixture(params=[(name,) for name in manual.NAMES] + [("spark-submit", j) for j in JOBS])
def words(request) -> tuple[str, ...]:
    """The words that name a command, or a job of one."""
    return request.param


@pytest.fixture
def command(words) -> Command:
    return command_named(words[0]) if len(words) == 1 else job_named(words[1])


@pytest.fixture
def page(words) -> str:
    return PAGES[f"k-{'-'.join(words)}.1"]


def test_every_page_is_what_its_declarations_say():
    assert manual.main(["--check"]) == 0


def test_there_are_no_other_pages():
    assert {path.name for path in manual.MAN.iterdir()} == set(PAGES)


def test_every_command_is_in_the_overview_and_has_a_page():
    for commands in COMMANDS.values():
        for name, summary in commands.items():
            assert f"k-{name}.1" in PAGES
            assert f"{summary[1:]}." in spoken(PAGES["k.1"])


def test_every_option_is_documented_in_help_and_page(words, command, page, capsys):
    page = spoken(page)
    assert main([*words, "--help"]) == 0
    help = capsys.readouterr().out
    for param in command.get_params(click.Context(command)):
        if isinstance(param, click.Option):
            assert f"\n{param.opts[0]}" in page, param.opts
            assert f"\n  {param.opts[0]}" in help, param.opts
            assert param.help, param.opts
            assert param.help.endswith("."), param.opts


def test_every_section_is_there(command, page):
    headings = [line.removeprefix(".SH ") for line in page.splitlines() if line[:4] == ".SH "]
    assert headings == [
        "NAME",
        "SYNOPSIS",
        "DESCRIPTION",
        "OPTIONS",
        *(["OUTPUT"] if shapes_of(command) else []),
        "EXIT STATUS",
        "ENVIRONMENT",
        "EXAMPLES",
        "DIFFERENCES FROM KAFKA",
        "SEE ALSO",
    ]
    assert command.manual.kafka in spoken(page)


def test_every_metric_is_documented_with_its_labels_and_what_kafka_calls_it():
    page = spoken(PAGES["k-metrics.7"])
    for metrics in catalog.SECTIONS.values():
        for metric in metrics:
            labels = f" {{{', '.join(metric.labels)}}}" if metric.labels else ""
            assert f"\n{metric.exposed()}{labels}\n" in page
            assert metric.mbean in page


@pytest.mark.parametrize(("command", "shape"), declared().values(), ids=declared())
def test_every_field_of_every_shape_is_documented(command, shape):
    page = spoken(PAGES[f"k-{command.replace(' ', '-')}.1" if command else "k-shapes.7"])
    assert f"\n.SS {shape.id}\n" in page
    for field in shape.fields:
        assert f"\n{field.name} ({field.type})\n{spoken(manual._text(field.doc))}\n" in page
        assert field.doc.endswith("."), field.name


def test_every_example_can_be_read(words, command):
    for line, _ in command.manual.examples:
        typed = shlex.split(line.replace("\\\n", " "))
        typed = typed[typed.index("k") + 1 :]
        assert typed[0] == words[0]
        for end in (">", "<", "|"):
            typed = typed[: typed.index(end)] if end in typed else typed
        submitted = Submission.of(typed[1:], JOBS)
        if words[0] == "spark-submit" and submitted.job is not None and "--help" not in typed:
            jobs.read(submitted.job, submitted.words)
        if len(words) == 1:
            command.make_context("k", typed[1:]).close()
        else:
            assert submitted.job == words[1]


def test_an_older_spelling_leads_to_an_option(command):
    names = {name for option in command.options() for name in option.opts}
    for option in command.options():
        assert isinstance(option, Option)
        assert option.instead is None or option.instead in names


def test_every_page_referred_to_exists(command):
    for name in command.manual.see_also:
        assert name.partition("(")[0] in REFERENCES
