"""Brokers that these tests attack: one in its own process, whose output is kept."""

import pytest

from tests.support import brokers
from tests.support.process import BrokerProcess

NAMES = brokers.names("secure")


@pytest.fixture(scope="session")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker"), {"num.partitions": 2}) as broker:
        yield broker


@pytest.fixture(autouse=True)
def _unharmed(broker):
    with brokers.unharmed(broker):
        yield


@pytest.fixture
def topic(broker):
    """The name of a new topic."""
    return brokers.create_topic(broker.address, next(NAMES))
