"""`k console-producer`: standard input as records."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import click

from kcli.command import OLDER, Manual, Milliseconds, command
from kcli.console.encodings import ENCODINGS, TEXT, UnknownEncoding, encoding
from kcli.console.incoming import InputFormat, Unreadable
from kcli.console.line_reader import LineReader, Lines
from kcli.console.sending import Sending
from kcli.options import (
    INT,
    LONG,
    Refused,
    attribute_of,
    broker_list,
    client_options,
    client_properties,
    key_values,
    option,
    read_properties,
    refuse,
    require,
    together,
)
from kcli.running import run, warned

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
    """Records a second: 1000, 1000/s, 90/m, 5/h."""

    name = "rate"
    seconds = {"": 1, "s": 1, "m": 60, "h": 3600}

    def convert(self, value: Any, param: Any, ctx: click.Context | None) -> float:
        number, _, unit = str(value).partition("/")
        try:
            per_second = float(number) / self.seconds[unit]
        except (ValueError, KeyError):
            per_second = math.nan
        if not 0 < per_second < math.inf:
            raise click.UsageError(f"'{value}' is no rate such as 1000, 1000/s, or 90/m", ctx)
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
        "A record that could not be delivered makes the exit status 1, and the last line on "
        "standard error says how many there were; Kafka's tool ends with 0.",
        "Each reason for which records are not delivered is told once, not for each record.",
        "When the topic does not exist, or no room comes free, within --max-block-ms, the command "
        "ends; Kafka's tool goes on to wait as long for the next line.",
        "A record is tried again until delivery.timeout.ms (two minutes) is over, unless "
        "--message-send-max-retries says how often, and an answer may take 30 seconds, unless "
        "--request-timeout-ms says how long, so that a broker that restarts loses nothing; the "
        "defaults of Kafka's tool are 3 and 1500.",
        "A batch may have 65536 bytes by default, four times as many as with Kafka's tool, which "
        "halves the work.",
        "compression.type from a file or --command-property counts when --compression-codec is "
        "not given; Kafka's tool sets it to none.",
        "Lines are bytes, ended by a newline alone or after a carriage return: what is no UTF-8 is "
        "sent as it is, and a carriage return within a line is a part of it.",
        "A line longer than max.request.size counts as not delivered, without being held in "
        "memory; which line it is is told.",
        "A signal ends it with a line on standard error that says how many records were delivered.",
        "Standard input that is a directory ends the command, as any of k, with exit status 1 and "
        "a fatal error of Python (init_sys_streams): the interpreter stops before it runs k.",
        "--line-reader takes no other class than its default.",
        "--timeout is Kafka's: how long a batch waits for more records.",
        "Older spellings are accepted without a warning.",
    ),
    see_also=("k-console-consumer", "k-topics"),
)


# Options that set one key of the producer each.
PRODUCER_OPTIONS = (
    (
        "--timeout",
        "TIME",
        Milliseconds(),
        "linger.ms",
        "How long a batch waits for more: milliseconds, or as 500ms, 2s, 5m.  Default: 1000.",
    ),
    ("--batch-size", "BYTES", INT, "batch.size", "Size of a batch.  Default: 65536."),
    ("--request-required-acks", "ACKS", str, "acks", "0, 1, or all (-1, the default)."),
    ("--request-timeout-ms", "MS", INT, "request.timeout.ms", "How long an answer may take."),
    ("--message-send-max-retries", "N", INT, "retries", "How often to try again."),
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
        "The memory that records under way may take.",
    ),
    ("--metadata-expiry-ms", "MS", LONG, "metadata.max.age.ms", "How old metadata may grow."),
    ("--socket-buffer-size", "BYTES", INT, "send.buffer.bytes", "Size of the socket's buffer."),
)


@command(manual=MANUAL)
@together(
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
        f"How a line writes its key: text (default), {', '.join(ENCODINGS)}.",
        "ENCODING",
    ),
    option("--value-encoding", "How a line writes its value, likewise.", "ENCODING"),
    option("--rate", "Send at most this many records a second: N, N/s, N/m.", "N", type=RateType()),
    option("--sync", "Send one record at a time, and end at the first that fails."),
    option("--reader-property", READER_PROPERTIES, "KEY=VALUE", multiple=True),
    option("--reader-config", "A file of them; --reader-property wins.", "FILE"),
    option(
        "--line-reader", "The class that reads lines; no other than the default is taken.", "CLASS"
    ),
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
        "The same as --batch-size, over which it wins.",
        "BYTES",
        type=INT,
        section=OLDER,
    ),
)
def console_producer(given: SimpleNamespace) -> int:
    """Sends each line of standard input as a record.

    An empty line is a record with an empty value.  The input may be endless: no more of it is held
    than the producer's memory (--max-memory-bytes), and a pipe is read only as fast as the brokers
    take the records.  Records survive the restart of a broker.

    At the end of the input what is under way is waited for.  When standard error is a terminal, it
    shows how far a file is sent.

    The input formats json (or jsonl) and msgpack are what k console-consumer prints by
    --output-format: an object a line, or msgpack maps one after the other, with the fields topic,
    partition, offset, timestamp, key, value and headers (a list of objects with key and value).
    Each may be left out or null.  An offset is not read; --topic wins over the topic, and a
    partition goes where it says.  Bytes are strings of UTF-8, or in JSON {"base64": "/wA="}.  What
    kcat -J prints is read, too.

    The formats hex, base64, short, integer and long stand for lines with keys and values so
    encoded: the last three are 2, 4 and 8 bytes as a decimal number, as Kafka's serializers have
    them.
    """
    from kcli.client.config import ProducerConfig

    format = _format(given)
    config = warned(ProducerConfig.of(_producer_properties(given)))
    sending = Sending(
        given.topic,
        format(config.max_request_size),
        config,
        sync=given.sync,
        per_second=given.rate,
    )
    try:
        run(sending.all_of_stdin(), None)
    finally:
        sending.report()
    return 1 if sending.failed else 0


def _format(given: SimpleNamespace) -> Callable[[int], InputFormat]:
    """What makes the reader of --input-format, once max.request.size is known."""
    name = given.input_format or LINES
    if name not in INPUT_FORMATS:
        refuse(f"'{name}' is not an input format; formats are {', '.join(INPUT_FORMATS)}")
    if name not in ENVELOPES:
        require(given, "topic")
        reader = _line_reader(given, name)
        return lambda limit_bytes: Lines(reader, limit_bytes)
    for unused in ("reader_property", "reader_config", "key_encoding", "value_encoding"):
        if getattr(given, unused):
            refuse(f"--{unused.replace('_', '-')} is for lines, and {name} has none")
    from kcli.console.envelope_input import JsonLinesInput, MsgpackMaps

    return MsgpackMaps if name == "msgpack" else JsonLinesInput


def _line_reader(given: SimpleNamespace, name: str) -> LineReader:
    default = TEXT if name == LINES else name
    try:
        return LineReader(
            _reader_properties(given),
            encoding(given.key_encoding or default),
            encoding(given.value_encoding or default),
        )
    except UnknownEncoding as error:
        refuse(str(error))
    except Unreadable as error:
        raise Refused(str(error)) from None


def _reader_properties(given: SimpleNamespace) -> dict[str, str]:
    if given.line_reader not in (None, *READERS):
        raise Refused(f"{given.line_reader} is not a reader that k has; it has {READERS[0]}")
    config = {} if given.reader_config is None else read_properties(given.reader_config)
    return config | key_values(given.reader_property)


def _producer_properties(given: SimpleNamespace) -> dict[str, str]:
    """What is given explicitly wins over --command-property, that over --command-config."""
    properties = client_properties(
        given, linger_ms=LINGER_MS, batch_size=BATCH_BYTES, client_id=CLIENT_ID
    )
    if given.compression_codec is not None:
        properties["compression.type"] = given.compression_codec
    for name, _, _, key, _ in PRODUCER_OPTIONS:
        if (value := getattr(given, attribute_of(name))) is not None:
            properties[key] = str(value)
    if given.max_partition_memory_bytes is not None:
        properties["batch.size"] = str(given.max_partition_memory_bytes)
    return properties
