"""-o: a command's rows in the requested format.

    @option_group(..., formatted(LIST))
    def topics(options):
        if options.output is None:
            ...                                  # Kafka's own text
        with rows(options, LIST) as out:
            out.row(topic="orders")
            out.refused("payments", error)
        return out.status

Errors are in the document and on standard error, and make the exit status 1. Output that is cut
short, by an error or a signal, still ends as a document that reports it.
"""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

import click

from kcli.command.command import Command, Option, Options
from kcli.command.output import complain, print_output
from kcli.rows.row_formats import Csv, Json, JsonLines, Row, Table, Template, Tsv, Writer, Yaml
from kcli.rows.shapes import RowShape

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

FORMATS: dict[str, Callable[[RowShape], Writer]] = {
    "json": Json,
    "jsonl": JsonLines,
    "yaml": Yaml,
    "csv": Csv,
    "tsv": Tsv,
    "table": lambda shape: Table(shape, _columns()),
}
TEMPLATE = "template="
EXAMPLE = f"{TEMPLATE}'{{topic}} {{partition}}'"


class Format(NamedTuple):
    """One of FORMATS, or `template` with its text."""

    name: str
    template: str = ""


class Output(Option):
    """The option -o; `shapes` are those of the rows that the command prints with it."""

    def __init__(self, *args: Any, shapes: Sequence[RowShape], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.shapes = shapes


class _FormatType(click.ParamType):  # type: ignore[type-arg]
    name = "format"

    def convert(self, value: Any, param: Any, ctx: click.Context | None) -> Format:
        if isinstance(value, Format):
            return value
        if value in FORMATS:
            return Format(value)
        if value.startswith(TEMPLATE):
            return Format("template", value.removeprefix(TEMPLATE))
        raise click.UsageError(
            f"'{value}' is not a format of --output; formats are {', '.join(FORMATS)} and "
            f"{EXAMPLE}",
            ctx,
        )


def formatted(*shapes: RowShape) -> Callable[[Decorated], Decorated]:
    """Declare -o on a command that prints rows of these shapes, one shape at a time."""
    return click.option(
        "-o",
        "--output",
        "output",
        cls=Output,
        shapes=shapes,
        type=_FormatType(),
        metavar="FORMAT",
        help=f"Print rows as {', '.join(FORMATS)} or {EXAMPLE}; see k-shapes(7).",
    )


def shapes_of(command: Command) -> Sequence[RowShape]:
    """Return the shapes of a command's -o, or none."""
    return next((option.shapes for option in command.options() if isinstance(option, Output)), ())


def rows(options: Options, shape: RowShape) -> Rows:
    """Return rows in the format of -o. Raises UsageError if a template has a field that the shape
    does not have.
    """
    output = options.output
    context = click.get_current_context(silent=True)
    try:
        template = output.name == "template"
        writer = Template(shape, output.template) if template else FORMATS[output.name](shape)
    except ValueError as error:
        raise click.UsageError(f"--output {TEMPLATE}: {error}", context) from None
    return Rows(shape, writer, "k" if context is None else context.command_path)


@contextmanager
def rows_if_asked(options: Options, shape: RowShape) -> Iterator[Rows | None]:
    """Yield the same as `rows`, or None without -o, when Kafka's own text is wanted."""
    if options.output is None:
        yield None
    else:
        with rows(options, shape) as out:
            yield out


class Rows:
    """A context: rows are printed as they arrive; an exception is reported at the end."""

    def __init__(self, shape: RowShape, writer: Writer, command: str) -> None:
        self.shape = shape
        self.status = 0
        self._writer = writer
        self._command = command
        self._errors: list[Row] = []
        self._begun = False

    def row(self, **values: Any) -> None:
        """Print one row; the fields are exactly those of the shape."""
        assert values.keys() == set(self.shape.names), values.keys() ^ set(self.shape.names)
        self._begin()
        print_output(self._writer.row({name: values[name] for name in self.shape.names}), end="")

    def refused(self, subject: str | None, error: Exception) -> None:
        """Report that one item has no row, and why; the exit status becomes that of the error."""
        from kcli.command import command_runner

        self.status = self.status or command_runner.status_of(error)
        self.problem(subject, _code(error), command_runner.reason(error))

    def problem(self, subject: str | None, code: str, message: str) -> None:
        """Report a problem of an item; the exit status is not affected."""
        complain(": ".join(part for part in (self._command, subject, message) if part))
        self._note(subject, code, message)

    def _note(self, subject: str | None, code: str, message: str) -> None:
        self._errors.append({"subject": subject, "code": code, "message": message})

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            print_output(self._writer.head(), end="")

    def __enter__(self) -> Self:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the document, except after a usage error, a closed pipe or a bug. The exception goes
        on, and `kcli.main` reports it on standard error.
        """
        if isinstance(error, KeyboardInterrupt | SystemExit):
            self._note(None, "INTERRUPTED", "ended by a signal")
        elif error is not None:
            from kcli.command import command_runner

            ends = (*command_runner.EXPECTED, OSError)
            if not isinstance(error, ends) or isinstance(error, BrokenPipeError):
                return
            assert isinstance(error, Exception)
            self._note(None, _code(error), command_runner.reason(error))
        self._begin()
        print_output(self._writer.tail(self._errors), end="")


def _code(error: Exception) -> str:
    """Return the protocol's name of the error, or the kind of an error that is not a broker's."""
    from kcli.client.errors import ClientError
    from kcli.command import command_runner
    from kcli.command.statuses import TIMED_OUT
    from kserver.errors import ConfigError, KafkaError, ProtocolError

    if isinstance(error, KafkaError):
        return error.code.name.upper()
    if isinstance(error, TimeoutError) or command_runner.status_of(error) == TIMED_OUT:
        return "TIMED_OUT"
    if isinstance(error, ProtocolError):
        return "INVALID"
    if isinstance(error, ConfigError):
        return "INVALID_CONFIG"
    if isinstance(error, ClientError):
        return "CLIENT"
    return "FILE" if isinstance(error, OSError) else "REFUSED"


def _columns() -> int | None:
    """Return the width of the output's terminal, if it is one."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
