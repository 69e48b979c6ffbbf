"""A broker killed, stopped and frozen under load, for hours.

    pytest tests/soak/soak_kill.py                   20 rounds of 20 ends: half an hour
    SOAK_ROUNDS=1000 pytest tests/soak/soak_kill.py

A round is one seed: a fresh broker, a topic of one of the kinds in `test_kill.TOPICS`, ends of all
kinds by chance.  `pytest 'tests/soak/soak_kill.py::test_round[7]'` repeats round 7 (as far as
processes repeat anything).
"""

from __future__ import annotations

import asyncio
import os
import signal
import time

import pytest

from tests.fault.test_kill import SETTINGS, TOPICS, again_and_again, loaded
from tests.support.process import BrokerProcess

ROUNDS = int(os.environ.get("SOAK_ROUNDS", "20"))
ENDS = 20


def stop(broker):
    assert broker.stop() == 0


def freeze_and_kill(broker):
    """What clients send meanwhile waits in its sockets, and is never read."""
    broker.process.send_signal(signal.SIGSTOP)
    time.sleep(0.5)
    broker.kill()


def freeze_and_stop(broker):
    """It reads what came meanwhile while it is stopping."""
    broker.process.send_signal(signal.SIGSTOP)
    time.sleep(0.5)
    broker.process.send_signal(signal.SIGTERM)
    broker.process.send_signal(signal.SIGCONT)
    assert broker.process.wait() == 0


def two_signals(broker):
    broker.process.send_signal(signal.SIGTERM)
    broker.process.send_signal(signal.SIGINT)
    broker.process.wait()


WAYS = [*[BrokerProcess.kill] * 3, stop, freeze_and_kill, freeze_and_stop, two_signals]


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_round(tmp_path, seed):
    config = list(TOPICS)[seed % len(TOPICS)]
    with BrokerProcess(tmp_path, SETTINGS) as broker:
        load = loaded(broker, config, seed)
        asyncio.run(again_and_again(broker, load, ENDS, seed, WAYS))
