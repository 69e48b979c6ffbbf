"""Names of metrics: in Kafka, as an MBean, and in Prometheus.

Pure: values only.

    kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec,topic=*
        jmx         kafka_server_brokertopicmetrics_messagesin_total{topic=...}
        reporter    kafka_server_brokertopicmetrics_messagesinpersec_total{topic=...}

`jmx` names are those of the JMX exporter with the rules of its Kafka example (kafka-2_0_0.yml),
which most dashboards expect; `reporter` names are those of Strimzi's metrics reporter.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

JMX, REPORTER = "jmx", "reporter"
NAMINGS = (JMX, REPORTER)


class MetricKind(Enum):
    """MetricKind of a metric; the values are Prometheus' types."""

    METER = "counter"
    """Never decreases; Kafka's Meter, of which only the count is exposed."""
    GAUGE = "gauge"
    SUMMARY = "summary"
    """Quantiles, count and sum; Kafka's Histogram and Timer."""


METER, GAUGE, SUMMARY = MetricKind


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric, as Kafka declares it: `group`:type=`type`,name=`name`.

    Without a group it is not one of Kafka's, and `name` is its name in Prometheus.
    """

    group: str
    type: str
    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    """All labels that a sample can have; some samples, such as of all topics together, have
    none."""
    doc: str
    attribute: bool = False
    """Whether `name` is an attribute of the MBean instead of a part of the MBean's name."""

    @property
    def mbean(self) -> str:
        if not self.group:
            return ""
        name = "" if self.attribute else f",name={self.name}"
        tags = "".join(f",{label}=*" for label in self.labels)
        after = f" {self.name}" if self.attribute else ""
        return f"{self.group}:type={self.type}{name}{tags}{after}"

    def exposed(self, naming: str = JMX) -> str:
        """Return its name in Prometheus."""
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
