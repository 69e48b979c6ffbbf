"""Commands of `k`: parsing of their words, and --help.

Words are parsed as by Kafka's own tools (which use the library jopt-simple):

    --topic orders   --topic=orders   -topic orders     all the same
    --topi orders                                       unknown: names are not abbreviated
    --time -1        --topic --list                     a required value is the next word
    --compression-codec --sync                          an optional value is never an option
    --topic a --topic b                                 refused, unless --topic may be repeated
    --list=x         --topic a stray words              unneeded words are ignored
    --                                                  ends the options

All other texts of a manual page are declared with the command: see `Manual`.
"""

from __future__ import annotations

import importlib
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import click

from kserver import __version__

OPTIONS = "Options"
OLDER = "Older spellings"
ANY_BYTES = {"FILE", "FILE,...", "DIR", "DIRECTORY", "PATH", "COMMAND", "TERM"}
"""Metavars of values that need not be UTF-8: file names, and patterns matched against bytes."""


@dataclass(frozen=True, slots=True)
class Manual:
    """Texts of a command's manual page besides its options.

    `kafka` names the script that the command replaces; `differences` lists, a sentence each, where
    its results differ from that script's; `examples` pairs a command line with its use.
    """

    kafka: str = ""
    differences: Sequence[str] = ()
    examples: Sequence[tuple[str, str]] = ()
    environment: Sequence[tuple[str, str]] = ()
    statuses: Sequence[tuple[int, str]] = ()
    see_also: Sequence[str] = ()


class Options(SimpleNamespace):
    """The parsed words of a command: an attribute for each option and argument, with "_" for "-"
    and ".".

    A flag is a bool, a repeatable option a tuple. Other options have the type that their
    declaration names, or are None if they were not given and have no default. The declaration is
    the `@option` above the command's function.
    """


class Option(click.Option):
    """An option, with its section in --help.

    `instead` names the option that replaces this one; its value goes there, and giving both is
    refused, or, with `yields`, the old one is ignored. `if_bare` is the value if an optional value
    is left out. A flag that `adds` an attribute and a value stands for a repeatable option with
    that value, at its position among the others.
    """

    def __init__(
        self,
        *args: Any,
        section: str = OPTIONS,
        instead: str | None = None,
        yields: bool = False,
        if_bare: str | None = None,
        adds: tuple[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.section = section
        self.instead = instead
        self.yields = yields
        self.if_bare = if_bare
        self.adds = adds

    @property
    def word(self) -> str:
        """The name in Kafka's messages: `command-config`."""
        return max(self.opts, key=len).lstrip("-")


class Integer(click.ParamType):  # type: ignore[type-arg]
    """A whole number of at most `bits` bits; errors have Kafka's text."""

    def __init__(self, bits: int) -> None:
        self.name = "integer"
        self.bits = bits

    def convert(self, value: Any, param: Any, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        limit = 1 << self.bits - 1
        if re.fullmatch(r"[+-]?[0-9]+", value) and -limit <= int(value) < limit:
            return int(value)
        raise click.UsageError(f"Cannot parse argument '{value}' of option {param.word}", ctx)


class Duration(click.ParamType):  # type: ignore[type-arg]
    """A time above zero, as seconds: `500ms`, `1.5s`, `5m`, `2h`. A bare number is in `unit`:
    seconds, or milliseconds if Kafka's tool has the option.
    """

    name = "time"
    units_s = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}

    def __init__(self, unit: str = "s") -> None:
        self.unit = unit

    def convert(self, value: Any, param: Any, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)(ms|s|m|h|)", value)
        seconds = float(match[1]) * self.units_s[match[2] or self.unit] if match else 0
        if not seconds:
            raise click.UsageError(f"Cannot parse argument '{value}' of option {param.word}", ctx)
        return seconds


class Milliseconds(Duration):
    """A duration for options where Kafka's tool accepts any whole number of milliseconds."""

    def __init__(self, bits: int = 64) -> None:
        super().__init__("ms")
        self._number = Integer(bits)

    def convert(self, value: Any, param: Any, ctx: click.Context | None) -> int:
        if isinstance(value, str) and value.endswith(("s", "m", "h")):
            value = str(round(super().convert(value, param, ctx) * 1000))
        return self._number.convert(value, param, ctx)


class Command(click.Command):
    """A command whose callback gets one object with an attribute for each option."""

    def __init__(self, *args: Any, manual: Manual, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.manual = manual
        version = Option(["--version"], is_flag=True, is_eager=True, expose_value=False)
        version.help = "Print the version and exit."
        version.callback = _print_version
        self.params.append(version)

    def options(self) -> list[Option]:
        return [p for p in self.params if isinstance(p, Option)]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        values = _read(self, ctx, args)
        for param in self.get_params(ctx):
            if param.is_eager and param.name in values and param.callback is not None:
                param.callback(ctx, param, True)
        for param in self.params:
            if param.expose_value and param.name is not None:
                ctx.params[param.name] = _value(param, ctx, values.get(param.name))
        for old in self.options():
            if old.instead is not None:
                _apply_old_option(ctx, old)
        return []

    def invoke(self, ctx: click.Context) -> Any:
        assert self.callback is not None
        return ctx.invoke(self.callback, Options(**ctx.params))

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, " ".join(self.collect_usage_pieces(ctx)))

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.indentation():
            for paragraph in paragraphs(self.help or "")[:1]:
                formatter.write_paragraph()
                formatter.write_text(paragraph)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                # Texts "above" are in the manual page, not in --help.
                name, text = record
                record = name, text.replace("See above", f"See k-{self.name}(1)")
                sections.setdefault(getattr(param, "section", OPTIONS), []).append(record)
        if OLDER in sections:
            sections[OLDER] = sections.pop(OLDER)
        for section, records in sections.items():
            with formatter.section(section):
                formatter.write_dl(records, col_max=32)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.manual.examples:
            with formatter.section("Examples"):
                for line, use in self.manual.examples:
                    formatter.write_text(f"# {use}")
                    for part in line.splitlines():
                        formatter.write(f"{'':{formatter.current_indent}}{part}\n")


class Overview(click.Group):
    """`k` itself: the groups of commands, each imported when it is named."""

    def __init__(self, name: str, commands: Mapping[str, Mapping[str, str]]) -> None:
        super().__init__(name, invoke_without_command=True, callback=_overview)
        self.groups = commands
        self.help = "Kafka in Python: one command for all of Kafka's tools."
        self.params.append(
            click.Option(["--version"], is_flag=True, help="Print the version and exit.")
        )

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for group in self.groups.values() for name in group]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        return command_named(cmd_name)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None:
            name = args[0].removeprefix("kafka-").removesuffix(".sh")
            import difflib  # imported here: 5 ms that only a misspelt name costs

            names = self.list_commands(ctx)
            near = [name] if name in names else difflib.get_close_matches(name, names, 3, 0.5)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            raise click.UsageError(f"unknown command '{args[0]}'.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, "COMMAND [OPTIONS]")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.list_commands(ctx)))
        for group, commands in self.groups.items():
            with formatter.section(group):
                formatter.write_dl([(f"{n:{width}}", summary) for n, summary in commands.items()])
        with formatter.section(OPTIONS):
            formatter.write_dl(
                [
                    (f"{'--version':{width}}", "print the version and exit"),
                    (f"{'COMMAND --help':{width}}", "the options of a command"),
                ]
            )


def command_named(name: str) -> Command:
    """Return a command of `k`, by the name of its module in `kcli.commands`."""
    attribute = name.replace("-", "_")
    command = getattr(importlib.import_module(f"kcli.commands.{attribute}"), attribute)
    assert isinstance(command, Command)
    return command


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        click.echo(__version__)
        ctx.exit()


def _overview(version: bool) -> None:
    context = click.get_current_context()
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def command(
    *, manual: Manual, cls: type[Command] = Command
) -> Callable[[Callable[[Options], int | None]], Command]:
    """Make a function of one argument, the options, into a command."""

    def decorate(function: Callable[[Options], int | None]) -> Command:
        return click.command(function.__name__.replace("_", "-"), cls=cls, manual=manual)(function)

    return decorate


def paragraphs(text: str) -> list[str]:
    return [" ".join(p.split()) for p in re.split(r"\n\s*\n", text.strip()) if p.strip()]


def _read(command: Command, ctx: click.Context, words: Sequence[str]) -> dict[str, Any]:
    """Return the values as texts, by the attribute of their option or argument."""
    params = command.get_params(ctx)
    options = {s.lstrip("-"): p for p in params if isinstance(p, click.Option) for s in p.opts}
    rest = deque(words)
    values: dict[str, Any] = {}
    stray: list[str] = []
    while rest:
        word = rest.popleft()
        if word == "--":
            stray.extend(rest)
            break
        if not word.startswith("-") or word == "-":
            stray.append(word)
            continue
        name, _, value = word.removeprefix("-").removeprefix("-").partition("=")
        if (option := options.get(name)) is None:
            said = name if word.startswith("--") else name[:1]
            raise click.UsageError(_unknown(said, name, options), ctx)
        assert option.name is not None
        if option.is_flag:
            values[option.name] = True
            if (adds := getattr(option, "adds", None)) is not None:
                values.setdefault(adds[0], []).append(adds[1])
            continue
        value = value or _next(option, name, rest, ctx)
        if option.multiple:
            values.setdefault(option.name, []).append(value)
        elif option.name in values:
            raise click.UsageError(
                f"Found multiple arguments for option {name}, but you asked for only one", ctx
            )
        else:
            values[option.name] = value
    for param in params:
        if isinstance(param, click.Argument):
            assert param.name is not None
            values[param.name] = tuple(stray)
    return values


def _next(option: click.Option, name: str, rest: deque[str], ctx: click.Context) -> str:
    """Return the value of an option in the next word, if any."""
    if_bare: str | None = getattr(option, "if_bare", None)
    if if_bare is not None and not (rest and (rest[0] == "-" or rest[0][:1] != "-")):
        return if_bare
    if not rest:
        raise click.UsageError(f"Option {name} requires an argument", ctx)
    return rest.popleft()


def _value(param: click.Parameter, ctx: click.Context, word: Any) -> Any:
    if word is not None:
        value = param.type_cast_value(ctx, word)
        if isinstance(param, click.Option) and param.metavar not in ANY_BYTES:
            for text in value if isinstance(value, tuple) else (value,):
                if isinstance(text, str):
                    text.encode()  # kcli.main names the argument that is not UTF-8
        return value
    if isinstance(param, click.Option) and param.is_flag:
        return False
    return () if param.multiple else None


def _unknown(said: str, name: str, options: Mapping[str, click.Option]) -> str:
    import difflib  # imported here: 5 ms that only a misspelt name costs

    near = difflib.get_close_matches(name, options, 1)
    return f"{said} is not a recognized option" + (f" (did you mean --{near[0]}?)" if near else "")


def _apply_old_option(ctx: click.Context, old: Option) -> None:
    """Assign the value of an older spelling to the option that replaces it."""
    value = ctx.params.pop(old.name)
    if not _is_set(value):
        return
    assert old.instead is not None
    new = old.instead.lstrip("-").replace("-", "_").replace(".", "_")
    if not _is_set(ctx.params.get(new)):
        ctx.params[new] = value
    elif not old.yields:
        raise click.UsageError(
            f"Options --{old.word} and {old.instead} cannot be specified together.", ctx
        )


def _is_set(value: object) -> bool:
    """Whether a value was given: 0 counts, an unset flag and an empty list do not."""
    return bool(value) or (isinstance(value, int) and value is not False)
