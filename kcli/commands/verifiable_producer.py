"""`k verifiable-producer`: sends numbers, and reports the result of each."""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import sys
import time
from typing import TYPE_CHECKING, Any

from kcli.command.command import Manual, Options, command
from kcli.command.command_runner import reason, run, with_warnings
from kcli.command.error_texts import exception
from kcli.command.options import (
    CONNECTION,
    INT,
    LONG,
    bootstrap_server,
    broker_list,
    client_properties,
    older_config,
    option,
    option_group,
    refuse,
    timeout,
)
from kcli.command.output import print_output
from kcli.command.statuses import DONE
from kserver.errors import KafkaError

if TYPE_CHECKING:
    from kcli.client.config import ProducerConfig
    from kcli.client.producer.producer import Producer, RecordMetadata

MANUAL = Manual(
    kafka="kafka-verifiable-producer.sh",
    examples=(
        ("k verifiable-producer --topic t --max-messages 1000", "A thousand numbers."),
        (
            "k verifiable-producer --topic t --throughput 100 --repeating-keys 10 \\\n"
            "    --value-prefix 3 > sent.jsonl",
            "A hundred a second until Ctrl-C or SIGTERM, as 3.0, 3.1 and so on, under ten keys.",
        ),
    ),
    differences=(
        "Without --bootstrap-server, the usual default is used; --bootstrap-server takes "
        "precedence over the file.",
        "--throughput 0 is refused; Kafka's tool sends one record and sleeps forever.",
        "Older spellings are accepted without a warning.",
        "Names of options are not abbreviated.",
    ),
    statuses=((0, "Each record has its outcome on standard output, whichever that is."),),
    see_also=("k-console-producer", "k-producer-perf-test"),
)

ACKS = ("-1", "0", "1")
NO_TIME = -1
# So that responses are handled while records are sent at full speed.
AT_ONCE = 100


@command(manual=MANUAL)
@option_group(
    option("--topic", "The topic that the numbers go to.  Required.", "TOPIC"),
    option("--max-messages", "Stop after this many; below 0, the default, never.", "N", type=INT),
    option(
        "--throughput", "At most this many a second; below 0, the default, no limit.", "N", type=INT
    ),
    option("--acks", "0, 1 or -1 for all, the default.", "ACKS"),
    option(
        "--message-create-time",
        "The timestamp of the first record, in ms of the epoch; those that follow have later ones. "
        " Default: that of the clock.",
        "MS",
        type=LONG,
    ),
    option("--value-prefix", "Values are this number, a point and the count.", "N", type=INT),
    option("--repeating-keys", "Keys are 0 to one below this number, in turn.", "N", type=INT),
    bootstrap_server,
    option(
        "--command-config",
        "A file of producer properties, which take precedence over --acks and retries=0.",
        "FILE",
        section=CONNECTION,
    ),
    timeout,
    broker_list,
    older_config("--producer.config"),
)
def verifiable_producer(options: Options) -> int:
    """Sends increasing numbers to a topic, and prints a line of JSON for each that is delivered or
    lost.

    The first line is of the event startup_complete, then come producer_send_success and
    producer_send_error, in the end shutdown_complete and a sum, tool_data.  What is lost is not
    tried again, unless the file says so.  Ctrl-C and SIGTERM let what was sent have its outcome.
    """
    _check(options)
    from kcli.client.config import ProducerConfig

    properties = client_properties(options, acks=options.acks or "-1", retries="0")
    config = with_warnings(ProducerConfig.of(properties))
    run(VerifiableProducer(options, config).all(), options.timeout)
    return DONE


def _check(options: Options) -> None:
    if options.topic is None:
        refuse("argument --topic is required")
    if options.throughput == 0:
        refuse("--throughput 0 would send nothing; use -1 for no limit")
    if options.acks is not None and options.acks not in ACKS:
        refuse(f"argument --acks: invalid choice: '{options.acks}' (choose from {{0,1,-1}})")
    if options.repeating_keys is not None and options.repeating_keys <= 0:
        refuse("--repeating-keys should be greater than zero")


class VerifiableProducer:
    """One run."""

    def __init__(self, options: Options, config: ProducerConfig) -> None:
        self._options = options
        self._config = config
        self._sent = 0
        self._acked = 0
        self._started_ms = _now_ms()
        self._flushing = False
        self._failed: OSError | None = None
        """Why no event can be printed any more."""

    async def all(self) -> None:
        from kcli.client.producer.producer import Producer

        producer = Producer(self._config)
        await producer.start()
        try:
            self._print_event("startup_complete")
            await self._send_all(producer)
        finally:
            await producer.close()
            if self._failed is None:
                self._print_event("shutdown_complete")
                self._print_summary()
        if self._failed is not None:
            raise self._failed

    async def _send_all(self, producer: Producer) -> None:
        options, loop = self._options, asyncio.get_running_loop()
        start = loop.time()
        endless = options.max_messages is None or options.max_messages < 0
        timestamp = options.message_create_time
        if timestamp == NO_TIME:
            timestamp = None
        for number in itertools.count() if endless else range(options.max_messages):
            await self._send(producer, number, timestamp)
            if timestamp is not None:
                timestamp += _now_ms() - self._started_ms
            if self._failed is not None:
                return
            due = 0.0
            if options.throughput is not None and options.throughput > 0:
                due = start + (number + 1) / options.throughput
            if due > loop.time():
                await asyncio.sleep(due - loop.time())
            elif number % AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _send(self, producer: Producer, number: int, timestamp: int | None) -> None:
        from kcli.client.errors import ClientError

        options = self._options
        value = str(number) if options.value_prefix is None else f"{options.value_prefix}.{number}"
        keys = options.repeating_keys
        key = None if keys is None else str(number % keys)
        on_delivery = functools.partial(self._on_delivery, key, value)
        self._sent += 1
        try:
            while not producer.try_send(
                options.topic,
                value.encode(),
                None if key is None else key.encode(),
                timestamp=timestamp,
                on_delivery=on_delivery,
            ):
                await producer.ready(options.topic)
        except (ClientError, KafkaError) as error:
            on_delivery(error, None)

    def _on_delivery(
        self, key: str | None, value: str, error: Exception | None, metadata: RecordMetadata | None
    ) -> None:
        if metadata is not None:
            self._acked += 1
            self._print_event(
                "producer_send_success",
                key=key,
                value=value,
                offset=metadata.offset,
                topic=metadata.topic,
                partition=metadata.partition,
            )
        elif error is not None:
            self._print_event(
                "producer_send_error",
                topic=self._options.topic,
                key=key,
                value=value,
                exception=f"class {_exception(error)}",
                message=reason(error),
            )

    def _print_summary(self) -> None:
        elapsed_ms = _now_ms() - self._started_ms
        self._print_event(
            "tool_data",
            sent=self._sent,
            acked=self._acked,
            target_throughput=-1 if self._options.throughput is None else self._options.throughput,
            avg_throughput=1000 * self._acked / elapsed_ms if elapsed_ms else 0.0,
        )
        sys.stdout.flush()

    def _print_event(self, name: str, **values: Any) -> None:
        """Print an event in the producer's own loop, which must not get an error: it ends the
        run.
        """
        event = {"timestamp": _now_ms(), "name": name} | values
        try:
            print_output(json.dumps(event, separators=(",", ":"), ensure_ascii=False))
        except OSError as error:
            self._failed = error
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        try:
            sys.stdout.flush()
        except OSError as error:
            self._failed = error


def _exception(error: Exception) -> str:
    """Return the name of the exception that Kafka's client would have raised."""
    from kcli.client.errors import TimedOut

    if isinstance(error, KafkaError):
        return exception(error)
    if isinstance(error, TimedOut):
        return "org.apache.kafka.common.errors.TimeoutException"
    return "org.apache.kafka.common.KafkaException"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
