"""Transactions of three client libraries over three brokers that fail one after the other.

pytest -s tests/soak/soak_cluster_transactions.py            12 cells: half an hour

Each cell is a library, a transaction version and a way to fail.  A program consumes, transforms and
produces; the leader of its partitions, the coordinator of its transactions, that of its group and
the controller fail in turn, killed or stopped with SIGSTOP.  Each record counts once.
"""

from __future__ import annotations

import signal
import time
from collections import Counter

import pytest

from kserver.wire.api_key import ApiKey
from tests.fault.test_cluster_exactly_once import (
    PARTITIONS,
    SOURCE,
    TARGET,
    cluster,
    committed,
    named,
    source,
    transactors,
)
from tests.integration.clients.transacting import read_by_confluent
from tests.support.process_cluster import GROUP, IDS, TRANSACTION

__all__ = ["cluster", "source", "transactors"]

SAFE_DOWNGRADE = 2
PATIENCE_S = 150
"""A client waits for a broker that is stopped until its request times out, after 30 s and more."""


@pytest.mark.soak
@pytest.mark.parametrize("fault", ["kill", "stop"])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("library", ["confluent", "java", "k"])
def test_each_record_counts_once(cluster, source, transactors, library, version, fault):
    leader, transaction_coordinator, group_coordinator = IDS
    if version < 2:
        lowered = {
            "feature": "transaction.version",
            "max_version_level": version,
            "upgrade_type": SAFE_DOWNGRADE,
        }
        controller = cluster.brokers[cluster.controller()]
        answer = cluster.call(controller, ApiKey.UPDATE_FEATURES, 1, feature_updates=[lowered])
        assert answer.error_code.value == 0, answer
    cluster.create(TARGET, PARTITIONS, leader=leader)
    group = named(cluster, group_coordinator, GROUP)
    transactors.start(
        library,
        "copy",
        bootstrap_server=cluster.addresses,
        source=SOURCE,
        target=TARGET,
        group_id=group,
        transactional_id=named(cluster, transaction_coordinator, TRANSACTION),
    )
    (copier,) = transactors.each

    def advance():
        wanted = copier.committed + 5
        transactors.wait_until(lambda: copier.committed >= wanted, PATIENCE_S)

    def strike(id_):
        broker = cluster.brokers[id_]
        began_s = time.monotonic()
        if fault == "kill":
            broker.kill()
            advance()
            broker.start()
        else:
            broker.process.send_signal(signal.SIGSTOP)
            advance()
            broker.process.send_signal(signal.SIGCONT)
        print(f"{library} v{version} {fault}: commits again {time.monotonic() - began_s:.1f} s")
        cluster.until_in_sync()
        advance()

    advance()
    for id_ in (leader, transaction_coordinator, group_coordinator, cluster.controller()):
        strike(id_)
    source.stop()
    assert not source.errors
    assert sum(source.written.values()) == len(source.written)
    counted = Counter()

    def copied():
        counted.clear()
        counted.update(read_by_confluent(cluster.addresses, TARGET, "read_committed"))
        return counted.keys() >= source.written.keys()

    transactors.wait_until(copied, PATIENCE_S)
    assert counted == source.written
    transactors.wait_until(lambda: sum(committed(cluster, group)) == len(source.written))
