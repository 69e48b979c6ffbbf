"""Test a broker that is killed, stopped and frozen under load, for hours.

    pytest tests/soak/soak_kill.py          20 rounds of 20 ends: half an hour
    SOAK_ROUNDS=1000 pytest tests/soak/soak_kill.py

Each round has its own seed and a new broker, a topic of one of the kinds in `test_kill.TOPICS`, and
random ways to end the broker. `pytest 'tests/soak/soak_kill.py::test_round[7]'` repeats round 7, as
far as a run of processes can be repeated.
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
    """Freeze, then kill: requests that arrive in between stay unread in its sockets."""
    broker.process.send_signal(signal.SIGSTOP)
    time.sleep(0.5)
    broker.kill()


def freeze_and_stop(broker):
    """Freeze, then stop: it reads the requests that arrived in between while it is stopping."""
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
