"""A cluster of the pytest plugin for a whole module; its logs are shown with a failure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kcli.testing.broker_nursery import Nursery
from kcli.testing.kafka_cluster import KafkaCluster


@contextmanager
def opened_cluster(
    directory: Path, brokers: int, settings: Mapping[str, object]
) -> Iterator[KafkaCluster]:
    with Nursery() as nursery:
        cluster = KafkaCluster(nursery, directory, brokers, settings)
        cluster.open()
        try:
            yield cluster
        finally:
            for name, log in cluster.logs.items():
                print(f"--- {name}\n{log}")
            cluster.close()
