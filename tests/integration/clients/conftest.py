"""The brokers that the clients are tried against; `tests.support.brokers` says which."""

import subprocess
from pathlib import Path

import pytest

from tests.support import brokers
from tests.support.tools import require

pytest.register_assert_rewrite("tests.integration.clients.promises")

SETTINGS = {"num.partitions": 3, "group.initial.rebalance.delay.ms": 0}
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


@pytest.fixture(autouse=True)
def _unharmed(broker):
    with brokers.unharmed(broker):
        yield


@pytest.fixture
def name():
    """Of a topic that does not exist."""
    return next(NAMES)


@pytest.fixture(scope="module")
def client(open_client, broker):
    """The client of this module, as its `open_client` makes one for an address."""
    client = open_client(broker.address)
    yield client
    client.close()


@pytest.fixture(scope="module")
def strict_client(open_client, strict_broker):
    client = open_client(strict_broker.address)
    yield client
    client.close()


@pytest.fixture(scope="session")
def go_programs(tmp_path_factory):
    """The directory of the programs that drive Go's clients."""
    directory = tmp_path_factory.mktemp("go")
    command = [require("go"), "build", "-o", f"{directory}/", "./sarama", "./franz"]
    subprocess.run(command, cwd=Path(__file__).with_name("go"), check=True)
    return directory
