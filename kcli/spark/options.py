"""Options: checked options of a query, with the names of Spark's own Kafka source.

Pure: texts in, values out.

    topics             exactly one of assign, subscribe, subscribePattern
    start              startingTimestamp, else startingOffsetsByTimestamp, else startingOffsets
    end                a batch: endingTimestamp, else endingOffsetsByTimestamp, else endingOffsets
    amount             minPartitions, maxRecordsPerPartition; of a stream maxOffsetsPerTrigger,
                       minOffsetsPerTrigger, maxTriggerDelay
    values             valueFormat, keyFormat and theirs: see value_options
    kafka.*            configs of the consumer, without the prefix

Spark passes names in lower case. Unknown names are refused; Spark's own source ignores misspelt
options silently.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from kcli.spark import patterns
from kcli.spark.option_docs import NAMES
from kcli.spark.value_options import ValueOptions, value_options
from kserver.errors import ConfigError
from kserver.model import Offset, TopicPartition
from kserver.wire.special_offsets import EARLIEST, LATEST

Offsets: TypeAlias = dict[TopicPartition, Offset]


@dataclass(frozen=True)
class Assign:
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True)
class Subscribe:
    topics: tuple[str, ...]


@dataclass(frozen=True)
class SubscribePattern:
    pattern: str


TopicSelection: TypeAlias = Assign | Subscribe | SubscribePattern


@dataclass(frozen=True)
class AllPartitions:
    """The same for every partition: EARLIEST or LATEST."""

    spec: int


@dataclass(frozen=True)
class ByOffset:
    """From JSON: offsets, or EARLIEST or LATEST."""

    option: str
    offsets: Offsets


@dataclass(frozen=True)
class ByTime:
    """`times`: ms since 1970 of each partition, or of all."""

    option: str
    times: dict[TopicPartition, int] | int
    or_latest: bool
    """Whether a partition without a record that late begins at its end; else that is an error."""


Position: TypeAlias = AllPartitions | ByOffset | ByTime


@dataclass(frozen=True)
class ReadOptions:
    selection: TopicSelection
    start: Position
    end: Position
    client: dict[str, str]
    """Configs of the ConsumerConfig, from `kafka.*`."""
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    include_headers: bool
    values: ValueOptions


_ENDINGS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")

BOOTSTRAP = "kafka.bootstrap.servers"
_REFUSED = {
    name: f"cannot be set: {remedy}"
    for name, remedy in {
        "kafka.auto.offset.reset": "set startingOffsets instead",
        "kafka.key.deserializer": "keys are read as bytes, or in the format keyFormat",
        "kafka.value.deserializer": "values are read as bytes, or in the format valueFormat",
        "kafka.key.serializer": "keys are bytes: encode the column",
        "kafka.value.serializer": "values are bytes: encode the column",
        "kafka.enable.auto.commit": "Spark keeps the offsets, in the query's checkpoint",
        "kafka.interceptor.classes": "records are read in batches, which no interceptor sees",
        "path": "topics are named by subscribe, subscribePattern or assign, not by load(path)",
    }.items()
} | {"topic": "is for writing; read with subscribe"}

_DELAY = re.compile(r"\s*([0-9]+)\s*([a-z]*)\s*")
_UNIT_MS = {
    "": 1,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_INT64 = range(-(1 << 63), 1 << 63)
_INT32_MAX = (1 << 31) - 1


def batch_options(texts: Mapping[str, str]) -> ReadOptions:
    """Return the options of `spark.read`. Raises ConfigError with the option and the remedy."""
    options = OptionTexts(texts, NAMES, _REFUSED)
    read = _read_options(options, AllPartitions(EARLIEST))
    _refuse_spec(read.start, "startingOffsets", LATEST, "latest", "a batch ends")
    _refuse_spec(read.end, "endingOffsets", EARLIEST, "earliest", "a batch begins")
    return read


def stream_options(texts: Mapping[str, str]) -> ReadOptions:
    """Return the options of `spark.readStream`. Raises ConfigError with the option and the
    remedy.
    """
    options = OptionTexts(texts, NAMES, _REFUSED)
    for name in _ENDINGS:
        if name in options:
            raise ConfigError(
                f"option {name} is for batches: a stream has no end; use spark.read, or"
                " trigger(availableNow=True) to stop at the current end"
            )
    return _read_options(options, AllPartitions(LATEST))


class OptionTexts:
    """The options by name, in any case.

    `names` are the known ones besides the client's; `refused` has the reasons of those that cannot
    be set.
    """

    def __init__(
        self, texts: Mapping[str, str], names: Iterable[str], refused: Mapping[str, str]
    ) -> None:
        self._texts = {name.lower(): text for name, text in texts.items()}
        names_by_lower = {name.lower(): name for name in names}
        for name in self._texts:
            if name in refused:
                raise ConfigError(f"option {name} {refused[name]}")
            if not name.startswith("kafka.") and name not in names_by_lower:
                raise _unknown(name, names_by_lower)

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._texts

    def text(self, name: str) -> str | None:
        return self._texts.get(name.lower())

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.strip().lower() not in ("true", "false"):
            raise ConfigError(f"option {name} must be true or false, not {text!r}")
        return text.strip().lower() == "true"

    def count(self, name: str, most: int = _INT64[-1]) -> int | None:
        """Return a number of at least 1."""
        text = self.text(name)
        if text is None:
            return None
        if not re.fullmatch(r"\s*[0-9]{1,19}\s*", text) or not 1 <= int(text) <= most:
            raise ConfigError(
                f"option {name} must be a whole number from 1 to {most}, not {text!r}"
            )
        return int(text)

    def delay_ms(self, name: str, default: str) -> int:
        text = self.text(name) or default
        match = _DELAY.fullmatch(text.lower())
        if match is None or match[2] not in _UNIT_MS:
            raise ConfigError(
                f"option {name} must be a number with ms, s, m, h or d, such as 15m, not {text!r}"
            )
        return int(match[1]) * _UNIT_MS[match[2]]

    def expect_servers(self) -> None:
        if not (self.text(BOOTSTRAP) or "").strip():
            raise ConfigError(
                f"option {BOOTSTRAP} is required: the addresses of brokers, as in"
                f' .option("{BOOTSTRAP}", "localhost:9092")'
            )

    def client(self) -> dict[str, str]:
        return {
            name.removeprefix("kafka."): text
            for name, text in self._texts.items()
            if name.startswith("kafka.")
        }


def _unknown(name: str, names: Mapping[str, str]) -> ConfigError:
    if f"kafka.{name}" == BOOTSTRAP:
        return ConfigError(f"option {name} is not known; did you mean {BOOTSTRAP}?")
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return ConfigError(f"option {name} is not known; did you mean {names[near[0]]}?")
    return ConfigError(
        f"option {name} is not known; the options are {', '.join(sorted(names.values()))}, and"
        " the client's configs as kafka.NAME"
    )


def _read_options(options: OptionTexts, default_start: Position) -> ReadOptions:
    options.expect_servers()
    selection = _selection(options)
    least, most = options.count("minOffsetsPerTrigger"), options.count("maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise ConfigError(
            f"option minOffsetsPerTrigger ({least}) is more than maxOffsetsPerTrigger ({most})"
        )
    start = _position(options, "starting", _or_latest(options)) or default_start
    end = _position(options, "ending", True) or AllPartitions(LATEST)
    if isinstance(selection, Assign):
        for position in (start, end):
            _check_complete(position, selection.partitions)
    return ReadOptions(
        selection=selection,
        start=start,
        end=end,
        client=options.client(),
        fail_on_data_loss=options.flag("failOnDataLoss", True),
        min_partitions=options.count("minPartitions", _INT32_MAX),
        max_records_per_partition=options.count("maxRecordsPerPartition"),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=options.delay_ms("maxTriggerDelay", "15m"),
        include_headers=options.flag("includeHeaders", False),
        values=value_options(options.text),
    )


def _selection(options: OptionTexts) -> TopicSelection:
    names = [name for name in ("assign", "subscribe", "subscribePattern") if name in options]
    if len(names) != 1:
        suffix = f", not {' and '.join(names)}" if names else ""
        raise ConfigError(f"give one of the options subscribe, subscribePattern, assign{suffix}")
    text = options.text(names[0]) or ""
    match names[0]:
        case "assign":
            return Assign(_parse_assign(text))
        case "subscribe":
            topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
            if not topics:
                raise ConfigError("option subscribe names no topic")
            return Subscribe(topics)
        case _:
            if text.strip():
                patterns.check(text.strip())
                return SubscribePattern(text.strip())
            raise ConfigError("option subscribePattern is empty")


def _parse_assign(text: str) -> tuple[TopicPartition, ...]:
    example = '{"topic-a":[0,1],"topic-b":[2]}'
    topics = _json_object("assign", text, example)
    partitions = []
    for topic, numbers in topics.items():
        if not isinstance(numbers, list) or not all(_is_partition(n) for n in numbers):
            raise ConfigError(f"option assign has no list of partitions for {topic!r}: {example}")
        partitions += [TopicPartition(topic, number) for number in numbers]
    if not partitions:
        raise ConfigError(f"option assign names no partition: {example}")
    return tuple(sorted(set(partitions)))


def _or_latest(options: OptionTexts) -> bool:
    name = "startingOffsetsByTimestampStrategy"
    strategy = (options.text(name) or "error").strip().lower()
    if strategy not in ("error", "latest"):
        raise ConfigError(f"option {name} must be error or latest, not {options.text(name)!r}")
    return strategy == "latest"


def _position(options: OptionTexts, which: str, or_latest: bool) -> Position | None:
    """Return the position of the first of its three options that is set."""
    if (text := options.text(name := f"{which}Timestamp")) is not None:
        if not re.fullmatch(r"\s*[0-9]{1,18}\s*", text):
            raise ConfigError(f"option {name} must be a time in ms since 1970, not {text!r}")
        return ByTime(name, int(text), or_latest)
    if (text := options.text(name := f"{which}OffsetsByTimestamp")) is not None:
        times = read_offsets(text, name, least=0)
        return ByTime(name, times, or_latest)
    if (text := options.text(name := f"{which}Offsets")) is not None:
        match text.strip().lower():
            case "earliest":
                return AllPartitions(EARLIEST)
            case "latest":
                return AllPartitions(LATEST)
        return ByOffset(name, read_offsets(text, name))
    return None


def _check_complete(position: Position, partitions: tuple[TopicPartition, ...]) -> None:
    for_each = listed(position)
    if for_each is not None and set(for_each) != set(partitions):
        raise incomplete(position, set(partitions))


def listed(position: Position) -> Mapping[TopicPartition, int] | None:
    """Return its value of each partition; None if it is the same for all."""
    match position:
        case ByOffset(offsets=offsets):
            return offsets
        case ByTime(times=dict(times)):
            return times
    return None


def incomplete(position: Position, partitions: set[TopicPartition]) -> ConfigError:
    """Return the error for offsets that do not list exactly these partitions."""
    assert not isinstance(position, AllPartitions)
    own = set(listed(position) or ())
    missing, beyond = sorted(partitions - own), sorted(own - partitions)
    parts = [f"leaves out {_shown(missing)}"] if missing else []
    parts += [f"names {_shown(beyond)}, not read here"] if beyond else []
    remedy = "; -2 is earliest, -1 latest" if isinstance(position, ByOffset) else ""
    return ConfigError(
        f"option {position.option} must list every partition that is read, and no other: it"
        f" {' and '.join(parts)}{remedy}"
    )


def _shown(partitions: list[TopicPartition], most: int = 5) -> str:
    shown = ", ".join(map(str, partitions[:most]))
    return f"{shown} and {len(partitions) - most} more" if len(partitions) > most else shown


def _refuse_spec(position: Position, name: str, spec: int, word: str, where: str) -> None:
    remedy = f"{where} there, and would be empty"
    if position == AllPartitions(spec):
        raise ConfigError(f"option {name} cannot be {word} in a batch: {remedy}")
    if isinstance(position, ByOffset):
        for partition, offset in position.offsets.items():
            if offset == spec:
                raise ConfigError(
                    f"option {name} cannot be {spec} ({word}) for {partition} in a batch: {remedy}"
                )


# Offsets as JSON: {"topic":{"0":23,"1":-2}}


def read_offsets(text: str, option: str, *, least: int = EARLIEST) -> Offsets:
    """Parse offsets. Raises ConfigError if the text is invalid, or a number is below `least`."""
    example = '{"topic":{"0":23,"1":42}}'
    topics = _json_object(option, text, example)
    offsets: Offsets = {}
    for topic, numbers in topics.items():
        if not isinstance(numbers, dict):
            raise ConfigError(f"option {option} has no partitions for {topic!r}: {example}")
        for partition, number in numbers.items():
            if not re.fullmatch(r"[0-9]{1,10}", partition) or not _is_partition(int(partition)):
                raise ConfigError(f"option {option} has no partition {partition!r}: {example}")
            if type(number) is not int or number < least or number not in _INT64:
                raise ConfigError(
                    f"option {option} has {json.dumps(number)} for {topic}-{partition}, which is "
                    f"not a whole number of at least {least}"
                )
            offsets[TopicPartition(topic, int(partition))] = number
    return offsets


def offsets_of(checkpoint: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Return the offsets of an object read from JSON."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, of in checkpoint.items()
        for partition, offset in of.items()
    }


def checkpoint_of(offsets: Mapping[TopicPartition, Offset]) -> dict[str, dict[str, int]]:
    """Return the object for JSON, with sorted keys: Spark compares the text."""
    document: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        document.setdefault(topic, {})[str(partition)] = offset
    return document


def _json_object(option: str, text: str, example: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"option {option} is not JSON, such as {example}: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"option {option} is not a JSON object, such as {example}")
    return document


def _is_partition(number: object) -> bool:
    return type(number) is int and 0 <= number <= _INT32_MAX
