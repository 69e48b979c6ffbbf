"""Options that many commands share, and the checks between options.

An option is declared once, with `option`; --help, the manual page and the parser read the same
declaration. Errors of the checks have the words of Kafka's tools.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeVar

import click

from kcli.command.command import OLDER, Duration, Integer, Option, Options
from kcli.patterns import java_patterns

DEFAULT_SERVER = "127.0.0.1:9092"
SERVER_VARIABLE = "K_BOOTSTRAP_SERVER"

INT = Integer(32)
LONG = Integer(64)

CONNECTION = "Connection"

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


class Refused(Exception):
    """The command cannot do what was requested; the text has the reason. Exit status 1."""


class Declined(Refused):
    """The user at the terminal did not agree: see `command_runner.confirm`. Exit status 1."""


def option(
    name: str, help: str, metavar: str | None = None, *, short: str | None = None, **attributes: Any
) -> Any:
    """Declare an option: a flag, or with a `metavar` one that takes a value; `short` as in -e.

    Its value is None if it was not given (a flag's False, a repeatable one's ()).
    """
    flag = metavar is None
    return click.option(
        *([] if short is None else [short]),
        name,
        attribute_of(name),
        cls=Option,
        help=help,
        is_flag=flag,
        metavar=metavar,
        **({} if flag else {"type": str}) | attributes,
    )


def attribute_of(name: str) -> str:
    """Return the attribute of an option: `options.consumer_config` for `--consumer.config`."""
    return name.lstrip("-").replace("-", "_").replace(".", "_")


def option_group(*options: Callable[[Any], Any]) -> Callable[[Decorated], Decorated]:
    """Combine several option declarations into one decorator, shown in this order."""

    def decorate(function: Decorated) -> Decorated:
        for declare in reversed(options):
            function = declare(function)
        return function

    return decorate


bootstrap_server = option(
    "--bootstrap-server",
    f"Brokers to connect to first.  Default: ${SERVER_VARIABLE}, or else {DEFAULT_SERVER}.",
    "HOST:PORT,...",
    section=CONNECTION,
)
command_config = option(
    "--command-config",
    "A file of client properties: security, timeouts, client.id.",
    "FILE",
    section=CONNECTION,
)
timeout = option(
    "--timeout",
    "Give up after this long, with exit status 124: seconds, or with a unit: 500ms, 2s, 5m.",
    "TIME",
    type=Duration(),
    section=CONNECTION,
)

cluster = option_group(bootstrap_server, command_config, timeout)
"""Options of every command that connects to a cluster."""

dry_run = option("--dry-run", "Check and print the changes, but change nothing.")
"""Option of every command that changes something."""
yes = option("--yes", "Do not ask first; without a terminal, the command never asks.")
"""Option of every command that may lose data: `command_runner.confirm` asks."""


def older_config(name: str) -> Any:
    """Declare --command-config under the name that a script had for it before."""
    return option(
        name, "The same as --command-config.", "FILE", instead="--command-config", section=OLDER
    )


broker_list = option(
    "--broker-list",
    "Ignored if --bootstrap-server is given.",
    "HOST:PORT,...",
    instead="--bootstrap-server",
    yields=True,
    section=OLDER,
)


def client_options(client: str, value: str = "KEY=VALUE") -> Callable[[Any], Any]:
    """Return the options of a command that is a "producer" or a "consumer"."""
    return option_group(
        bootstrap_server,
        option(
            "--command-config",
            f"A file of {client} properties; --command-property takes precedence.",
            "FILE",
            section=CONNECTION,
        ),
        option(
            "--command-property",
            f"Any {client} property.  Repeatable.",
            value,
            multiple=True,
            section=CONNECTION,
        ),
        older_config(f"--{client}.config"),
    )


def client_properties(options: Options, **defaults: str) -> dict[str, str]:
    """Return the properties of a client, in increasing precedence: `defaults` (`client_id` for
    client.id), the file of --command-config, --command-property, --bootstrap-server. Raises Refused
    if a file cannot be read.
    """
    properties = {key.replace("_", "."): value for key, value in defaults.items()}
    properties["bootstrap.servers"] = os.environ.get(SERVER_VARIABLE) or DEFAULT_SERVER
    if options.command_config is not None:
        properties |= read_properties(options.command_config)
    properties |= key_values(getattr(options, "command_property", ()))
    if options.bootstrap_server is not None:
        properties["bootstrap.servers"] = options.bootstrap_server
    return properties


def read_properties(path: str) -> dict[str, str]:
    from kserver.config import properties
    from kserver.errors import ConfigError

    try:
        with open(path, "rb") as file:
            entries = properties.parse(properties.decode(file.read()))
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from error
    except ConfigError as error:
        raise Refused(f"{path}, {error}") from error
    return {entry.key: entry.value for entry in entries}


def key_values(pairs: Iterable[str]) -> dict[str, str]:
    """Parse `key=value` arguments, split at the first `=`; a missing value is empty."""
    return {key: value for key, _, value in (pair.partition("=") for pair in pairs)}


def refuse(text: str) -> NoReturn:
    """End with a usage error with this text."""
    raise click.UsageError(text, click.get_current_context(silent=True))


def require(options: Options, *names: str) -> None:
    for name in names:
        if not is_set(options, name):
            refuse(f'Missing required argument "[{name}]"')


def exclude(options: Options, name: str, others: Iterable[str]) -> None:
    """Refuse `name` together with any of `others`."""
    for other in others:
        if is_set(options, name) and is_set(options, other):
            refuse(f'Option "[{name}]" can\'t be used with option "[{other}]"')


def is_set(options: Options, name: str) -> bool:
    value = getattr(options, attribute_of(name))
    # A 0 was given, though it equals False.
    return value is not None and value is not False and value != ()


def name_filter(patterns: str) -> Callable[[str], bool]:
    """Return a test for whole names, as in Kafka's --topic, --include and --topics-include: a
    regular expression, or several separated by commas, without quotes and spaces.

    Raises Refused if a pattern is invalid.
    """
    pattern = name_pattern(patterns)
    return lambda name: pattern.fullmatch(name) is not None


def name_pattern(patterns: str) -> re.Pattern[str]:
    """Return the regular expression of `name_filter`, for whole names."""
    cleaned = patterns.strip().replace(",", "|").replace(" ", "").strip("\"'")
    try:
        return java_patterns.compiled(cleaned)
    except java_patterns.PatternError as error:
        raise Refused(str(error)) from None
