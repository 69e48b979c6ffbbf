"""kill -9 again and again under load, in every configuration of tests/fault/test_kill.py."""

from __future__ import annotations

import asyncio
import os

import pytest

from tests.fault.test_kill import SETTINGS, TOPICS, kill_again_and_again, loaded
from tests.support.process import BrokerProcess

KILLS = int(os.environ.get("KILLS", "25"))


@pytest.mark.parametrize("config", TOPICS)
def test_what_was_acknowledged_outlives_many_kills(tmp_path, config):
    with BrokerProcess(tmp_path, SETTINGS) as broker:
        load = loaded(broker, config, seed=7)
        asyncio.run(kill_again_and_again(broker, load, times=KILLS, seed=7))
