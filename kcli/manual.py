"""The manual pages, made from the declarations that --help and the parser read.

python -m kcli.manual            write man/k.1, man/k-<command>.1 and man/kserver.properties.5
python -m kcli.manual --check    exit status 1 where a page is not what would be written
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from kcli.command import OLDER, Command, Option, Seconds, paragraphs
from kcli.main import COMMANDS, TIMED_OUT
from kcli.options import DEFAULT_SERVER, SERVER_VARIABLE
from kserver.config import manual as settings

MAN = Path(__file__).parents[1] / "man"
NAMES = [name for group in COMMANDS.values() for name in group]
SUMMARIES = {name: text for group in COMMANDS.values() for name, text in group.items()}

STATUSES = (
    (0, "Done."),
    (1, "Refused, or at least one item failed; standard error says why."),
    (2, "The words of the command line make no sense."),
    (124, "--timeout ran out, or the cluster could not be reached in time."),
    (130, "Ended by Ctrl-C."),
)
ENVIRONMENT = (
    (SERVER_VARIABLE, "Brokers to connect to first, where --bootstrap-server is not given."),
    ("K_DEBUG", "Set to 1, an internal error shows where in the program it happened."),
)
DIFFERENCES = (
    "Answers on standard output are those of the scripts of Kafka 4.3.1; everything else, on "
    "standard error, is in words of its own, a line for each reason, without log lines and Java's "
    "stack traces.",
    "Words that make no sense end with exit status 2 and one line that says why; Kafka's scripts "
    "end with 1 and print all their options.",
    "--help prints on standard output and ends with 0; Kafka's scripts print on standard error and "
    "end with 1.",
    "--version prints the version of k.",
)
WITH_SERVER = (
    f"--bootstrap-server is not required: bootstrap.servers of --command-config, "
    f"${SERVER_VARIABLE} and {DEFAULT_SERVER} stand in for it, in this order.",
)
WITH_TIMEOUT = (
    "A cluster that cannot be reached in time ends with exit status 124; with Kafka's scripts it "
    "is 1, or 0.",
    "--timeout SECONDS limits the whole command; Kafka's scripts have no such option.",
    "What comes from the cluster is printed on a terminal with control characters as \\xNN.",
    "Patterns are regular expressions as Python has them, which for names of topics is as Java "
    "has them.",
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


def main(words: list[str]) -> int:
    stale = [name for name, text in pages().items() if _written(name) != text]
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
    """All pages by the name of their file."""
    of_commands = {f"k-{name}.1": _command_page(name, command_named(name)) for name in NAMES}
    return {"k.1": _overview_page(), **of_commands, "kserver.properties.5": settings.manual()}


def command_named(name: str) -> Command:
    attribute = name.replace("-", "_")
    command = getattr(importlib.import_module(f"kcli.commands.{attribute}"), attribute)
    assert isinstance(command, Command)
    return command


def _written(name: str) -> str | None:
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
        [*(f"k-{name}" for name in NAMES), "kserver.properties(5)"],
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


def _command_page(name: str, command: Command) -> str:
    manual = command.manual
    asks_cluster = any(option.word == "bootstrap-server" for option in command.options())
    has_timeout = any(isinstance(option.type, Seconds) for option in command.options())
    own = dict(manual.statuses)
    statuses = [
        (status, own.get(status, text))
        for status, text in STATUSES
        if status != TIMED_OUT or has_timeout
    ]
    environment = [pair for pair in ENVIRONMENT if asks_cluster or pair[0] != SERVER_VARIABLE]
    differences = [
        *manual.differences,
        *DIFFERENCES,
        *(WITH_SERVER if asks_cluster else ()),
        *(WITH_TIMEOUT if has_timeout else ()),
    ]
    arguments = "".join(
        rf" \fI{_literal(p.metavar or '')}\fR"
        for p in command.params
        if isinstance(p, click.Argument)
    )
    return _page(
        f"k-{name}",
        SUMMARIES[name],
        [f".B k {_literal(name)}", rf"[\fIOPTIONS\fR]{arguments}"],
        command.help or "",
        _options(command),
        statuses,
        (*manual.environment, *environment),
        manual.examples,
        differences,
        ["k", *manual.see_also],
        f"The command takes the place of {manual.kafka}, which ends or prints otherwise where "
        "listed here."
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


def _title(option: click.Option) -> str:
    name = ", ".join(rf"\fB{_literal(word)}\fR" for word in option.opts)
    if option.is_flag:
        return name
    assert option.metavar is not None
    optional = isinstance(option, Option) and option.if_bare is not None
    value = rf"\fI{_literal(option.metavar.strip('[]'))}\fR"
    return f"{name} [{value}]" if optional else f"{name} {value}"


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
        r'.\" Made from kcli by "python -m kcli.manual"; edit the declarations there.',
        f'.TH {_literal(name.upper())} 1 "" k "Commands of k"',
        ".SH NAME",
        rf"{_literal(name)} \- {_text(summary)}",
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
        *(line for text in differences for line in (r".IP \(bu 2", _text(text))),
        ".SH SEE ALSO",
        ",\n".join(_reference(other) for other in see_also),
    ]
    return "\n".join(lines) + "\n"


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
    """Prose for roff: its own characters escaped, options set in bold."""
    escaped = "".join(_CHARACTERS.get(c, c) for c in text.strip())
    bold = _OPTION.sub(lambda match: rf"\fB{match[0].replace('-', chr(92) + '-')}\fR", escaped)
    return rf"\&{bold}" if bold.startswith((".", "'")) else bold


def _literal(text: str) -> str:
    """What is typed as it stands: no hyphen becomes a dash, no quote is curled."""
    characters = _CHARACTERS | {"-": r"\-", "'": r"\(aq"}
    return "".join(characters.get(c, c) for c in text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
