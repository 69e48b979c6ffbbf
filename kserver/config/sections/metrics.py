"""Metrics and telemetry."""

from __future__ import annotations

from functools import partial

from kserver.config.setting import CLUSTER, LONG, Acts, at_least, section, setting

never = partial(setting, acts=Acts.JAVA)


@section
class MetricsSettings:
    """Metrics and telemetry."""

    metric_reporters: tuple[str, ...] = never(
        "metric.reporters",
        ("org.apache.kafka.common.metrics.JmxReporter",),
        dynamic=CLUSTER,
        doc="plug-ins that report metrics",
    )
    auto_include_jmx_reporter: bool = never(
        "auto.include.jmx.reporter", True, doc="add the JMX reporter to those named"
    )
    metrics_num_samples: int = setting(
        "metrics.num.samples", 2, at_least(1), doc="samples kept of each metric"
    )
    metrics_sample_window_ms: int = setting(
        "metrics.sample.window.ms",
        30_000,
        at_least(1),
        type=LONG,
        doc="length of each",
    )
    metrics_recording_level: str = setting(
        "metrics.recording.level",
        "INFO",
        acts=Acts.ABSENT,
        doc="what is measured: INFO, DEBUG or TRACE",
    )
    kafka_metrics_reporters: tuple[str, ...] = never(
        "kafka.metrics.reporters", (), doc="older plug-ins that report metrics"
    )
    kafka_metrics_polling_interval_secs: int = never(
        "kafka.metrics.polling.interval.secs", 10, at_least(1), doc="how often they report"
    )
    telemetry_max_bytes: int = setting(
        "telemetry.max.bytes",
        1 << 20,
        at_least(1),
        acts=Acts.ABSENT,
        doc="most that a client may push of its metrics (KIP-714)",
    )
