"""Output of `k` about a topic of a KafkaCluster whose partitions are reassigned."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

from kcli.testing.kafka_cluster import KafkaCluster
from tests.support.tools import K


class Moves:
    def __init__(self, cluster: KafkaCluster, topic: str, patience_s: float) -> None:
        self.cluster = cluster
        self.topic = topic
        self.patience_s = patience_s

    def ask(self, command: str, *words: object) -> str:
        """Run a command of `k`, which has to succeed, and return its standard output."""
        given = (*map(str, words), "--bootstrap-server", self.cluster.running_servers)
        done = subprocess.run(
            [*K, command, *given], capture_output=True, text=True, timeout=self.patience_s
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def replicas(self) -> dict[int, list[int]]:
        """Return the replicas by partition."""
        told = json.loads(self.ask("topics", "--describe", "--topic", self.topic, "-o", "json"))
        return {one["partition"]: one["replicas"] for one in told["items"]}

    def moving(self) -> list[dict[str, Any]]:
        """Return the partitions of any topic that are being reassigned."""
        listed: list[dict[str, Any]] = json.loads(
            self.ask("reassign-partitions", "--list", "-o", "json")
        )["items"]
        return listed

    def throttles(self) -> list[str]:
        """Return the throttle configs that the topic or a broker has."""
        told = self.ask("configs", "--describe", "--topic", self.topic)
        for broker in self.cluster.running:
            told += self.ask("configs", "--describe", "--broker", broker)
        return re.findall(r"\S*throttled\S*=\S+", told)
