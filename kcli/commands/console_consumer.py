"""`k console-consumer`: prints records of topics on standard output."""

from __future__ import annotations

import re
import time
from collections.abc import Coroutine, Mapping
from typing import Any

from kcli.command.command import OLDER, Duration, Manual, Options, command
from kcli.command.command_runner import EXPECTED, reason, run, status_of, with_warnings
from kcli.command.options import (
    CONNECTION,
    INT,
    LONG,
    client_options,
    client_properties,
    exclude,
    is_set,
    key_values,
    option,
    option_group,
    read_properties,
    refuse,
    timeout,
)
from kcli.command.output import complain, print_output
from kcli.console.encodings import ENCODINGS, TEXT, UnknownEncoding, encoding
from kcli.console.format_strings import FormatString, MalformedFormat
from kcli.console.formatter import Formatter, Unprintable
from kcli.console.formatters import DefaultFormatter, UnknownClass, formatter
from kcli.console.offset_range import Edge, Malformed, OffsetRange
from kcli.console.offset_range import parse as parse_offsets
from kcli.console.reading import Reading, ReadingOptions
from kcli.console.record_filter import MalformedTerm, RecordFilter
from kcli.patterns.java_patterns import PatternError, translate

CLIENT_ID = "console-consumer"
RESET = "auto.offset.reset"
LINES = "lines"
ENVELOPES = ("json", "jsonl", "msgpack")
OUTPUT_FORMATS = (LINES, *ENVELOPES, *ENCODINGS)
WAYS_TO_PRINT = ("output-format", "format", "formatter")
KAFKAS_OFFSET = re.compile(r"earliest|latest|[0-9]+", re.IGNORECASE)
"""The forms of --offset of Kafka's tool, which requires --partition with them."""

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
        (
            "k console-consumer --topic orders --from-beginning",
            "All existing records, then new ones.",
        ),
        (
            "k console-consumer --topic orders --from-beginning --timeout-ms 5000 > orders.txt",
            "All existing records, into a file.",
        ),
        (
            "k console-consumer --topic orders --partition 0 --offset 42 --max-messages 1 \\\n"
            "    --formatter-property print.key=true",
            "One record, with its key.",
        ),
        (
            "k console-consumer --topic orders --offset -10:end",
            "The last ten records of each partition.",
        ),
        (
            "k console-consumer --topic orders --offset @-10m:-5m -f '%T %p/%o %k %v\\n'",
            "Records between ten and five minutes old, with topic, partition and offset.",
        ),
        (
            "k console-consumer --group bills --topic orders --from-beginning",
            "Records that the group has not read; several such consumers share the topic.",
        ),
        (
            "k console-consumer --zookeeper localhost:2181 --group bills --topic orders",
            "A share of the topic, assigned among the members through ZooKeeper.",
        ),
        (
            "k console-consumer --topic orders --offset :end --grep h:tenant=^acme$ \\\n"
            "    --grep '!v:test' --output-format json > acme.json",
            "All records of one tenant except its tests, as whole records.",
        ),
    ),
    differences=(
        "Without --group all partitions of the topic are read, without joining a group; Kafka's "
        "tool makes up a group, console-consumer-NNNNN, and commits nothing for it.  What is "
        "printed is the same.",
        "An error while reading, such as an unauthorized topic, ends with exit status 1, or 124 "
        "if no broker could be reached; Kafka's tool ends with 0.",
        "--timeout-ms ends the command without a message of its own.",
        "A partition that the topic does not have is refused; Kafka's tool waits for it.",
        "Formatters are DefaultMessageFormatter, LoggingMessageFormatter, NoOpMessageFormatter, "
        "OffsetsMessageFormatter, GroupMetadataMessageFormatter and "
        "TransactionLogMessageFormatter; deserializers those of Kafka for strings, numbers, "
        "booleans, UUIDs and Bytes.  Other classes are a usage error.",
        "A number, earliest and latest in --offset need --partition, as with Kafka's tool; the "
        "additional forms do not.  +5 is five offsets after the first; with Kafka's tool it is "
        "offset 5.",
        "On a terminal, control characters in records are shown as \\xNN; Kafka's tool sends "
        "them to the terminal.",
        "If no broker can be reached within --timeout-ms, the exit status is 124; Kafka's tool "
        "ends with 0.",
        "Older spellings are accepted without a warning.",
    ),
    see_also=("k-console-producer", "k-topics", "k-get-offsets"),
)


@command(manual=MANUAL)
@option_group(
    option("--topic", "The topic to read.", "NAME"),
    option(
        "--include",
        "All topics whose whole name matches this pattern, except internal ones.",
        "PATTERN",
    ),
    option("--partition", "Read only this partition of --topic.", "N", type=INT),
    option(
        "--offset",
        "Where to start, and optionally where to stop: with --partition an offset, earliest or "
        "latest (default); or start, end, -10, +5, 10:20, :end, @-10m:-5m and the like, with "
        "times in UTC.  See above.",
        "OFFSET",
    ),
    option("--from-beginning", "Start with the oldest records, not with new ones."),
    option("--max-messages", "Stop after this many records.", "N", type=INT),
    option("--timeout-ms", "Stop when no record has arrived for this long.", "MS", type=LONG),
    option(
        "--idle-timeout",
        "The same in seconds, or with a unit: 500ms, 2s, 5m.",
        "TIME",
        type=Duration(),
    ),
    option(
        "--exit-at-end",
        "Stop at the offsets where the topic ends when the command starts.",
        short="-e",
    ),
    option(
        "--grep",
        "Print only records whose key, value or a header's value matches: [!][FIELD:]PATTERN.  "
        "See above.  Repeatable: all must hold.",
        "TERM",
        multiple=True,
    ),
    option(
        "--isolation-level",
        "read_committed hides records of transactions that are not committed.  Default: "
        "read_uncommitted.",
        "LEVEL",
    ),
    option(
        "--group",
        "Read as a member of this group, from its committed offsets.",
        "ID",
    ),
    option(
        "--zookeeper",
        "Consume --topic with the other members of --group through ZooKeeper, which stores "
        "brokers, members and offsets.  See above.",
        "HOST[:PORT],...[/CHROOT]",
        section=CONNECTION,
    ),
    option("--enable-systest-events", "Print shutdown_complete at the end."),
    option(
        "--output-format",
        f"{', '.join(OUTPUT_FORMATS)}.  Default: lines.  See above.",
        "FORMAT",
        section=FORMATTING,
    ),
    option(
        "--format",
        "Print each record by a format.  See above.",
        "FORMAT",
        short="-f",
        section=FORMATTING,
    ),
    option(
        "--key-encoding",
        f"Encoding of keys in a line: text (default), {', '.join(ENCODINGS)}.",
        "ENCODING",
        section=FORMATTING,
    ),
    option(
        "--value-encoding",
        "Encoding of values in a line, likewise.",
        "ENCODING",
        section=FORMATTING,
    ),
    option("--formatter", "Formatter: a class name of Kafka.", "CLASS", section=FORMATTING),
    option(
        "--formatter-property",
        FORMATTER_PROPERTIES,
        "KEY=VALUE",
        multiple=True,
        section=FORMATTING,
    ),
    option(
        "--formatter-config",
        "A file of formatter properties; --formatter-property takes precedence.",
        "FILE",
        section=FORMATTING,
    ),
    option("--key-deserializer", "Sets key.deserializer.", "CLASS", section=FORMATTING),
    option("--value-deserializer", "Sets value.deserializer.", "CLASS", section=FORMATTING),
    option(
        "--skip-message-on-error",
        "Continue after a record that cannot be formatted.",
        section=FORMATTING,
    ),
    client_options("consumer"),
    timeout,
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
        "Ignored if --include is given.",
        "PATTERN",
        instead="--include",
        yields=True,
        section=OLDER,
    ),
)
def console_consumer(options: Options) -> int:
    """Prints the records of a topic, or of all topics that match, as they arrive.

    Starts at the end by default, and runs until it is stopped, or until --max-messages,
    --timeout-ms, --exit-at-end or a range in --offset ends it; all of these are normal ends.  The
    last line on standard error is the number of records printed.

    A line is a record's value.  Properties of the formatter add columns, in the order: timestamp,
    partition, offset, delivery, epoch, headers, key, value.

    --output-format json (or jsonl) and msgpack print whole records, which k console-producer
    --input-format reads: an object a line, or msgpack maps one after the other, with the fields
    topic, partition, offset, timestamp, key, value and headers.  In JSON, bytes that are not UTF-8
    are {"base64": "/wA="}.  The formats hex, base64, short, integer and long stand for lines with
    keys and values so encoded: the last three are decimal numbers of 2, 4 and 8 bytes.

    With --group, or group.id among the properties, the command is a member of that group: the
    members share the partitions, each partition is read from the committed offset, and printed
    records are committed every auto.commit.interval.ms and at the end, including Ctrl-C; then the
    member leaves the group.  --from-beginning makes partitions without a committed offset start at
    the beginning.  With group.protocol=consumer the brokers assign the partitions.

    --offset is start, end, 47, +5 (five offsets after the first), -10 (the last ten records of each
    partition, whatever gaps compaction and transactions have left between them), a range that stops
    before its second offset (10:20, 10-20, :20) or at what is the end now (47:end, -10:end, :end),
    or a time and perhaps a second one that it stops before (@-10m, @-10m:-5m, @:-1h, @-1m:end).
    Times are 1700000000000 (ms), 1700000000 (s), 2026-11-21, 2026-11-21T17:30:00Z, or durations
    from now (-10m, -1h30m); a duration as the second time counts from the first, unless that is a
    duration too (@2026-11-21:1h).  Days and times are in UTC unless Z or a zone such as +01:00
    follows.  All of this applies to all partitions unless one is named.  A start offset that the
    log no longer has, or does not have yet, is an error with auto.offset.reset=none.

    -f prints %t topic, %p partition, %o offset, %k key, %v or %s value, %h headers, %H how many, %T
    or %d timestamp, %e leader epoch, %K and %V or %S lengths of key and value, %% a percent sign;
    \\n, \\t, \\r, \\\\ and \\xNN are what they are in C.  %10o has ten columns at least, %-10k on
    the left, %010o with zeros; %v{hex} is encoded; %h{%k=%v;} formats each header.  The letters are
    those of kcat and rpk, except that rpk's %T is the length of the topic.  Nothing is printed
    between records except what the format contains.

    With --zookeeper the command is a member of a group that balances itself, as in the first Kafka
    paper and in Kafka's script up to 1.1: each member reads a range of the topic's partitions,
    claims them in ZooKeeper (/consumers/GROUP/owners), and commits its offsets there
    (/consumers/GROUP/offsets) after printing.  Each record is printed at least once.  Additional
    properties: zookeeper.session.timeout.ms (6000), zookeeper.connection.timeout.ms,
    rebalance.max.retries (4), rebalance.backoff.ms (2000), auto.commit.interval.ms (5000),
    enable.auto.commit and consumer.id.  Without --group a temporary group is used, and removed at
    the end.

    --grep k:PATTERN matches the key, v: the value, hk: and hv: names and values of headers,
    h:NAME=PATTERN the value of one header; without a field it matches the key, the value or a
    header's value.  A ! in front negates it.  These patterns are matched against bytes.
    """
    from kcli.client.config import ConsumerConfig

    _check(options)
    properties = _consumer_properties(options)
    reading_options = _reading_options(
        options, in_group="group.id" in properties and options.zookeeper is None
    )
    formats = _formats(options)
    config = with_warnings(ConsumerConfig.of({} if options.zookeeper else properties))
    reading = Reading(reading_options, formats, config)
    work = _through_zookeeper(options, reading, properties) if options.zookeeper else reading.all()
    try:
        run(work, options.timeout, while_read=True)
    except (*EXPECTED, Unprintable) as error:
        complain(f"k console-consumer: {reason(error)}")
        return status_of(error)
    except BrokenPipeError:
        complain("Unable to write to standard out, closing consumer.")
        raise
    finally:
        complain(f"Processed a total of {reading.count} messages")
        if options.enable_systest_events:
            print_output("shutdown_complete")
    return 0


def _through_zookeeper(
    options: Options, reading: Reading, properties: dict[str, str]
) -> Coroutine[Any, Any, None]:
    from kcli.zookeeper_consumer import console

    exclude(options, "zookeeper", ["include", "partition", "offset", "exit-at-end"])
    exclude(options, "zookeeper", ["bootstrap-server"])
    properties["zookeeper.connect"] = options.zookeeper
    if options.group is not None:
        properties["group.id"] = options.group
    return console.read(reading, options.topic, properties)


def _reading_options(options: Options, *, in_group: bool = False) -> ReadingOptions:
    """Return the options of reading; negative limits mean no limit, as in Kafka's tool."""
    exclude(options, "timeout-ms", ["idle-timeout"])
    patience_ms = options.timeout_ms
    if options.idle_timeout is not None:
        patience_ms = options.idle_timeout * 1000
    try:
        if options.include is not None:
            translate(options.include)
        filter = RecordFilter(options.grep) if options.grep else None
    except (PatternError, MalformedTerm) as error:
        refuse(str(error))
    return ReadingOptions(
        options.topic,
        options.include,
        options.partition,
        _offsets(options),
        options.exit_at_end,
        filter,
        None if options.max_messages == -1 else options.max_messages,
        None if patience_ms is None or patience_ms < 0 else patience_ms,
        options.skip_message_on_error,
        in_group,
    )


def _check(options: Options) -> None:
    """Check the rules between options, in Kafka's order and words."""
    if (options.topic is None) == (options.include is None):
        refuse("Exactly one of --include/--topic is required. ")
    if options.partition is not None and options.topic is None:
        refuse("The topic is required when partition is specified.")
    if options.offset is not None:
        if options.partition is None and KAFKAS_OFFSET.fullmatch(options.offset):
            refuse("The partition is required when offset is specified.")
        if options.from_beginning:
            refuse("Options from-beginning and offset cannot be specified together.")


def _offsets(options: Options) -> OffsetRange | None:
    if options.offset is None:
        if options.partition is None:
            return None
        return OffsetRange(Edge.START if options.from_beginning else Edge.END)
    try:
        return parse_offsets(options.offset, time.time_ns() // 1_000_000)
    except Malformed as error:
        refuse(
            f"The provided offset value '{options.offset}' is incorrect. Valid values are "
            f"'earliest', 'latest', or a non-negative long.  Beyond these: {error}"
        )


def _formats(options: Options) -> Formatter:
    for at, way in enumerate(WAYS_TO_PRINT):
        exclude(options, way, WAYS_TO_PRINT[at + 1 :])
    for part in ("key", "value"):
        exclude(options, f"{part}-encoding", ["format", "formatter", f"{part}-deserializer"])
    properties = _formatter_properties(options)
    name = options.output_format or LINES
    try:
        if options.format is not None:
            return FormatString(options.format, properties.get("null.literal", "").encode())
        if options.formatter is not None:
            return formatter(options.formatter, properties)
        if name in ENVELOPES:
            return _envelopes(options, name)
        if name not in OUTPUT_FORMATS:
            refuse(f"'{name}' is not an output format; formats are {', '.join(OUTPUT_FORMATS)}")
        default = TEXT if name == LINES else name
        encodings = (
            encoding(encoding_name or default)
            for encoding_name in (options.key_encoding, options.value_encoding)
        )
        return DefaultFormatter(properties, *encodings)
    except (UnknownClass, UnknownEncoding, MalformedFormat) as error:
        refuse(str(error))


def _envelopes(options: Options, name: str) -> Formatter:
    from kcli.console.envelopes import JsonFormatter, MsgpackFormatter

    for unused in ("key-encoding", "value-encoding", "formatter-property", "formatter-config"):
        if is_set(options, unused):
            refuse(f"--{unused} is only allowed with --output-format lines, not {name}")
    return MsgpackFormatter() if name == "msgpack" else JsonFormatter()


def _consumer_properties(options: Options) -> dict[str, str]:
    file = {} if options.command_config is None else read_properties(options.command_config)
    group = _group_of(options, file, key_values(options.command_property))
    properties = client_properties(options, client_id=CLIENT_ID)
    if group is None and options.zookeeper is None:
        # Auto commit would apply to the group that Kafka's tool generates.
        properties.pop("enable.auto.commit", None)
    elif group is not None:
        properties["group.id"] = group
    if options.isolation_level is not None:
        properties["isolation.level"] = options.isolation_level
    reset = properties.setdefault(RESET, "earliest" if options.from_beginning else "latest")
    if options.from_beginning and reset != "earliest":
        refuse(
            f"Can't simultaneously specify --from-beginning and '{RESET}={reset}', please remove "
            "one option"
        )
    return properties


def _group_of(options: Options, file: Mapping[str, str], extra: Mapping[str, str]) -> str | None:
    candidates = (options.group, file.get("group.id"), extra.get("group.id"))
    groups = sorted({group for group in candidates if group is not None})
    if len(groups) > 1:
        detected = ", ".join(f"'{group}'" for group in groups)
        refuse(
            "The group ids provided in different places (directly using '--group', via "
            "'--consumer-property', or via '--consumer.config') do not match. Detected group ids: "
            f"{detected}"
        )
    if groups and options.partition is not None:
        refuse("Options group and partition cannot be specified together.")
    for name in ("offset", "exit-at-end"):
        if groups and is_set(options, name):
            refuse(f"--{name} is not allowed with a group: group {groups[0]} has its own offsets")
    return groups[0] if groups else None


def _formatter_properties(options: Options) -> dict[str, str]:
    properties = (
        {} if options.formatter_config is None else read_properties(options.formatter_config)
    )
    if options.key_deserializer:
        properties["key.deserializer"] = options.key_deserializer
    if options.value_deserializer:
        properties["value.deserializer"] = options.value_deserializer
    return properties | key_values(options.formatter_property)
