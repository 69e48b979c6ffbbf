"""What a metric is called: by Kafka, as an MBean, and by whoever scrapes it, in Prometheus.

Pure: values only.

    kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec,topic=*
        jmx         kafka_server_brokertopicmetrics_messagesin_total{topic=...}
        reporter    kafka_server_brokertopicmetrics_messagesinpersec_total{topic=...}

`jmx` names are those that the JMX exporter makes with the rules of its Kafka example
(kafka-2_0_0.yml), which most dashboards want; `reporter` names those of Strimzi's metrics reporter.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

JMX, REPORTER = "jmx", "reporter"
NAMINGS = (JMX, REPORTER)


class Kind(Enum):
    """The values are Prometheus' types."""

    METER = "counter"
    """Only grows; Kafka's Meter, of which the count is told."""
    GAUGE = "gauge"
    SUMMARY = "summary"
    """Quantiles, count and sum; Kafka's Histogram and Timer."""


METER, GAUGE, SUMMARY = Kind


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric, as Kafka declares it: `group`:type=`type`,name=`name`.

    Without a group it is none of Kafka's, and `name` is what Prometheus calls it.
    """

    group: str
    type: str
    name: str
    kind: Kind
    labels: tuple[str, ...]
    """All that a sample can have; some samples, such as of all topics together, have none."""
    doc: str
    attribute: bool = False
    """`name` is an attribute of the MBean, and no part of its name."""

    @property
    def mbean(self) -> str:
        if not self.group:
            return ""
        named = "" if self.attribute else f",name={self.name}"
        tags = "".join(f",{label}=*" for label in self.labels)
        after = f" {self.name}" if self.attribute else ""
        return f"{self.group}:type={self.type}{named}{tags}{after}"

    def exposed(self, naming: str = JMX) -> str:
        """Its name in Prometheus."""
        if not self.group:
            return self.name
        name = self.name
        if naming == JMX:
            name = name.removesuffix("PerSec")
            if name.endswith("Percent"):
                name = f"{name.removesuffix('Percent')}_percent"
        if self.kind is METER:
            name += "_total"
        return f"{self.group}_{self.type}_{name}".lower().replace(".", "_").replace("-", "_")
