"""`k console-consumer`: the records of topics on standard output."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import SimpleNamespace

from kcli.command import OLDER, Manual, command
from kcli.formatters import UnknownClass, Unprintable, formatter
from kcli.options import (
    CONNECTION,
    INT,
    LONG,
    Refused,
    bootstrap_server,
    client_properties,
    key_values,
    option,
    read_properties,
    refuse,
    timeout,
    together,
)
from kcli.output import answer, complain
from kcli.reading import Reading, Wanted
from kcli.running import EXPECTED, reason, run, status_of

CLIENT_ID = "console-consumer"
RESET = "auto.offset.reset"
DEFAULT_FORMATTER = "org.apache.kafka.tools.consumer.DefaultMessageFormatter"
LAST_OFFSET = (1 << 63) - 1

FORMATTING = "Format"
CONSUMER = "Consumer"

FORMATTER_PROPERTIES = (
    "Properties of the formatter: print.timestamp, print.partition, print.offset, print.delivery, "
    "print.epoch, print.headers, print.key (all false), print.value (true), key.separator between "
    "columns (TAB), line.separator (newline), headers.separator (,), null.literal (null), "
    "key.deserializer, value.deserializer, headers.deserializer (none: bytes as they are).  "
    "Repeatable."
)

MANUAL = Manual(
    kafka="kafka-console-consumer.sh",
    examples=(
        ("k console-consumer --topic orders --from-beginning", "All there is, and what comes."),
        (
            "k console-consumer --topic orders --from-beginning --timeout-ms 5000 > orders.txt",
            "All there is, into a file.",
        ),
        (
            "k console-consumer --topic orders --partition 0 --offset 42 --max-messages 1 \\\n"
            "    --formatter-property print.key=true",
            "One record, with its key.",
        ),
    ),
    differences=(
        "Without --group all partitions of the topic are read, without joining a group; Kafka's "
        "tool makes up a group.  What is printed is the same.",
        "--group, and group.id among the properties, are refused with exit status 1: consumer "
        "groups are not supported yet.",
        "A failure while reading, such as a topic that may not be read, ends with exit status 1, "
        "and with 124 when no broker could be reached; Kafka's tool ends with 0.",
        "--timeout-ms ends the command without a message of its own.",
        "A partition that the topic does not have is refused; Kafka's tool waits for it.",
        "Formatters are DefaultMessageFormatter, LoggingMessageFormatter and "
        "NoOpMessageFormatter; deserializers those of Kafka for strings, numbers, booleans, UUIDs "
        "and Bytes.  Other classes are a usage error.",
        "On a terminal, control characters in records are shown by number; Kafka's tool sends "
        "them to the terminal.",
        "--timeout-ms with no broker to be reached in that time ends with exit status 124; "
        "Kafka's tool ends with 0.",
        "Older spellings are accepted without a warning.",
    ),
    see_also=("k-console-producer", "k-topics", "k-get-offsets"),
)


@command(manual=MANUAL)
@together(
    option("--topic", "The topic to read.", "NAME"),
    option("--include", "All topics whose whole name matches; internal ones do not.", "PATTERN"),
    option("--partition", "Read only this partition of --topic.", "N", type=INT),
    option(
        "--offset",
        "Where to start in --partition: an offset, earliest, or latest (default).",
        "OFFSET",
    ),
    option("--from-beginning", "Start with the oldest records, not with those that come."),
    option("--max-messages", "End after so many records.", "N", type=INT),
    option("--timeout-ms", "End when nothing came for so long.", "MS", type=LONG),
    option(
        "--isolation-level",
        "read_committed leaves out what transactions have not committed.  Default: "
        "read_uncommitted.",
        "LEVEL",
    ),
    option("--group", "Not supported yet.", "ID"),
    option("--enable-systest-events", "Print shutdown_complete at the end."),
    option("--formatter", "How to print: a class of Kafka's.", "CLASS", section=FORMATTING),
    option(
        "--formatter-property",
        FORMATTER_PROPERTIES,
        "KEY=VALUE",
        multiple=True,
        section=FORMATTING,
    ),
    option(
        "--formatter-config",
        "A file of them; --formatter-property wins.",
        "FILE",
        section=FORMATTING,
    ),
    option("--key-deserializer", "Sets key.deserializer.", "CLASS", section=FORMATTING),
    option("--value-deserializer", "Sets value.deserializer.", "CLASS", section=FORMATTING),
    option(
        "--skip-message-on-error",
        "Go on after a record that cannot be formatted.",
        section=FORMATTING,
    ),
    bootstrap_server,
    option(
        "--command-config",
        "A file of consumer properties; --command-property wins.",
        "FILE",
        section=CONNECTION,
    ),
    option(
        "--command-property",
        "Any consumer property.  Repeatable.",
        "KEY=VALUE",
        multiple=True,
        section=CONNECTION,
    ),
    timeout,
    option(
        "--consumer.config",
        "The same as --command-config.",
        "FILE",
        instead="--command-config",
        section=OLDER,
    ),
    option(
        "--consumer-property",
        "The same as --command-property.",
        "KEY=VALUE",
        multiple=True,
        instead="--command-property",
        section=OLDER,
    ),
    option(
        "--property",
        "The same as --formatter-property.",
        "KEY=VALUE",
        multiple=True,
        instead="--formatter-property",
        section=OLDER,
    ),
    option(
        "--whitelist",
        "Ignored beside --include.",
        "PATTERN",
        instead="--include",
        yields=True,
        section=OLDER,
    ),
)
def console_consumer(given: SimpleNamespace) -> int:
    """Prints the records of a topic, or of all topics that match, as they come.

    Starts at the end unless told otherwise, and runs until it is stopped, unless --max-messages or
    --timeout-ms ends it; both are normal ends.  How many records were read is the last line on
    standard error.

    A line is a record's value.  Properties of the formatter add columns, in the order: timestamp,
    partition, offset, delivery, epoch, headers, key, value.
    """
    from kcli.client.config import ConsumerConfig

    _check(given)
    try:
        formats = formatter(given.formatter or DEFAULT_FORMATTER, _formatter_properties(given))
    except UnknownClass as error:
        refuse(str(error))
    config = ConsumerConfig.of(_consumer_properties(given))
    for warning in config.warnings:
        complain(warning)
    reading = Reading(_wanted(given), formats, config)
    try:
        run(reading.all(), given.timeout)
    except (*EXPECTED, Unprintable) as error:
        complain(f"k console-consumer: {reason(error)}")
        return status_of(error)
    except BrokenPipeError:
        complain("Unable to write to standard out, closing consumer.")
        raise
    finally:
        complain(f"Processed a total of {reading.count} messages")
        if given.enable_systest_events:
            answer("shutdown_complete")
    return 0


def _wanted(given: SimpleNamespace) -> Wanted:
    """Negative limits stand for none, as with Kafka's tool."""
    patience_ms = given.timeout_ms
    return Wanted(
        given.topic,
        given.include,
        given.partition,
        _start(given),
        None if given.max_messages == -1 else given.max_messages,
        None if patience_ms is None or patience_ms < 0 else patience_ms,
        given.skip_message_on_error,
    )


def _check(given: SimpleNamespace) -> None:
    """The rules between options, in Kafka's order and words."""
    if (given.topic is None) == (given.include is None):
        refuse("Exactly one of --include/--topic is required. ")
    if given.partition is not None:
        if given.topic is None:
            refuse("The topic is required when partition is specified.")
        if given.from_beginning and given.offset is not None:
            refuse("Options from-beginning and offset cannot be specified together.")
    elif given.offset is not None:
        refuse("The partition is required when offset is specified.")
    _start(given)
    if given.include is not None:
        try:
            re.compile(given.include)
        except re.error as error:
            refuse(f"{given.include} is an invalid regex: {error}")


def _start(given: SimpleNamespace) -> str:
    """Where --partition starts: earliest, latest, or an offset."""
    if given.offset is None:
        return "earliest" if given.from_beginning else "latest"
    text: str = given.offset
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    if not (re.fullmatch(r"\+?[0-9]+", text) and int(text) <= LAST_OFFSET):
        refuse(
            f"The provided offset value '{text}' is incorrect. Valid values are 'earliest', "
            "'latest', or a non-negative long."
        )
    return text


def _consumer_properties(given: SimpleNamespace) -> dict[str, str]:
    file = {} if given.command_config is None else read_properties(given.command_config)
    extra = key_values(given.command_property)
    _check_group(given, file, extra)
    properties = client_properties(given, client_id=CLIENT_ID) | extra
    if given.bootstrap_server is not None:
        properties["bootstrap.servers"] = given.bootstrap_server
    if given.isolation_level is not None:
        properties["isolation.level"] = given.isolation_level
    reset = properties.setdefault(RESET, "earliest" if given.from_beginning else "latest")
    if given.from_beginning and reset != "earliest":
        refuse(
            f"Can't simultaneously specify --from-beginning and '{RESET}={reset}', please remove "
            "one option"
        )
    return properties


def _check_group(given: SimpleNamespace, file: Mapping[str, str], extra: Mapping[str, str]) -> None:
    named = (given.group, file.get("group.id"), extra.get("group.id"))
    groups = sorted({group for group in named if group is not None})
    if len(groups) > 1:
        detected = ", ".join(f"'{group}'" for group in groups)
        refuse(
            "The group ids provided in different places (directly using '--group', via "
            "'--consumer-property', or via '--consumer.config') do not match. Detected group ids: "
            f"{detected}"
        )
    if groups and given.partition is not None:
        refuse("Options group and partition cannot be specified together.")
    if groups:
        raise Refused(
            f"consumer groups are not supported yet, and so group {groups[0]} cannot be joined; "
            "without a group, all partitions are read"
        )


def _formatter_properties(given: SimpleNamespace) -> dict[str, str]:
    properties = {} if given.formatter_config is None else read_properties(given.formatter_config)
    if given.key_deserializer:
        properties["key.deserializer"] = given.key_deserializer
    if given.value_deserializer:
        properties["value.deserializer"] = given.value_deserializer
    return properties | key_values(given.formatter_property)
