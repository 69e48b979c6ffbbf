"""man/kserver.properties.5, made from the settings themselves.

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
.IR server.properties ,
as it is: the same keys, types, defaults and ranges as Kafka 4.3, and the keys of Kafka 3.9 that
have to do with ZooKeeper.
A line is
.IR key = value ;
lines that start with # or ! are comments, a \e at the end of a line joins the next.
The last value given of a key counts, one given by
.B \-\-override
above all.
.PP
A value that is not of its key's type or range stops the start; all such are named, each with its
line and with what is allowed.
An unknown key is let through with a warning that names the known key nearest to it.
.PP
Without a file the broker listens on 127.0.0.1:9092 and keeps its data in
.I $XDG_DATA_HOME/k
or
.IR ~/.local/share/k .
Without
.B zookeeper.connect
it is a cluster of its own: its number is 0 unless one is given, and the internal topics have one
replica unless told otherwise.
.PP
Settings that are
.I changed at run time
can be set by
.BR k\-configs (1),
or any other client, for one broker or as the default of all, and act at once; what is set so
outlives a restart and stands above the file.
The others, and those that name a class, a file, a command or a password, are taken from the file
alone.
.PP
A setting says whether it
.I acts
already.
One that does not is accepted and shown like any other, so that files written for Kafka can be used
unchanged.
.SS Types
BOOLEAN is true or false.
SHORT, INT and LONG are whole numbers of 16, 32 and 64 bits, DOUBLE is a number.
LIST is separated by commas.
CLASS names a Java class, and is only kept.
PASSWORD is never shown.
.I null
stands for a value that is not set.
Names end in their unit: .ms, .hours, .bytes.
"""

TAIL = r"""
.SH DIFFERENCES FROM KAFKA
.TP
.B log.segment.bytes, segment.bytes
take small segments, from 14 bytes, as Kafka 3 did; Kafka 4 refuses less than 1048576.
.TP
.B log.retention.ms, log.retention.minutes, log.retention.hours
take \-1 for never; Kafka takes every negative number for it.
.TP
.B broker.id
is 0 without
.BR zookeeper.connect ,
where Kafka 4 wants a number.
.TP
.B log.flush.before.ack, log.validate.records, flush.before.ack, validate.records
are not known to Kafka.  With full, the default, record batches are held to stricter rules than
Kafka's, which accepts an uncompressed batch whose offset deltas are not 0, 1, 2 and so on; here it
is INVALID_RECORD, because consumers would skip records of such a batch.
.TP
.B inter.broker.check.address
is not known to Kafka, whose brokers take LeaderAndIsr, StopReplica, UpdateMetadata, AlterPartition,
ControlledShutdown and AllocateProducerIds from whoever connects, as long as no authorizer forbids
it.  A client on the machine of a broker that knows the epochs of the cluster cannot be told from
that broker; a firewall, or a listener that only brokers reach
.RB ( inter.broker.listener.name ),
is the remedy.
.TP
.B http.listener, metrics.naming, request.log.slow.ms, log.format, log.level
are not known to Kafka, which has them as plug-ins and in the files of its logging library.
.TP
.B zookeeper.sasl.jaas.config, zookeeper.auth
are not known to Kafka, which takes its login to ZooKeeper from the section Client of a file that
Java is told of on its command line; Kerberos, and TLS to ZooKeeper, are not spoken yet.
.TP
.B message.downconversion.enable, message.format.version, message.timestamp.difference.max.ms
are taken of a topic, as by Kafka 3; Kafka 4 refuses them.
.TP
.B listeners
of the names in
.B controller.listener.names
are left out, so that a file for a KRaft broker can be used.
.TP
.B listeners, advertised.listeners
can be changed at run time, as in Kafka 3; Kafka 4 refuses what changes what clients are told.
.TP
.B metric.reporters, ssl.keystore.location, sasl.jaas.config
and all else that names a class, a file, a command or a password, which Kafka takes from clients,
are taken from the file alone.
.TP
.BI listener.name. NAME . KEY
can be set at run time, as in Kafka, is checked and kept, and does not act yet.
.TP
.B group.consumer.assignors
takes the names uniform and range; Kafka takes names of classes as well.
.SH SEE ALSO
.BR k (1),
.BR k\-configs (1),
.BR k\-metrics (7)
"""


def manual() -> str:
    """The whole page."""
    lines = [HEAD.strip()]
    for section in sections_of(BrokerConfig):
        lines += _section((section.__doc__ or "").rstrip("."), settings_of(section).values())
    lines += _section("Topics", settings_of(TopicConfig).values(), TOPICS)
    lines += _section("Groups", settings_of(GroupConfig).values(), GROUPS)
    lines.append(TAIL.strip())
    return "\n".join(lines) + "\n"


TOPICS = (
    "What k topics --create --config and k configs --alter set for one topic.  A key that is not "
    "set takes the value of the broker's key that is named with it."
)
GROUPS = (
    "What k configs --alter --entity-type groups sets for one consumer group, within the bounds "
    "that the broker has for each.  A key that is not set takes the value of the broker's key that "
    "is named with it."
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
    PER_BROKER: "changed at run time, of one broker",
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
    """Plain text for roff: hyphens stay hyphens, and no line is taken for a request."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + escaped if escaped.startswith((".", "'")) else escaped
