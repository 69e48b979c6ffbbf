"""Fixtures: the brokers that clients are tested with; `tests.support.brokers` selects them."""

import pytest

from tests.integration.clients.catalogue import Catalogue
from tests.support import brokers

pytest.register_assert_rewrite("tests.integration.clients.promises")

SETTINGS = {
    "num.partitions": 3,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    # Members of the new protocol learn of changes only from their heartbeats.
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.heartbeat.interval.ms": 500,
}
NAMES = brokers.names("topic")


@pytest.fixture(scope="session", params=brokers.KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="session")
def broker(kind, tmp_path_factory):
    with brokers.running(kind, tmp_path_factory.mktemp("broker"), SETTINGS) as broker:
        yield broker


@pytest.fixture(scope="session")
def strict_broker(kind, tmp_path_factory):
    """A broker without automatic topic creation."""
    settings = SETTINGS | {"auto.create.topics.enable": "false"}
    with brokers.running(kind, tmp_path_factory.mktemp("strict"), settings) as broker:
        yield broker


@pytest.fixture(scope="session")
def mortal_broker(kind, tmp_path_factory):
    """A broker for tests that kill it; it has few topics, so that it restarts quickly."""
    with brokers.running(kind, tmp_path_factory.mktemp("mortal"), SETTINGS) as broker:
        yield broker


@pytest.fixture(autouse=True)
def _unharmed(broker):
    with brokers.unharmed(broker):
        yield


@pytest.fixture
def name():
    """Name of a topic that does not exist."""
    return next(NAMES)


@pytest.fixture(scope="session")
def catalogue(tmp_path_factory):
    catalogue = Catalogue(tmp_path_factory.mktemp("programs"))
    yield catalogue
    catalogue.close()


@pytest.fixture
def client(request, catalogue, broker):
    """The client that is tested by this class."""
    return catalogue.open(request.cls.client_name, broker.address)


@pytest.fixture
def strict_client(request, catalogue, strict_broker):
    return catalogue.open(request.cls.client_name, strict_broker.address)


@pytest.fixture
def mortal_client(request, catalogue, mortal_broker):
    return catalogue.open(request.cls.client_name, mortal_broker.address)
