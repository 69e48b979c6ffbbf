"""Fixtures: a broker in its own process and clients that send raw frames to it.

`tests.support.brokers` decides which broker.
"""

import pytest

from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from tests.contract.api.calls import Topic, topic_id
from tests.support import brokers
from tests.support.wire_client import WireClient

TOPICS, GROUPS = brokers.names("t"), brokers.names("g")


@pytest.fixture(scope="session", params=brokers.KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="session")
def broker(kind, tmp_path_factory):
    settings = {"num.partitions": 2, "group.initial.rebalance.delay.ms": 0}
    with brokers.running(kind, tmp_path_factory.mktemp("broker"), settings) as broker:
        yield broker


@pytest.fixture(scope="session")
def served(broker):
    return brokers.served_versions(broker.address)


@pytest.fixture(autouse=True)
def _version_is_served(request, kind, served):
    """Skip versions that an Apache release does not serve; ours serves what its modules declare."""
    version = request.node.callspec.params.get("version") if kind != brokers.OURS else None
    if version is not None and version not in served[request.module.KEY]:
        pytest.skip(f"Apache Kafka {kind} does not serve version {version}")


@pytest.fixture
def only_ours(kind):
    if kind != brokers.OURS:
        pytest.skip("what is promised here is ours alone")


@pytest.fixture
def since_4(kind):
    """Skip on Apache Kafka 3.x, which lacks KIP-848 groups, their configs and features, and serves
    old Produce versions."""
    if kind.startswith("3."):
        pytest.skip(f"what Apache Kafka {kind} promises here is less")


@pytest.fixture
def client(broker):
    with WireClient(broker.address) as client:
        yield client


@pytest.fixture(autouse=True)
def _unharmed(broker):
    with brokers.unharmed(broker):
        yield


@pytest.fixture
def name():
    """Name of a topic that does not exist."""
    return next(TOPICS)


@pytest.fixture
def make_topic(broker):
    """make_topic(partitions, **config) creates a topic and returns it."""

    def make(partitions=1, **config):
        name = brokers.create_topic(broker.address, next(TOPICS), partitions, **config)
        with WireClient(broker.address) as client:
            return Topic(name, topic_id(client, name))

    return make


@pytest.fixture
def group(client):
    """The id of a group that does not exist, whose coordinator is ready."""
    name = next(GROUPS)

    def is_coordinated():
        if client.call(ApiKey.FIND_COORDINATOR, 3, key=name).error_code is not ErrorCode.none:
            return False
        answer = client.call(ApiKey.HEARTBEAT, 4, group_id=name, generation_id=1, member_id="m")
        return answer.error_code is ErrorCode.unknown_member_id

    brokers.until(is_coordinated)
    return name


@pytest.fixture
def topic(make_topic):
    return make_topic()
