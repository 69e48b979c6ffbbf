"""Metrics and telemetry."""

from __future__ import annotations

from dataclasses import dataclass

from kserver.config.setting import CLUSTER, LONG, Acts, at_least, setting


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class MetricsSettings:
    """Metrics and telemetry."""

    metric_reporters: tuple[str, ...] = setting(
        "metric.reporters",
        ("org.apache.kafka.common.metrics.JmxReporter",),
        dynamic=CLUSTER,
        acts=Acts.JAVA,
        doc="metric plug-ins",
    )
    auto_include_jmx_reporter: bool = setting(
        "auto.include.jmx.reporter", True, acts=Acts.JAVA, doc="add the JMX reporter to those named"
    )
    metrics_num_samples: int = setting(
        "metrics.num.samples", 2, at_least(1), acts=Acts.METRICS, doc="samples kept"
    )
    metrics_sample_window_ms: int = setting(
        "metrics.sample.window.ms",
        30_000,
        at_least(1),
        type=LONG,
        acts=Acts.METRICS,
        doc="length of a sample",
    )
    metrics_recording_level: str = setting(
        "metrics.recording.level", "INFO", acts=Acts.METRICS, doc="INFO, DEBUG or TRACE"
    )
    kafka_metrics_reporters: tuple[str, ...] = setting(
        "kafka.metrics.reporters", (), acts=Acts.JAVA, doc="older Yammer reporters"
    )
    kafka_metrics_polling_interval_secs: int = setting(
        "kafka.metrics.polling.interval.secs", 10, at_least(1), acts=Acts.JAVA, doc="their period"
    )
    telemetry_max_bytes: int = setting(
        "telemetry.max.bytes",
        1 << 20,
        at_least(1),
        acts=Acts.METRICS,
        doc="largest client telemetry payload",
    )
