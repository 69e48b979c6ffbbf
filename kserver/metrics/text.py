"""Metrics as text, in Prometheus' format 0.0.4.

Pure: values in, text out.

    metrics = Metrics()
    metrics.add(PARTITION_COUNT, lambda: [((), len(partitions))])
    for piece in metrics.text(JMX): ...

A metric is added with a function that returns its samples when it is scraped: pairs of label
values, as many as the sample has, and a number or a Histogram.  The text comes in pieces of at
most PIECE_SAMPLES, so that the server can do other work in between.  A change in the meantime
appears in some samples and not in others, but makes no total wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from kserver.metrics.meters import Histogram
from kserver.metrics.names import JMX, Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PIECE_SAMPLES = 500
QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
"""Quantiles of Kafka's histograms."""

Sample: TypeAlias = tuple[tuple[str, ...], float | Histogram]
Read: TypeAlias = Callable[[], Iterable[Sample]]

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Metrics:
    """Metrics of one broker, in the order in which they were added."""

    def __init__(self) -> None:
        self._read: dict[Metric, Read] = {}

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._read)

    def add(self, metric: Metric, read: Read) -> None:
        assert metric not in self._read
        self._read[metric] = read

    def gauge(self, metric: Metric, read: Callable[[], float]) -> None:
        """Add a metric without labels."""
        self.add(metric, lambda: [((), read())])

    def text(self, naming: str = JMX) -> Iterator[str]:
        for metric, read in list(self._read.items()):
            name = metric.exposed(naming)
            lines = [
                f"# HELP {name} {_help(metric)}",
                f"# TYPE {name} {metric.kind.value}",
            ]
            for values, number in list(read()):
                labels = _labels(metric.labels, values)
                if isinstance(number, Histogram):
                    lines += _summary(name, labels, number, naming)
                else:
                    lines.append(f"{name}{_braced(labels)} {number}")
                if len(lines) >= PIECE_SAMPLES:
                    yield _joined(lines)
                    lines = []
            if lines:
                yield _joined(lines)


def _joined(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


def _help(metric: Metric) -> str:
    doc = f"{metric.doc} ({metric.mbean})" if metric.mbean else metric.doc
    return doc.replace("\\", r"\\").replace("\n", r"\n")


def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    if not values:
        return ""
    return ",".join(
        f'{name}="{value.translate(_ESCAPES)}"' for name, value in zip(names, values, strict=False)
    )


def _braced(labels: str) -> str:
    return f"{{{labels}}}" if labels else ""


def _summary(name: str, labels: str, histogram: Histogram, naming: str) -> Iterator[str]:
    comma = "," if labels else ""
    for share, value in zip(QUANTILES, histogram.quantiles(QUANTILES), strict=True):
        # The JMX exporter makes "0." and the digits of 50thPercentile of it.
        quantile = "0.50" if share == 0.5 and naming == JMX else str(share)
        yield f'{name}{{{labels}{comma}quantile="{quantile}"}} {value:.6g}'
    yield f"{name}_sum{_braced(labels)} {histogram.sum:.6g}"
    yield f"{name}_count{_braced(labels)} {histogram.count}"
