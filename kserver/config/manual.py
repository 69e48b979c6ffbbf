"""Generates man/kserver.properties.5 from the config tables.

Pure: the table in, roff out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kserver.config import dynamic
from kserver.config.broker import BrokerConfig
from kserver.config.group import GroupConfig
from kserver.config.setting import (
    CLUSTER,
    PER_BROKER,
    READ_ONLY,
    Acts,
    Setting,
    sections_of,
    settings_of,
)
from kserver.config.topic import TopicConfig

HEAD = r"""
.\" Made from kserver/config by "python -m kcli.manual"; edit the settings there.
.TH KSERVER.PROPERTIES 5 "" k "File Formats"
.SH NAME
kserver.properties \- configuration of a broker, of its topics and of consumer groups
.SH SYNOPSIS
.B k server\-start
.I server.properties
.RB [ \-\-override
.IR key = value ]...
.SH DESCRIPTION
The broker reads Kafka's
.I server.properties
unchanged: it supports the keys, types, defaults and ranges of Kafka 4.3, and the ZooKeeper keys
of Kafka 3.9.
A line is
.IR key = value ;
lines that start with # or ! are comments, a \e at the end of a line joins the next.
If a key occurs more than once, the last value is used;
.B \-\-override
takes precedence over the file.
.PP
If a value has the wrong type or is out of range, the broker does not start; it lists every such
value, with its line and the allowed values.
An unknown key is ignored with a warning that suggests the most similar known key.
.PP
Without a file the broker listens on 127.0.0.1:9092 and keeps its data in
.I $XDG_DATA_HOME/k
or
.IR ~/.local/share/k .
Without
.B zookeeper.connect
the broker is a cluster of its own: broker.id defaults to 0, and the internal topics have one
replica by default.
.PP
Keys that are
.I changed at run time
can be set by
.BR k\-configs (1),
or any other client, for one broker or as the default of all brokers, and take effect at once.
Such a value survives a restart and takes precedence over the file.
All other keys, and those that name a class, a file, a command or a password, can be set only in
the file.
.PP
A key that is marked as
.I ignored
or
.I not used yet
has no effect.
It is accepted and shown like any other, so that files written for Kafka can be used unchanged.
.SS Types
BOOLEAN is true or false.
SHORT, INT and LONG are whole numbers of 16, 32 and 64 bits, DOUBLE is a number.
LIST is a comma-separated list.
CLASS is the name of a Java class, which is stored but not used.
PASSWORD is never shown.
.I null
means that the key is not set.
Names end in their unit: .ms, .hours, .bytes.
"""

TAIL = r"""
.SH DIFFERENCES FROM KAFKA
.TP
.B log.segment.bytes, segment.bytes
accept values from 14, as in Kafka 3; Kafka 4 requires at least 1048576.
.TP
.B log.retention.ms, log.retention.minutes, log.retention.hours
accept \-1 for unlimited retention; Kafka accepts every negative number.
.TP
.B broker.id
defaults to 0 without
.BR zookeeper.connect ;
Kafka 4 requires a value.
.TP
.B log.flush.before.ack, log.validate.records, flush.before.ack, validate.records
do not exist in Kafka. With full, the default, the rules for record batches are stricter than
Kafka's, which accepts an uncompressed batch whose offset deltas are not 0, 1, 2 and so on. k
refuses it with INVALID_RECORD, because consumers would skip records of such a batch.
.TP
.B inter.broker.check.address
does not exist in Kafka, whose brokers accept LeaderAndIsr, StopReplica, UpdateMetadata,
AlterPartition, ControlledShutdown and AllocateProducerIds requests from every client, unless an
authorizer forbids it. k cannot distinguish a broker from a client on the broker's machine that
knows the epochs of the cluster; use a firewall, or a listener that only brokers can reach
.RB ( inter.broker.listener.name ).
.TP
.B http.listener, metrics.naming, request.log.slow.ms, log.format, log.level
do not exist in Kafka, which has plug-ins and configuration files of its logging library instead.
.TP
.B zookeeper.sasl.jaas.config, zookeeper.auth
do not exist in Kafka, which reads its login to ZooKeeper from the section Client of a file that is
passed on Java's command line; Kerberos, and TLS to ZooKeeper, are not supported yet.
.TP
.B message.downconversion.enable, message.format.version, message.timestamp.difference.max.ms
are accepted for a topic, as in Kafka 3; Kafka 4 refuses them.
.TP
.B listeners
with a name in
.B controller.listener.names
are ignored, so that a file for a KRaft broker can be used.
.TP
.B listeners, advertised.listeners
can be changed at run time, as in Kafka 3; Kafka 4 refuses changes of advertised addresses.
.TP
.B metric.reporters, ssl.keystore.location, sasl.jaas.config
and all other keys that name a class, a file, a command or a password can be set only in the file;
Kafka also accepts them from clients.
.TP
.BI listener.name. NAME . KEY
can be set at run time, as in Kafka; it is validated and stored, but not used yet.
.TP
.B group.consumer.assignors
accepts the names uniform and range; Kafka also accepts class names.
.SH SEE ALSO
.BR k (1),
.BR k\-configs (1),
.BR k\-metrics (7)
"""


def manual() -> str:
    """Return the whole page."""
    lines = [HEAD.strip()]
    for section in sections_of(BrokerConfig):
        lines += _section((section.__doc__ or "").rstrip("."), settings_of(section).values())
    lines += _section("Topics", settings_of(TopicConfig).values(), TOPICS)
    lines += _section("Groups", settings_of(GroupConfig).values(), GROUPS)
    lines.append(TAIL.strip())
    return "\n".join(lines) + "\n"


TOPICS = (
    "Configs of one topic, set with k topics --create --config or k configs --alter. A key that is "
    "not set falls back to the broker's key that is named with it."
)
GROUPS = (
    "Configs of one consumer group, set with k configs --alter --entity-type groups, within the "
    "bounds that the broker's keys define. A key that is not set falls back to the broker's key "
    "that is named with it."
)


def _section(title: str, settings: Iterable[Setting], text: str = "") -> Iterator[str]:
    yield f".SH {title.upper()}"
    if text:
        yield escape(text)
    for setting in settings:
        yield ".TP"
        yield f".B {escape(setting.name)}"
        yield escape(sentence(setting.doc))
        yield ".br"
        yield escape(_facts(setting))


CHANGES = {
    READ_ONLY: "",
    PER_BROKER: "changed at run time, for one broker",
    CLUSTER: "changed at run time",
}


def _facts(setting: Setting) -> str:
    default = setting.render(setting.default)
    facts = [f"{setting.type.name}, default {'null' if default is None else default or 'empty'}"]
    if setting.check.range:
        facts.append(f"allowed {setting.check.range}")
    if setting.broker_key:
        facts.append(f"falls back to {setting.broker_key}")
    of_broker = settings_of(BrokerConfig).get(setting.name) is setting
    if of_broker and (at_run_time := CHANGES[dynamic.changes_at(setting)]):
        facts.append(at_run_time)
    if setting.acts is not Acts.NOW:
        facts.append(setting.acts.value)
    return sentence("; ".join(facts))


def sentence(text: str) -> str:
    return text if text.endswith(".") else text + "."


def escape(text: str) -> str:
    """Escape plain text for roff: hyphens stay hyphens, and no line becomes a request."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + escaped if escaped.startswith((".", "'")) else escaped
