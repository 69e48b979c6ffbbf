"""The brokers that the clients are tried against; `tests.support.brokers` says which."""

import pytest

from tests.integration.clients.catalogue import Catalogue
from tests.support import brokers

pytest.register_assert_rewrite("tests.integration.clients.promises")

SETTINGS = {
    "num.partitions": 3,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    # Members of the new protocol learn only by their heartbeats.
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
    """Makes no topic unasked."""
    settings = SETTINGS | {"auto.create.topics.enable": "false"}
    with brokers.running(kind, tmp_path_factory.mktemp("strict"), settings) as broker:
        yield broker


@pytest.fixture(scope="session")
def mortal_broker(kind, tmp_path_factory):
    """Of few topics, so that it is soon up again."""
    with brokers.running(kind, tmp_path_factory.mktemp("mortal"), SETTINGS) as broker:
        yield broker


@pytest.fixture(autouse=True)
def _unharmed(broker):
    with brokers.unharmed(broker):
        yield


@pytest.fixture
def name():
    """Of a topic that does not exist."""
    return next(NAMES)


@pytest.fixture(scope="session")
def catalogue(tmp_path_factory):
    catalogue = Catalogue(tmp_path_factory.mktemp("programs"))
    yield catalogue
    catalogue.close()


@pytest.fixture
def client(request, catalogue, broker):
    """The client that this class of tests is about."""
    return catalogue.open(request.cls.client_name, broker.address)


@pytest.fixture
def strict_client(request, catalogue, strict_broker):
    return catalogue.open(request.cls.client_name, strict_broker.address)


@pytest.fixture
def mortal_client(request, catalogue, mortal_broker):
    return catalogue.open(request.cls.client_name, mortal_broker.address)
