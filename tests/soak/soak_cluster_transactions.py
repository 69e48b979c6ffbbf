"""Transactions of three client libraries on three brokers that fail one after the other.

    pytest -s tests/soak/soak_cluster_transactions.py           12 cells: half an hour

Each cell is a library, a transaction version and a kind of failure. A program reads, transforms and
writes in transactions, while the leader of its partitions, the coordinator of its transactions, the
coordinator of its group and the controller fail in turn: killed (kill -9) or paused (SIGSTOP). Each
record counts once.
"""

from __future__ import annotations

import pytest

from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from tests.fault.test_cluster_exactly_once import Copy, cluster, source, transactors

__all__ = ["cluster", "source", "transactors"]

SAFE_DOWNGRADE = 2
PATIENCE_S = 150
"""Java's client waits for a paused broker until its request times out, after 30 s, and then for the
connection to it."""


@pytest.mark.soak
@pytest.mark.parametrize("failure", ["kill", "pause"])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("library", ["confluent", "java", "k"])
def test_each_record_counts_once(cluster, source, transactors, library, version, failure):
    if version < 2:
        lowered = {
            "feature": "transaction.version",
            "max_version_level": version,
            "upgrade_type": SAFE_DOWNGRADE,
        }
        controller = cluster.brokers[cluster.controller()]
        response = cluster.call(controller, ApiKey.UPDATE_FEATURES, 1, feature_updates=[lowered])
        assert response.error_code is ErrorCode.none, response
    copy = Copy(cluster, source, transactors, library, patience_s=PATIENCE_S)
    copy.advance()
    for part in ("leader", "transaction coordinator", "group coordinator", "controller"):
        id_ = cluster.controller() if part == "controller" else copy.brokers[part]
        took_s = copy.kill(id_) if failure == "kill" else copy.pause(id_)
        print(f"{library}, version {version}, {failure} of {part}: commits after {took_s:.1f} s")
    copy.finish()
