"""The manual pages, generated from the declarations that --help and the parser read.

python -m kcli.manual            write man/k.1, man/k-<command>.1 and man/kserver.properties.5
python -m kcli.manual --check    exit status 1 if a page is outdated
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from kcli import replacement_texts
from kcli.command.command import OLDER, Command, Duration, Option, command_named, paragraphs
from kcli.command.command_list import COMMANDS
from kcli.command.options import DEFAULT_SERVER, SERVER_VARIABLE
from kcli.command.statuses import FOUND, TIMED_OUT
from kcli.rows.listing import shapes_of
from kcli.rows.shapes import ERROR, RowShape
from kcli.spark import manual_texts, option_docs
from kcli.spark.jobs import JOBS, job_named
from kserver.config import manual as settings
from kserver.metrics import catalog
from kserver.metrics.names import JMX, METER, REPORTER, SUMMARY, Metric

MAN = Path(__file__).parents[1] / "man"
TOPICS = ("metrics", "replace-brokers", "shapes", "spark")
NAMES = [name for group in COMMANDS.values() for name in group]
SUBMIT = "spark-submit"
SUMMARIES = {name: text for group in COMMANDS.values() for name, text in group.items()}

STATUSES = (
    (0, "Success, or the reader closed standard output."),
    (1, "Refused, or at least one item failed; the reason is on standard error."),
    (2, "Invalid command line."),
    (3, "A requested check found a problem."),
    (124, "--timeout expired, or the cluster could not be reached in time."),
    (130, "Ended by Ctrl-C."),
)
ENVIRONMENT = (
    (SERVER_VARIABLE, "Brokers to connect to first, if --bootstrap-server is not given."),
    ("K_DEBUG", "Set to 1 to print a traceback on an internal error."),
)
DIFFERENCES = (
    "Standard output is the same as that of the scripts of Kafka 4.3.1; standard error has its "
    "own wording, a line for each reason, without log lines and Java stack traces.",
    "An invalid command line ends with exit status 2 and one line with the reason; Kafka's "
    "scripts end with 1 and print all their options.",
    "--help prints on standard output and ends with 0; Kafka's scripts print on standard error and "
    "end with 1.",
    "--version prints the version of k.",
)
WITH_SERVER = (
    f"--bootstrap-server is not required: bootstrap.servers of --command-config, "
    f"${SERVER_VARIABLE} and {DEFAULT_SERVER} stand in for it, in this order.",
)
OWN_TIMEOUTS = ("timeout", "idle-timeout")
WITH_TIMEOUT = (
    "If the cluster cannot be reached in time, the exit status is 124; with Kafka's scripts it "
    "is 1, or 0.",
    "--timeout TIME limits the whole command; Kafka's scripts have no such option.",
    "On a terminal, control characters in data from the cluster are printed as \\xNN.",
    "Patterns are regular expressions in Java's dialect; \\G, \\X, \\b{g}, the flags u and U and "
    "classes by script or block are refused.",
)
INTRODUCTION = """
k is one command for all of Kafka's tools: k topics takes the options of kafka-topics.sh and prints
what it prints, and so on for each command below.  Scripts that call Kafka's tools can call k in
their place.

Options are read as Kafka's tools read them: --topic orders, --topic=orders and -topic orders are
the same; names are not abbreviated; a value that is needed is the next word, whatever it looks
like; words that no option needs are ignored.  Options of Kafka 2.8 to 4.3 are accepted, in older
and newer spellings.
"""
EXAMPLES = (
    ("k server-start", "A broker on 127.0.0.1:9092, with its data in ~/.local/share/k."),
    ("k topics --create --topic greetings", "A topic."),
    ("echo hello | k console-producer --topic greetings", "A record."),
    ("k console-consumer --topic greetings --from-beginning", "And back."),
)

FORMATS_INTRODUCTION = """ Commands that list, describe or measure print Kafka's own text by
default, and with -o or --output rows in one of the formats below.  OUTPUT in the page of the
command describes the fields of a row; k shapes prints the same for programs, with --schema as JSON
Schema.

Rows are printed as they arrive.  If an error or a signal ends a command early, the document
contains it too: json and yaml are whole documents whenever the command could end by itself.  Text
is UTF-8.  On a terminal, control characters are shown as \\xNN, whatever the format.
"""
FORMATS = (
    (
        "json",
        'One document: {"schema": the shape with its version, "items": [the rows], "errors": [what '
        "went wrong]}, a line for each row.",
    ),
    (
        "jsonl",
        "An object for each row, on a line of its own, with its shape in schema.  Errors follow, "
        "as lines whose schema is k.error/1.",
    ),
    ("yaml", "The document of json in block style; every text is in quotes."),
    (
        "csv",
        "RFC 4180 with a heading, lines ended by a line feed.  Null is nothing, an empty text is "
        "two quotes, lists and maps are JSON.  Texts are as they are: a spreadsheet may take one "
        "that begins with = for a formula.",
    ),
    (
        "tsv",
        "A line for each row, with a heading.  Tab, line feed, carriage return and backslash are "
        "written \\t, \\n, \\r and \\\\, null \\N; lists and maps are JSON.",
    ),
    (
        "table",
        "Columns for people.  Null is -.  On a terminal, columns that do not fit are left out and "
        "named below; a pipe or a file gets all.  Its layout may change; programs read another "
        "format.",
    ),
    (
        "template=TEXT",
        "A line for each row: the text, with {topic} replaced by that field.  {topic:20} fills "
        "up to 20 characters, {topic:>20} in front, {latency_ms:.1f} has one decimal; {{ and }} "
        "are braces, \\t, \\n and \\\\ a tab, a line feed and a backslash.  Null is -, lists "
        "have commas.  An unknown field is a usage error, which names the known fields.",
    ),
)
ERRORS = """ Refused or failed items are reported on standard error in every format, and make the
exit status 1, or 124 after a timeout.  json, jsonl and yaml also contain these errors next to the
rows, so that one item's failure does not lose the rows of others.
"""
VERSIONS = """
A shape is named with its version, such as k.topics.describe/1.  Within a version fields are only
added, at the end; a field that goes, or whose meaning or type changes, makes the next version.
"""
FORMATS_EXAMPLES = (
    ("k topics --list -o jsonl | jq -r .topic", "Names alone."),
    (
        "k topics --describe -o json | jq '.items[] | select(.under_replicated)'",
        "Partitions with a replica out of sync.",
    ),
    ("k get-offsets -o template='{topic}-{partition}\\t{offset}'", "Two columns."),
)


METRICS_INTRODUCTION = """
With http.listener in its properties a broker answers over HTTP, to GET and HEAD and without
authentication:

/metrics returns the metrics, in Prometheus' text format 0.0.4.

/healthz is 200 as long as the broker's loop turns.

/readyz is 200 while clients are accepted and a log directory works, otherwise 503 with the reason,
also while the broker starts and stops.

Requests are limited to 8 KiB and 5 seconds, answers to 30 seconds, connections to 64 at a time.
"""
METRICS_NAMES = f""" Metrics have Kafka's own MBean names, listed with each.  Their names in
Prometheus are those of its JMX exporter with the rules of its Kafka example, so that dashboards for
Kafka work: metrics.naming={JMX}, the default, and the names below.  With metrics.naming={REPORTER}
they are those of Strimzi's metrics reporter: PerSec and Percent stay part of the name, as in
kafka_server_brokertopicmetrics_messagesinpersec_total.

Counters start at 0 with the broker.  Counters of topics are exported for each topic, and once
without the label for all topics together, including deleted ones.  Metrics of a partition are
exported by its leader.

Of a summary there are the quantiles 0.50, 0.75, 0.95, 0.98, 0.99 and 0.999, none too low and none a
fifth too high, of the last metrics.num.samples times metrics.sample.window.ms; and, since the
start, count and sum.
"""
METRICS_EXAMPLES = (
    (
        "k server-start --override http.listener=127.0.0.1:9404",
        "A broker that can be watched from this machine.",
    ),
    ("curl -s http://127.0.0.1:9404/metrics", "Everything that is measured."),
    (
        'rate(kafka_server_brokertopicmetrics_messagesin_total{topic!=""}[1m])',
        "In Prometheus: records a second, by topic.",
    ),
)


def main(words: list[str]) -> int:
    stale = [name for name, text in pages().items() if _existing_page(name) != text]
    if "--check" in words:
        for name in stale:
            print(f"man/{name} is not what its declarations say: run python -m kcli.manual")
        return 1 if stale else 0
    MAN.mkdir(exist_ok=True)
    for name in stale:
        (MAN / name).write_text(pages()[name])
        print(f"man/{name}")
    return 0


def pages() -> dict[str, str]:
    """Return all pages by file name."""
    of_commands = {f"k-{name}.1": _command_page(name, command_named(name)) for name in NAMES}
    of_jobs = {f"k-{SUBMIT}-{name}.1": _job_page(name) for name in JOBS}
    return {
        "k.1": _overview_page(),
        **of_commands,
        **of_jobs,
        "k-metrics.7": _metrics_page(),
        "k-replace-brokers.7": _replacement_page(),
        "k-shapes.7": _formats_page(),
        "k-spark.7": _spark_page(),
        "kserver.properties.5": settings.manual(),
    }


def _existing_page(name: str) -> str | None:
    path = MAN / name
    return path.read_text() if path.exists() else None


def _overview_page() -> str:
    return _page(
        "k",
        "Kafka in Python: one command for all of Kafka's tools",
        [".B k", r"\fICOMMAND\fR [\fIOPTIONS\fR]", ".br", r".B k \-\-version"],
        INTRODUCTION,
        _overview_options(),
        STATUSES,
        ENVIRONMENT,
        EXAMPLES,
        (*DIFFERENCES, *WITH_SERVER, *WITH_TIMEOUT),
        [
            *(f"k-{name}" for name in NAMES),
            *(f"k-{name}(7)" for name in TOPICS),
            "kserver.properties(5)",
        ],
    )


def _overview_options() -> Iterator[str]:
    yield ".SH OPTIONS"
    yield from _entry(r"\fB\-\-version\fR", "Print the version and exit.")
    yield from _entry(
        r"\fB\-\-help\fR", "Print the commands, or after a command its options, and exit."
    )
    yield ".SH COMMANDS"
    for group, commands in COMMANDS.items():
        yield f".SS {_text(group)}"
        for name, summary in commands.items():
            title = rf"\fBk\-{_literal(name)}\fR(1)"
            yield from _entry(title, f"{summary[0].upper()}{summary[1:]}.")


def _job_page(name: str) -> str:
    synopsis = [
        f".B k {_literal(SUBMIT)}",
        rf"[\fISPARK\-OPTIONS\fR] \fB{name}\fR [\fIOPTIONS\fR]",
    ]
    return _command_page(f"{SUBMIT}-{name}", job_named(name), JOBS[name], synopsis)


def _command_page(
    name: str, command: Command, summary: str = "", synopsis: Iterable[str] = ()
) -> str:
    manual = command.manual
    asks_cluster = any(option.word == "bootstrap-server" for option in command.options())
    has_timeout = any(
        option.word in OWN_TIMEOUTS
        and option.type.__class__ is Duration
        and option.type.unit == "s"
        for option in command.options()
    )
    rare = {FOUND} if has_timeout else {FOUND, TIMED_OUT}
    common = {status: text for status, text in STATUSES if status not in rare}
    statuses = sorted((common | dict(manual.statuses)).items())
    environment = [pair for pair in ENVIRONMENT if asks_cluster or pair[0] != SERVER_VARIABLE]
    differences = [
        *manual.differences,
        *DIFFERENCES,
        *(WITH_SERVER if asks_cluster else ()),
        *(WITH_TIMEOUT if has_timeout else ()),
    ]
    shapes = shapes_of(command)
    arguments = "".join(
        rf" \fI{_literal(p.metavar or '')}\fR"
        for p in command.params
        if isinstance(p, click.Argument)
    )
    return _page(
        f"k-{name}",
        summary or SUMMARIES[name],
        synopsis or [f".B k {_literal(name)}", rf"[\fIOPTIONS\fR]{arguments}"],
        command.help or "",
        (*_options(command), *(_jobs() if name == SUBMIT else ()), *_rows(command)),
        statuses,
        (*manual.environment, *environment),
        manual.examples,
        differences,
        ["k", *(["k-shapes(7)"] if shapes else []), *manual.see_also],
        f"The command replaces {manual.kafka}, with the differences listed here."
        if manual.kafka
        else "",
    )


def _options(command: Command) -> Iterator[str]:
    yield ".SH OPTIONS"
    context = click.Context(command)
    sections: dict[str, list[tuple[str, str]]] = {}
    for param in command.get_params(context):
        if isinstance(param, click.Option):
            section = getattr(param, "section", "Options")
            sections.setdefault(section, []).append((_title(param), param.help or ""))
    if OLDER in sections:
        sections[OLDER] = sections.pop(OLDER)
    for section, entries in sections.items():
        yield f".SS {_text(section)}"
        for title, help in entries:
            yield from _entry(title, help)


def _jobs() -> Iterator[str]:
    yield ".SS Jobs"
    for name, summary in JOBS.items():
        title = rf"\fB{_literal(name)}\fR"
        yield from _entry(title, f"{summary[0].upper()}{summary[1:]}: k-{SUBMIT}-{name}(1).")


def _rows(command: Command) -> Iterator[str]:
    """Yield the fields of the rows of -o."""
    shapes = shapes_of(command)
    if shapes:
        yield ".SH OUTPUT"
        yield _text("Fields of the rows of --output; k-shapes(7) describes the formats.")
    for shape in shapes:
        yield from _shape(shape)


def _shape(shape: RowShape) -> Iterator[str]:
    yield f".SS {_literal(shape.id)}"
    yield _text(shape.doc)
    for field in shape.fields:
        yield from _entry(rf"\fB{field.name}\fR (\fI{field.type}\fR)", field.doc)


def _title(option: click.Option) -> str:
    name = ", ".join(rf"\fB{_literal(word)}\fR" for word in option.opts)
    if option.is_flag:
        return name
    assert option.metavar is not None
    optional = isinstance(option, Option) and option.if_bare is not None
    metavar = option.metavar
    if metavar.startswith("[") and metavar.endswith("]"):
        metavar = metavar[1:-1]
    value = rf"\fI{_literal(metavar)}\fR"
    return f"{name} [{value}]" if optional else f"{name} {value}"


def _formats_page() -> str:
    lines = [
        *_head("k-shapes", 7, "the rows of -o: formats, errors, versions"),
        ".SH DESCRIPTION",
        *_paragraphs(FORMATS_INTRODUCTION),
        ".SH FORMATS",
        *(line for name, text in FORMATS for line in _entry(rf"\fB{_literal(name)}\fR", text)),
        ".SH ERRORS",
        *_paragraphs(ERRORS),
        *_shape(ERROR),
        ".SH VERSIONS",
        *_paragraphs(VERSIONS),
        ".SH EXAMPLES",
        *[line for command, use in FORMATS_EXAMPLES for line in _example(command, use)][1:],
        ".SH SEE ALSO",
        ",\n".join(_reference(name) for name in ("k", "k-shapes")),
    ]
    return "\n".join(lines) + "\n"


def _metrics_page() -> str:
    lines = [
        *_head("k-metrics", 7, "metrics of a broker, and how to read them"),
        ".SH DESCRIPTION",
        *_paragraphs(METRICS_INTRODUCTION),
        ".SH NAMES",
        *_paragraphs(METRICS_NAMES),
    ]
    for title, metrics in catalog.SECTIONS.items():
        lines.append(f".SH {title.upper()}")
        for metric in metrics:
            lines += _metric(metric)
    lines += [
        ".SH EXAMPLES",
        *[line for command, use in METRICS_EXAMPLES for line in _example(command, use)][1:],
        ".SH SEE ALSO",
        ",\n".join(_reference(name) for name in ("k-server-start", "kserver.properties(5)")),
    ]
    return "\n".join(lines) + "\n"


def _metric(metric: Metric) -> Iterator[str]:
    labels = ", ".join(metric.labels)
    title = rf"\fB{_literal(metric.exposed())}\fR" + (f" {{{labels}}}" if labels else "")
    kind = {METER: "Counter", SUMMARY: "Summary"}.get(metric.kind, "Gauge")
    yield from _entry(title, f"{metric.doc}.")
    yield ".br"
    yield f"{kind}; {_literal(metric.mbean)}." if metric.mbean else f"{kind}."


def _replacement_page() -> str:
    return "\n".join(
        [
            *_head("k-replace-brokers", 7, "a cluster of Apache Kafka moved to k, and back"),
            ".SH DESCRIPTION",
            *_paragraphs(replacement_texts.INTRODUCTION),
            ".SH WHAT IT NEEDS",
            *_bullets(replacement_texts.NEEDS),
            ".SH STEPS",
            *_paragraphs(replacement_texts.STEPS),
            *(
                line
                for title, note in replacement_texts.NOTES.items()
                for line in (f".SH {title.upper()}", *_paragraphs(note))
            ),
            ".SH SEE ALSO",
            ",\n".join(
                _reference(name)
                for name in ("k-server-start", "k-topics", "k-features", "kserver.properties(5)")
            ),
            "",
        ]
    )


def _spark_page() -> str:
    lines = [
        *_head("k-spark", 7, "topics as tables and streams of Spark"),
        ".SH DESCRIPTION",
        *_paragraphs(manual_texts.INTRODUCTION),
    ]
    for title, options in (*option_docs.SECTIONS.items(), *option_docs.WRITE_SECTIONS.items()):
        lines.append(f".SH {title.upper()}")
        for option in options:
            values = f" {_literal(option.values)}" if option.values else ""
            name = rf"\fB{_literal(option.name)}\fR"
            default = f"  Default: {option.default}." if option.default else ""
            lines += _entry(name + values, option.doc + default)
    for title, note in manual_texts.NOTES.items():
        lines += [f".SH {title.upper()}", *_paragraphs(note)]
    for title, types in manual_texts.TYPES.items():
        lines.append(f".SH {title.upper()}")
        lines += [line for name, takes in types for line in _entry(_literal(name), takes)]
    lines += [
        ".SH EXAMPLES",
        *[line for command, use in manual_texts.EXAMPLES for line in _example(command, use)][1:],
        ".SH DIFFERENCES FROM SPARK'S OWN SOURCE",
        *_bullets(manual_texts.DIFFERENCES),
        ".SH SEE ALSO",
        _reference("k-spark-submit"),
    ]
    return "\n".join(lines) + "\n"


def _head(name: str, section: int, summary: str) -> list[str]:
    return [
        r'.\" Made from kcli by "python -m kcli.manual"; edit the declarations there.',
        f'.TH {_literal(name.upper())} {section} "" k "Commands of k"',
        ".SH NAME",
        rf"{_literal(name)} \- {_text(summary)}",
    ]


def _page(
    name: str,
    summary: str,
    synopsis: Iterable[str],
    description: str,
    options: Iterable[str],
    statuses: Iterable[tuple[int, str]],
    environment: Iterable[tuple[str, str]],
    examples: Iterable[tuple[str, str]],
    differences: Iterable[str],
    see_also: Iterable[str],
    before_differences: str = "",
) -> str:
    lines = [
        *_head(name, 1, summary),
        ".SH SYNOPSIS",
        *synopsis,
        ".SH DESCRIPTION",
        *_paragraphs(description),
        *options,
        ".SH EXIT STATUS",
        *(line for status, text in statuses for line in _entry(rf"\fB{status}\fR", text)),
        ".SH ENVIRONMENT",
        *(line for key, text in environment for line in _entry(rf"\fB{key}\fR", text)),
        ".SH EXAMPLES",
        *[line for command, use in examples for line in _example(command, use)][1:],
        ".SH DIFFERENCES FROM KAFKA",
        *([_text(before_differences)] if before_differences else []),
        *_bullets(differences),
        ".SH SEE ALSO",
        ",\n".join(_reference(other) for other in see_also),
    ]
    return "\n".join(lines) + "\n"


def _bullets(texts: Iterable[str]) -> list[str]:
    return [line for text in texts for line in (r".IP \(bu 2", _text(text))]


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(paragraphs(text)):
        if number:
            yield ".PP"
        yield _text(paragraph)


def _entry(title: str, text: str) -> Iterator[str]:
    yield ".TP"
    yield title
    yield _text(text)


def _example(command: str, use: str) -> Iterator[str]:
    yield ".PP"
    yield _text(use)
    yield ".RS 4"
    yield ".nf"
    yield _literal(command)
    yield ".fi"
    yield ".RE"


def _reference(name: str) -> str:
    title, _, section = name.partition("(")
    return rf"\fB{_literal(title)}\fR({section.rstrip(')') or 1})"


_CHARACTERS = {"\\": r"\e", "~": r"\(ti", "^": r"\(ha", "`": r"\(ga"}
_OPTION = re.compile(r"(?<![\w-])--?[a-z][\w.-]*\w")


def _text(text: str) -> str:
    """Return prose for roff: its own characters escaped, options set in bold."""
    escaped = "".join(_CHARACTERS.get(c, c) for c in text.strip())
    bold = _OPTION.sub(lambda match: rf"\fB{match[0].replace('-', chr(92) + '-')}\fR", escaped)
    return rf"\&{bold}" if bold.startswith((".", "'")) else bold


def _literal(text: str) -> str:
    """Return text to be typed as it is: no hyphen becomes a dash, no quote is curled."""
    characters = _CHARACTERS | {"-": r"\-", "'": r"\(aq"}
    return "".join(characters.get(c, c) for c in text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
