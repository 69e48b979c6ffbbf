"""Values of options, for completion: from the cluster, the declarations, or this module.

    SOURCES     by the name of the option, or by command and option if the name is ambiguous
    FILES_OF    by metavar, for options that take a file

An option in neither has values that cannot be listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

from kcli.console.encodings import ENCODINGS, TEXT
from kcli.groups.group_shapes import OTHER_TYPES, STATES
from kcli.groups.group_shapes import TYPES as GROUP_TYPES
from kcli.release_features import RELEASES
from kcli.rows.config_lines import QUOTAS, TYPES
from kcli.rows.listing import FORMATS, TEMPLATE


class Candidate(NamedTuple):
    value: str
    note: str = ""


class Names(Protocol):
    """See kcli.shell_completion.cluster_names."""

    def topics(self) -> Mapping[str, int]: ...
    def brokers(self) -> Mapping[str, str]: ...
    def topic_keys(self) -> Sequence[str]: ...
    def groups(self) -> Mapping[str, str]: ...


class CompletionQuery(NamedTuple):
    """A value that begins with `text`, in a command line with these options by name."""

    text: str
    command: str
    options: Mapping[str, str]
    names: Names


Source = Callable[[CompletionQuery], Iterable[Candidate]]

FILES_OF = ("FILE", "DIRECTORY", "[server.properties]", "zookeeper.properties")

SWITCH = ("true", "false")
READER_KEYS: Mapping[str, Sequence[str]] = {
    "parse.timestamp": SWITCH,
    "parse.partition": SWITCH,
    "parse.key": SWITCH,
    "key.separator": (),
    "parse.headers": SWITCH,
    "headers.delimiter": (),
    "headers.separator": (),
    "headers.key.separator": (),
    "null.marker": (),
    "ignore.error": SWITCH,
}
FORMATTER_KEYS: Mapping[str, Sequence[str]] = {
    "print.timestamp": SWITCH,
    "print.partition": SWITCH,
    "print.offset": SWITCH,
    "print.delivery": SWITCH,
    "print.epoch": SWITCH,
    "print.headers": SWITCH,
    "print.key": SWITCH,
    "print.value": SWITCH,
    "key.separator": (),
    "line.separator": (),
    "headers.separator": (),
    "null.literal": (),
    "key.deserializer": (),
    "value.deserializer": (),
    "headers.deserializer": (),
}


def of_words(*words: str) -> Source:
    return lambda query: map(Candidate, words)


def topics(query: CompletionQuery) -> Iterable[Candidate]:
    for name, partitions in query.names.topics().items():
        yield Candidate(name, "1 partition" if partitions == 1 else f"{partitions} partitions")


def topic_list(query: CompletionQuery) -> Iterable[Candidate]:
    """Complete the last of TOPIC,TOPIC."""
    before = query.text[: query.text.rfind(",") + 1]
    return (Candidate(before + name, note) for name, note in topics(query))


def partitions(query: CompletionQuery) -> Iterable[Candidate]:
    """Return the partitions of the topic that is given by another option."""
    count = query.names.topics().get(query.options.get("topic", ""), 0)
    return (Candidate(str(number)) for number in range(count))


def topic_partitions(query: CompletionQuery) -> Iterable[Candidate]:
    """Complete TOPIC, and then TOPIC:PARTITION."""
    topic, colon, _ = query.text.partition(":")
    if not colon:
        return topics(query)
    count = query.names.topics().get(topic, 0)
    return (Candidate(f"{topic}:{number}") for number in range(count))


def brokers(query: CompletionQuery) -> Iterable[Candidate]:
    return (Candidate(where, f"broker {id}") for id, where in query.names.brokers().items())


def broker_ids(query: CompletionQuery) -> Iterable[Candidate]:
    """Complete the last of ID:ID, or of ID,ID."""
    before = query.text[: max(query.text.rfind(":"), query.text.rfind(",")) + 1]
    return (Candidate(before + id, where) for id, where in query.names.brokers().items())


def topic_settings(query: CompletionQuery) -> Iterable[Candidate]:
    from kserver.config.topic import TopicConfig

    return _settings(query.text, TopicConfig, query.names.topic_keys())


def added_settings(query: CompletionQuery) -> Iterable[Candidate]:
    """Complete the last of KEY=VALUE,KEY=VALUE."""
    before, last = _last(query)
    if bounded := _quotas(query):
        candidates: Iterable[Candidate] = [Candidate(f"{key}=") for key in bounded]
    elif _is_of_topics(query):
        candidates = topic_settings(last)
    else:
        candidates = dynamic_settings(last)
    return (Candidate(before + candidate.value, candidate.note) for candidate in candidates)


def deleted_settings(query: CompletionQuery) -> Iterable[Candidate]:
    """Complete the last of KEY,KEY."""
    before, last = _last(query)
    keys: Iterable[str] = query.names.topic_keys()
    if not _is_of_topics(query):
        settings = (candidate.value.rstrip("=") for candidate in dynamic_settings(last))
        keys = _quotas(query) or settings
    return (Candidate(before + key) for key in keys)


def _last(query: CompletionQuery) -> tuple[str, CompletionQuery]:
    comma = query.text.rfind(",") + 1
    return query.text[:comma], query._replace(text=query.text[comma:])


def _quotas(query: CompletionQuery) -> Sequence[str]:
    """Return the quota keys, if the options name an entity of quotas."""
    for type, keys in QUOTAS.items():
        if {type[:-1], f"{type[:-1]}-defaults"} & query.options.keys():
            return keys
    return QUOTAS.get(query.options.get("entity-type", ""), ())


def dynamic_settings(query: CompletionQuery) -> Iterable[Candidate]:
    from kserver.config.broker import BrokerConfig
    from kserver.config.dynamic import changes_at
    from kserver.config.setting import Dynamic, settings_of

    configs = settings_of(BrokerConfig).values()
    names = [config.name for config in configs if changes_at(config) is not Dynamic.READ_ONLY]
    return _settings(query.text, BrokerConfig, names)


def entity_names(query: CompletionQuery) -> Iterable[Candidate]:
    if _is_of_topics(query):
        return topics(query)
    return broker_ids(query) if "broker" in query.options.get("entity-type", "") else ()


def _is_of_topics(query: CompletionQuery) -> bool:
    options = query.options
    return query.command == "topics" or "topic" in options or options.get("entity-type") == "topics"


def groups(query: CompletionQuery) -> Iterable[Candidate]:
    return (Candidate(name, state) for name, state in query.names.groups().items())


def last_of_words(*words: str) -> Source:
    """Complete the last of WORD,WORD."""

    def source(query: CompletionQuery) -> Iterable[Candidate]:
        before, _ = _last(query)
        return (Candidate(before + word) for word in words)

    return source


def broker_settings(query: CompletionQuery) -> Iterable[Candidate]:
    from kserver.config.broker import BrokerConfig

    return _settings(query.text, BrokerConfig)


def client_settings(query: CompletionQuery) -> Iterable[Candidate]:
    from kcli.client.config import AdminConfig, ConsumerConfig, ProducerConfig

    if "producer" in query.command:
        return _settings(query.text, ProducerConfig)
    return _settings(query.text, ConsumerConfig if "consumer" in query.command else AdminConfig)


def reader_properties(query: CompletionQuery) -> Iterable[Candidate]:
    return _pairs(query.text, READER_KEYS)


def formatter_properties(query: CompletionQuery) -> Iterable[Candidate]:
    return _pairs(query.text, FORMATTER_KEYS)


def properties(query: CompletionQuery) -> Iterable[Candidate]:
    """Complete --property, the old option of the console tools."""
    return _pairs(query.text, READER_KEYS if "producer" in query.command else FORMATTER_KEYS)


def transaction_states(query: CompletionQuery) -> Iterable[Candidate]:
    """Complete the last of STATE,STATE."""
    from kcli.client.admin.transaction_admin import STATES

    before = query.text[: query.text.rfind(",") + 1]
    return (Candidate(before + state) for state in STATES)


def _settings(text: str, config: type, keys: Iterable[str] = ()) -> Iterable[Candidate]:
    """Complete KEY=VALUE of a configuration class, or of the keys that a cluster has."""
    from kserver.config.setting import Type, settings_of

    table = settings_of(config)
    names = list(keys) or list(table)
    values = {
        name: SWITCH if table[name].type is Type.BOOLEAN else table[name].check.words
        for name in names
        if name in table
    }
    docs = {name: table[name].doc for name in values}
    return _pairs(text, {name: values.get(name, ()) for name in names}, docs)


def _pairs(
    text: str, values: Mapping[str, Sequence[str]], notes: Mapping[str, str] = MappingProxyType({})
) -> Iterable[Candidate]:
    key, equals, _ = text.partition("=")
    if not equals:
        return [Candidate(f"{name}=", notes.get(name, "")) for name in values]
    return [Candidate(f"{key}={value}") for value in values.get(key, ())]


DECODERS = of_words("StringDecoder", "IntegerDecoder", "LongDecoder")
RECORDS = of_words("lines", "json", "jsonl", "msgpack", *ENCODINGS)

SOURCES: Mapping[str, Source] = {
    "add-config": added_settings,
    "bootstrap-server": brokers,
    "broker": broker_ids,
    "broker-list": brokers,
    "broker-logger": broker_ids,
    "broker-id": broker_ids,
    "cluster id": broker_ids,
    "command-property": client_settings,
    "compression-codec": of_words("none", "gzip", "snappy", "lz4", "zstd"),
    "config": topic_settings,
    "consumer-property": client_settings,
    "delete-config": deleted_settings,
    "election-type": of_words("preferred", "unclean"),
    "entity-name": entity_names,
    "entity-type": of_words(*TYPES),
    "formatter-property": formatter_properties,
    "consumer-groups topic": topic_partitions,
    "assignment-strategy": of_words("range", "roundrobin", "sticky", "cooperative-sticky"),
    "group": groups,
    "group-id": groups,
    "group-protocol": of_words("classic", "consumer"),
    "group-remote-assignor": of_words("uniform", "range"),
    "group-type": of_words(*GROUP_TYPES, *OTHER_TYPES),
    "include": topics,
    "input-format": RECORDS,
    "isolation-level": of_words("read_uncommitted", "read_committed"),
    "key-decoder-class": DECODERS,
    "key-encoding": of_words(TEXT, *ENCODINGS),
    "offset": of_words("earliest", "latest", "start", "end"),
    "output": of_words(*FORMATS, TEMPLATE),
    "output-format": RECORDS,
    "override": broker_settings,
    "partition": partitions,
    "get-offsets partitions": partitions,
    "log-dirs broker-list": broker_ids,
    "reassign-partitions broker-list": broker_ids,
    "metadata": of_words(*RELEASES),
    "node-id": broker_ids,
    "producer-acks": of_words("all", "1"),
    "producer-property": client_settings,
    "producer-props": client_settings,
    "property": properties,
    "reader-property": reader_properties,
    "release-version": of_words(*RELEASES),
    "replica-assignment": broker_ids,
    "replica-verification time": of_words("-1", "-2"),
    "reset-policy": of_words("earliest", "latest", "none"),
    "request-required-acks": of_words("all", "0", "1"),
    "protocol": of_words("consumer", "connect", "share", "streams"),
    "state": last_of_words(*STATES),
    "time": of_words("earliest", "latest", "max-timestamp"),
    "topic": topics,
    "topic-list": topic_list,
    "topics": topics,
    "topics-include": topics,
    "dlq": topics,
    "topic-partitions": topic_partitions,
    "transactions state": transaction_states,
    "type": last_of_words(*GROUP_TYPES),
    "value-decoder-class": DECODERS,
    "verifiable-producer acks": of_words("-1", "0", "1"),
    "value-encoding": of_words(TEXT, *ENCODINGS),
    "whitelist": topics,
}
