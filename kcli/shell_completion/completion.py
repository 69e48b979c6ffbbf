"""Completion: candidates at the cursor of a command line that begins with `k`.

    words       the words before the cursor, without k; the last one is at the cursor, maybe empty
    candidate   a completed form of the last word

Commands and options come from their declarations, values from `completion_values`. The scripts that
`k completion` prints for the shells call `main`.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from kcli.command.command_list import COMMANDS

if TYPE_CHECKING:
    import click

    from kcli.command.command import Command, Option, Options
    from kcli.shell_completion.completion_values import Candidate, Names

FILES = ":files"
"""Printed in place of candidates: the shell completes file names itself."""

NamesOf = Callable[["Options"], "Names"]


class FoundValues(NamedTuple):
    """Completions of the last word: `before` and one of `candidates`, whose values continue there;
    or `before` and the name of a file that begins with `file`.
    """

    candidates: Sequence[Candidate | tuple[str, str]] = ()
    before: str = ""
    file: str | None = None


NOTHING = FoundValues()


def main(arguments: Sequence[str]) -> NoReturn:
    """Handle `k __complete zsh WORD...`, or fish; `k __complete bash LINE TEXT`, where the line
    ends at the cursor, and TEXT is the part that bash will replace: a word's end, after the last :
    or =.

    Prints a candidate per line, with its note after a tab; or, separated by tabs: FILES, the number
    of characters of the word that bash keeps, the text before the file's name, the beginning of the
    name. Ends the process at once: a name server that does not respond would delay it.
    """
    shell, *words = arguments
    prefix_length = 0
    if shell == "bash":
        line, text = words
        words = split(line)
        prefix_length = len(split(line.removesuffix(text))[-1])
    values = complete(words, _cluster_names)
    if values.file is not None:
        print(FILES, prefix_length, values.before, values.file, sep="\t")
    for value, note in values.candidates:
        whole = (values.before + value)[prefix_length:]
        print(whole if shell == "bash" else f"{whole}\t{' '.join(note.split())}")
    sys.stdout.flush()
    os._exit(0)


def split(line: str) -> list[str]:
    """Split a line into words like a shell, without the command; a quote may still be open."""
    if (len(line) - len(line.rstrip("\\"))) % 2:
        line = line[:-1]
    for closing in ("", "'", '"'):
        try:
            words = shlex.split(line + closing)
        except ValueError:
            continue
        if not closing and line[-1:].isspace():
            words.append("")
        return words[1:] or [""]
    return [""]


def complete(words: Sequence[str], names_of: NamesOf) -> FoundValues:
    """Return completions; `names_of` gets bootstrap_server and command_config from the words."""
    *before, word = words
    commands = {name: note for group in COMMANDS.values() for name, note in group.items()}
    if not before:
        own = {"--help": "print the commands", "--version": "print the version"}
        return _matching(word, (commands | own).items())
    if before[0] not in commands:
        return NOTHING
    from kcli.command.command import command_named

    name = before.pop(0)
    if name == "perf-test" and before:
        from kcli.commands.perf_test import TESTS

        name = TESTS.get(before.pop(0), name)
    if name == "spark-submit":
        return _of_submission(command_named(name), before, word, names_of)
    return _Line(command_named(name), before, names_of).complete(word)


def _of_submission(
    command: Command, before: Sequence[str], word: str, names_of: NamesOf
) -> FoundValues:
    """Complete a job and its options, or the file of an application; Spark's own options are
    unknown.
    """
    from kcli.spark.jobs import JOBS, job_named
    from kcli.spark.submission import FLAGS, Submission, own_first

    _, words = own_first(before, {name for option in command.options() for name in option.opts})
    submission = Submission.of(words, JOBS)
    if submission.job is not None:
        return _Line(job_named(submission.job), submission.words, names_of).complete(word)
    takes_value = bool(words) and words[-1] not in FLAGS and "=" not in words[-1]
    if submission.application is not None or takes_value:
        return FoundValues(file=word)
    if _is_option(word):
        return _Line(command, (), names_of).complete(word)
    values = _matching(word, JOBS.items())
    return values if values.candidates else FoundValues(file=word)


class _Line:
    """A command and the words before the cursor, parsed as the command will parse them."""

    def __init__(self, command: Command, words: Sequence[str], names_of: NamesOf) -> None:
        self._command = command
        self._names_of = names_of
        self._options_by_name = {_bare(name): o for o in command.options() for name in o.opts}
        self._options: dict[str, str] = {}
        self._pending: Option | None = None
        """An option whose value is, or may be, the next word."""
        self._ended = False
        """Whether -- occurred, after which there are no options."""
        for word in words:
            self._read(word)

    def _read(self, word: str) -> None:
        taker, self._pending = self._taker(word), None
        if taker is not None:
            self._options[_name(taker)] = word
        elif word == "--":
            self._ended = True
        elif _is_option(word) and not self._ended:
            name, _, value = _bare(word).partition("=")
            option = self._options_by_name.get(name)
            if option is not None and (value or option.is_flag):
                self._options[_name(option)] = value
            else:
                self._pending = option

    def _taker(self, word: str) -> Option | None:
        """Return the option whose value this word is, if any."""
        option = self._pending
        if option is not None and option.if_bare is not None and _is_option(word):
            return None
        return option

    def complete(self, word: str) -> FoundValues:
        if (option := self._taker(word)) is not None:
            return self._value(option, "", word)
        name, equals, value = _bare(word).partition("=")
        if equals and _is_option(word) and (option := self._options_by_name.get(name)):
            return self._value(option, word.removesuffix(value), value)
        if _is_option(word) and not self._ended:
            return self._option(word)
        values = self._argument(word)
        return self._option(word) if values == NOTHING and word in ("", "-") else values

    def _option(self, word: str) -> FoundValues:
        """Return options that may still be given; older spellings if no other option matches."""
        from kcli.command.command import OLDER

        single = word[:1] == "-" and word[:2] not in ("-", "--")
        current = [("--help", "Print the options and exit")]
        older: list[tuple[str, str]] = []
        for option in self._command.options():
            if option.multiple or _name(option) not in self._options:
                name = max(option.opts, key=len)
                note = (option.help or "").partition(".  ")[0].removesuffix(".")
                (older if option.section == OLDER else current).append((name, note))
        for options in (current, older):
            # All names may be written with one dash.
            spelled = [(f"-{_bare(n)}" if single else n, note) for n, note in options]
            if (values := _matching(word, spelled)).candidates:
                return values
        return NOTHING

    def _argument(self, word: str) -> FoundValues:
        import click

        arguments = [p for p in self._command.params if isinstance(p, click.Argument)]
        return self._value(arguments[0], "", word) if arguments else NOTHING

    def _value(self, param: click.Parameter, before: str, text: str) -> FoundValues:
        """Return values; `before` is the option, if its value is in the same word."""
        import click

        from kcli.shell_completion.completion_values import (
            FILES_OF,
            SOURCES,
            CompletionQuery,
            of_words,
        )

        metavar = str(param.metavar)
        if ",..." in metavar:
            earlier = text[: text.rfind(",") + 1]
            before, text = before + earlier, text.removeprefix(earlier)
        if metavar.removesuffix(",...") in FILES_OF:
            return FoundValues((), before, text)
        name = max(param.opts, key=len).lstrip("-")
        command = str(self._command.name)
        source = SOURCES.get(f"{command} {name}") or SOURCES.get(name)
        if isinstance(param.type, click.Choice):
            source = of_words(*param.type.choices)
        elif "|" in metavar:
            source = of_words(*metavar.split("|"))
        if source is None:
            return NOTHING

        from kcli.command.command import Options

        cluster = Options(
            bootstrap_server=_expand(self._options.get("bootstrap-server")),
            command_config=_expand(self._options.get("command-config")),
        )
        query = CompletionQuery(text, command, self._options, self._names_of(cluster))
        return _matching(text, source(query), before)


def _matching(text: str, candidates: Iterable[tuple[str, str]], before: str = "") -> FoundValues:
    return FoundValues([c for c in candidates if c[0].startswith(text)], before)


def _is_option(word: str) -> bool:
    return word.startswith("-") and word != "-"


def _bare(name: str) -> str:
    """Return a name without its one or two dashes."""
    return name.removeprefix("-").removeprefix("-")


def _name(option: Option) -> str:
    """Return the present name of an option, for an older spelling."""
    return _bare(option.instead or max(option.opts, key=len))


def _expand(value: str | None) -> str | None:
    """Expand as the shell will, as far as the environment allows."""
    return None if value is None else os.path.expandvars(os.path.expanduser(value))


def _cluster_names(options: Options) -> Names:
    from kcli.shell_completion.cluster_names import ClusterNames, cache_directory

    return ClusterNames(options, cache_directory())
