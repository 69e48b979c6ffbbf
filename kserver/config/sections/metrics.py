"""Metrics and telemetry."""

from __future__ import annotations

from kserver.config.known import known_keys
from kserver.config.setting import LONG, at_least, section, setting


@section
@known_keys("metrics")
class MetricsSettings:
    """Metrics and telemetry."""

    metrics_num_samples: int = setting(
        "metrics.num.samples", 2, at_least(1), doc="number of samples kept for each metric"
    )
    metrics_sample_window_ms: int = setting(
        "metrics.sample.window.ms",
        30_000,
        at_least(1),
        type=LONG,
        doc="length of each sample of a metric",
    )
