"""`k console-producer`: sends standard input as records."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import click

from kcli.command.command import OLDER, Manual, Milliseconds, Options, command
from kcli.command.command_runner import run, with_warnings
from kcli.command.options import (
    INT,
    LONG,
    Refused,
    attribute_of,
    broker_list,
    client_options,
    client_properties,
    key_values,
    option,
    option_group,
    read_properties,
    refuse,
    require,
)
from kcli.console.encodings import ENCODINGS, TEXT, UnknownEncoding, encoding
from kcli.console.incoming import InputFormat, Unreadable
from kcli.console.line_reader import LineReader, Lines
from kcli.console.sending import Sending

READERS = (
    "org.apache.kafka.tools.LineMessageReader",
    "kafka.tools.ConsoleProducer$LineMessageReader",
)
CLIENT_ID = "console-producer"
LINGER_MS = "1000"
BATCH_BYTES = "65536"
PRODUCER = "Producer"

READER_PROPERTIES = (
    "Properties of the reader of lines: parse.timestamp, parse.partition, parse.headers and "
    "parse.key (all false), key.separator after each but the headers (TAB), headers.delimiter "
    "after these (TAB), headers.separator (a pattern: ,), headers.key.separator (:), null.marker "
    "(none), ignore.error (false).  With all a line is TIMESTAMP TAB PARTITION TAB "
    "HEADER:VALUE,HEADER:VALUE TAB KEY TAB VALUE.  Repeatable."
)
LINES = "lines"
ENVELOPES = ("json", "jsonl", "msgpack")
INPUT_FORMATS = (LINES, *ENVELOPES, *ENCODINGS)


class RateType(click.ParamType):  # type: ignore[type-arg]
    """Records per second: 1000, 1000/s, 90/m, 5/h."""

    name = "rate"
    seconds = {"": 1, "s": 1, "m": 60, "h": 3600}

    def convert(self, value: Any, param: Any, ctx: click.Context | None) -> float:
        number, _, unit = str(value).partition("/")
        try:
            per_second = float(number) / self.seconds[unit]
        except (ValueError, KeyError):
            per_second = math.nan
        if not 0 < per_second < math.inf:
            raise click.UsageError(
                f"'{value}' is not a rate; use a form such as 1000, 1000/s, or 90/m", ctx
            )
        return per_second


MANUAL = Manual(
    kafka="kafka-console-producer.sh",
    examples=(
        ("k console-producer --topic orders < orders.txt", "A record for each line of a file."),
        (
            "k console-producer --topic orders --reader-property parse.key=true \\\n"
            "    --reader-property key.separator=:",
            "Lines such as me:hello, with a key before the first colon.",
        ),
        (
            "tail -f access.log | k console-producer --topic access --compression-codec zstd",
            "A stream of lines, compressed.",
        ),
        (
            "k console-producer --topic copy --input-format json < orders.json",
            "Whole records, as k console-consumer --output-format json prints them.",
        ),
        (
            "k console-producer --topic orders --rate 100/s < orders.txt",
            "A hundred records a second.",
        ),
    ),
    differences=(
        "If a record could not be delivered, the exit status is 1, and the last line on standard "
        "error has the number of such records; Kafka's tool ends with 0.",
        "Each reason why records are not delivered is printed once, not for each record.",
        "If within --max-block-ms the topic does not exist or no memory becomes free, the "
        "command ends; Kafka's tool waits again for the next line.",
        "A record is retried until delivery.timeout.ms (two minutes) has passed, unless "
        "--message-send-max-retries limits the number of retries, and a response may take 30 "
        "seconds, unless --request-timeout-ms is given, so no record is lost when a broker "
        "restarts; the defaults of Kafka's tool are 3 and 1500.",
        "The default batch size is 65536 bytes, four times that of Kafka's tool, which halves "
        "the CPU time.",
        "compression.type from a file or --command-property is used if --compression-codec is "
        "not given; Kafka's tool sets it to none.",
        "Lines are bytes, ended by a newline or by a carriage return and a newline: bytes that "
        "are not UTF-8 are sent unchanged, and a carriage return within a line is a part of it.",
        "A line longer than max.request.size counts as not delivered, and is not held in memory; "
        "its line number is printed.",
        "When a signal ends the command, the last line on standard error has the number of "
        "delivered records.",
        "If standard input is a directory, the command, like every command of k, ends with exit "
        "status 1 and Python's own message (init_sys_streams): the interpreter ends before k runs.",
        "--line-reader accepts only its default class.",
        "--timeout is Kafka's: how long a batch waits for more records.",
        "Older spellings are accepted without a warning.",
    ),
    see_also=("k-console-consumer", "k-topics"),
)


# Options that each set one key of the producer.
PRODUCER_OPTIONS = (
    (
        "--timeout",
        "TIME",
        Milliseconds(),
        "linger.ms",
        "How long a batch waits for more records: milliseconds, or with a unit: 500ms, 2s, 5m.  "
        "Default: 1000.",
    ),
    ("--batch-size", "BYTES", INT, "batch.size", "Maximum bytes of a batch.  Default: 65536."),
    ("--request-required-acks", "ACKS", str, "acks", "0, 1, or all (-1, the default)."),
    ("--request-timeout-ms", "MS", INT, "request.timeout.ms", "How long to wait for a response."),
    ("--message-send-max-retries", "N", INT, "retries", "Maximum number of retries."),
    (
        "--retry-backoff-ms",
        "MS",
        LONG,
        "retry.backoff.ms",
        "How long to wait before a retry.  Default: 100.",
    ),
    (
        "--max-block-ms",
        "MS",
        LONG,
        "max.block.ms",
        "How long to wait for a topic that does not exist.",
    ),
    (
        "--max-memory-bytes",
        "BYTES",
        LONG,
        "buffer.memory",
        "Memory for records that are not yet delivered.",
    ),
    ("--metadata-expiry-ms", "MS", LONG, "metadata.max.age.ms", "Maximum age of metadata."),
    ("--socket-buffer-size", "BYTES", INT, "send.buffer.bytes", "Size of the socket buffer."),
)


@command(manual=MANUAL)
@option_group(
    option(
        "--topic",
        "The topic that records go to.  Required, unless each envelope names one.",
        "NAME",
    ),
    option(
        "--input-format",
        f"{', '.join(INPUT_FORMATS)}.  Default: lines.  See above.",
        "FORMAT",
    ),
    option(
        "--key-encoding",
        f"Encoding of keys in a line: text (default), {', '.join(ENCODINGS)}.",
        "ENCODING",
    ),
    option("--value-encoding", "Encoding of values in a line, likewise.", "ENCODING"),
    option("--rate", "Send at most this many records a second: N, N/s, N/m.", "N", type=RateType()),
    option("--sync", "Send one record at a time, and stop at the first that fails."),
    option("--reader-property", READER_PROPERTIES, "KEY=VALUE", multiple=True),
    option(
        "--reader-config",
        "A file of reader properties; --reader-property takes precedence.",
        "FILE",
    ),
    option("--line-reader", "The class that reads lines; only the default is supported.", "CLASS"),
    client_options("producer"),
    option(
        "--compression-codec",
        "none (default), gzip, snappy, lz4 or zstd; gzip where no name follows.  Sets "
        "compression.type.",
        "[CODEC]",
        if_bare="gzip",
        section=PRODUCER,
    ),
    *(
        option(name, f"{help}  Sets {key}.", metavar, type=type, section=PRODUCER)
        for name, metavar, type, key, help in PRODUCER_OPTIONS
    ),
    broker_list,
    option(
        "--producer-property",
        "The same as --command-property.",
        "KEY=VALUE",
        multiple=True,
        instead="--command-property",
        section=OLDER,
    ),
    option(
        "--property",
        "The same as --reader-property.",
        "KEY=VALUE",
        multiple=True,
        instead="--reader-property",
        section=OLDER,
    ),
    option(
        "--max-partition-memory-bytes",
        "The same as --batch-size, and takes precedence over it.",
        "BYTES",
        type=INT,
        section=OLDER,
    ),
)
def console_producer(options: Options) -> int:
    """Sends each line of standard input as a record.

    An empty line is a record with an empty value.  The input may be endless: at most
    --max-memory-bytes of it are held in memory, and a pipe is read only as fast as the brokers
    accept the records.  No record is lost when a broker restarts.

    At the end of the input, the command waits for records that are not yet delivered.  If standard
    error is a terminal, it shows the progress of a file.

    The input formats json (or jsonl) and msgpack are what k console-consumer prints by
    --output-format: an object a line, or msgpack maps one after the other, with the fields topic,
    partition, offset, timestamp, key, value and headers (a list of objects with key and value).
    Each may be left out or null.  The offset is ignored; --topic takes precedence over the topic,
    and a partition is used as given.  Bytes are strings of UTF-8, or in JSON {"base64": "/wA="}.
    The output of kcat -J is accepted too.

    The formats hex, base64, short, integer and long stand for lines with keys and values so
    encoded: the last three are 2, 4 and 8 bytes as a decimal number, as Kafka's serializers have
    them.
    """
    from kcli.client.config import ProducerConfig

    format = _format(options)
    config = with_warnings(ProducerConfig.of(_producer_properties(options)))
    sending = Sending(
        options.topic,
        format(config.max_request_size),
        config,
        sync=options.sync,
        per_second=options.rate,
    )
    try:
        run(sending.all_of_stdin(), None)
    finally:
        sending.report()
    return 1 if sending.failed else 0


def _format(options: Options) -> Callable[[int], InputFormat]:
    """Return a function that makes the reader of --input-format, once max.request.size is known."""
    name = options.input_format or LINES
    if name not in INPUT_FORMATS:
        refuse(f"'{name}' is not an input format; formats are {', '.join(INPUT_FORMATS)}")
    if name not in ENVELOPES:
        require(options, "topic")
        reader = _line_reader(options, name)
        return lambda limit_bytes: Lines(reader, limit_bytes)
    for unused in ("reader_property", "reader_config", "key_encoding", "value_encoding"):
        if getattr(options, unused):
            refuse(
                f"--{unused.replace('_', '-')} is only allowed with --input-format lines, not "
                f"{name}"
            )
    from kcli.console.envelope_input import JsonLinesInput, MsgpackMaps

    return MsgpackMaps if name == "msgpack" else JsonLinesInput


def _line_reader(options: Options, name: str) -> LineReader:
    default = TEXT if name == LINES else name
    try:
        return LineReader(
            _reader_properties(options),
            encoding(options.key_encoding or default),
            encoding(options.value_encoding or default),
        )
    except UnknownEncoding as error:
        refuse(str(error))
    except Unreadable as error:
        raise Refused(str(error)) from None


def _reader_properties(options: Options) -> dict[str, str]:
    if options.line_reader not in (None, *READERS):
        raise Refused(f"{options.line_reader} is not supported; use {READERS[0]}")
    config = {} if options.reader_config is None else read_properties(options.reader_config)
    return config | key_values(options.reader_property)


def _producer_properties(options: Options) -> dict[str, str]:
    """Return the producer's properties; options take precedence over --command-property, which
    takes precedence over --command-config.
    """
    properties = client_properties(
        options, linger_ms=LINGER_MS, batch_size=BATCH_BYTES, client_id=CLIENT_ID
    )
    if options.compression_codec is not None:
        properties["compression.type"] = options.compression_codec
    for name, _, _, key, _ in PRODUCER_OPTIONS:
        if (value := getattr(options, attribute_of(name))) is not None:
            properties[key] = str(value)
    if options.max_partition_memory_bytes is not None:
        properties["batch.size"] = str(options.max_partition_memory_bytes)
    return properties
