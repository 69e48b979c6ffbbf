"""A plugin for pytest: Kafka for the tests of a project, by `kafka_broker` and `kafka_cluster`.

    def test_an_order_is_announced(kafka_broker):
        announce(Order(7), bootstrap_servers=kafka_broker.address)

    def test_an_order_is_announced_although_a_broker_dies(kafka_cluster):
        service = Service(bootstrap_servers=kafka_cluster.bootstrap_servers)
        kafka_cluster.kill(kafka_cluster.leader_of("orders", 0))
        service.announce(Order(7))

    kafka_broker            a broker for one test, its data in tmp_path; see KafkaBroker
    kafka_broker_factory    starts brokers that run until the session ends
    kafka_cluster           three brokers for one test, and their ZooKeeper; see KafkaCluster
    kafka_cluster_factory   starts clusters that run until the session ends
    kafka_broker_settings   keys of server.properties for all of them; a project overrides it
    @pytest.mark.kafka_broker(settings={...})                 keys for one test, class or module
    @pytest.mark.kafka_cluster(brokers=5, settings={...})     keys and size of a cluster

Every run of pytest loads the plugin if k is installed, so it imports nothing before a test needs a
broker.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import pluggy

    from kcli.testing.broker_nursery import KafkaBroker, Nursery
    from kcli.testing.kafka_cluster import KafkaCluster

FIXTURES = {"kafka_broker", "kafka_broker_factory", "kafka_cluster", "kafka_cluster_factory"}
MARKERS = (
    "kafka_broker(settings): keys of server.properties, over those of kafka_broker_settings, for "
    "the broker of kafka_broker",
    "kafka_cluster(brokers, settings): how many brokers kafka_cluster has, and keys of "
    "server.properties for all of them, over those of kafka_broker_settings",
)
BROKERS = 3
"""Default size of a cluster."""

_nursery: pytest.StashKey[Nursery] = pytest.StashKey()
_broker: pytest.StashKey[KafkaBroker] = pytest.StashKey()
_cluster: pytest.StashKey[KafkaCluster] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start the imports of brokers while other tests run, if a test will need one."""
    requests = (FIXTURES.intersection(getattr(item, "fixturenames", ())) for item in session.items)
    if not session.config.option.collectonly and any(requests):
        _nursery_of(session.config)


def pytest_unconfigure(config: pytest.Config) -> None:
    if _nursery in config.stash:
        config.stash[_nursery].close()
        del config.stash[_nursery]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pluggy.Result[pytest.TestReport], None]:
    """Add the logs of its brokers to the report of a failed test."""
    outcome = yield
    report = outcome.get_result()
    if report.failed and _broker in item.stash:
        report.sections.append(("Kafka broker log", item.stash[_broker].log))
    if report.failed and _cluster in item.stash:
        for name, log in item.stash[_cluster].logs.items():
            report.sections.append((f"Kafka cluster log, {name}", log))


@pytest.fixture(scope="session")
def kafka_broker_settings() -> Mapping[str, Any]:
    """Keys of server.properties for all brokers: none. Override it in a conftest.py."""
    return {}


@pytest.fixture(scope="session")
def kafka_broker_factory(
    pytestconfig: pytest.Config,
    tmp_path_factory: pytest.TempPathFactory,
    kafka_broker_settings: Mapping[str, Any],
) -> Iterator[Callable[..., KafkaBroker]]:
    """`kafka_broker_factory(settings={...})` starts a broker that runs until the session ends."""
    started: list[KafkaBroker] = []

    def start(settings: Mapping[str, Any] | None = None) -> KafkaBroker:
        all_settings = {**kafka_broker_settings, **(settings or {})}
        directory = tmp_path_factory.mktemp("kafka")
        started.append(_nursery_of(pytestconfig).start(directory, all_settings))
        return started[-1]

    yield start
    for broker in started:
        broker.stop()


@pytest.fixture(scope="session")
def kafka_cluster_factory(
    pytestconfig: pytest.Config,
    tmp_path_factory: pytest.TempPathFactory,
    kafka_broker_settings: Mapping[str, Any],
) -> Iterator[Callable[..., KafkaCluster]]:
    """`kafka_cluster_factory(brokers=3, settings={...})` starts a cluster that runs until the
    session ends.
    """
    started: list[KafkaCluster] = []

    def start(brokers: int = BROKERS, settings: Mapping[str, Any] | None = None) -> KafkaCluster:
        all_settings = {**kafka_broker_settings, **(settings or {})}
        directory = tmp_path_factory.mktemp("kafka-cluster")
        started.append(_new_cluster(pytestconfig, directory, brokers, all_settings))
        started[-1].open()
        return started[-1]

    yield start
    for cluster in started:
        cluster.close()


@pytest.fixture
def kafka_broker(
    request: pytest.FixtureRequest, tmp_path: Path, kafka_broker_settings: Mapping[str, Any]
) -> Iterator[KafkaBroker]:
    """A Kafka broker for this test alone: `kafka_broker.address` is for bootstrap.servers."""
    marked = _marker_arguments(request, "kafka_broker", "settings")
    settings = {**kafka_broker_settings, **marked["settings"]}
    try:
        broker = _nursery_of(request.config).start(tmp_path / "kafka", settings)
    except RuntimeError as error:
        pytest.fail(str(error), pytrace=False)
    request.node.stash[_broker] = broker
    yield broker
    broker.stop()


@pytest.fixture
def kafka_cluster(
    request: pytest.FixtureRequest, tmp_path: Path, kafka_broker_settings: Mapping[str, Any]
) -> Iterator[KafkaCluster]:
    """A Kafka cluster for this test alone: `kafka_cluster.bootstrap_servers` is for clients."""
    marked = _marker_arguments(request, "kafka_cluster", "brokers", "settings")
    settings = {**kafka_broker_settings, **marked["settings"]}
    cluster = _new_cluster(
        request.config, tmp_path / "kafka-cluster", marked.get("brokers", BROKERS), settings
    )
    try:
        try:
            cluster.open()
        except RuntimeError as error:
            pytest.fail(str(error), pytrace=False)
        request.node.stash[_cluster] = cluster
        yield cluster
    finally:
        cluster.close()


def _marker_arguments(
    request: pytest.FixtureRequest, name: str, *parameters: str
) -> dict[str, Any]:
    """Return the arguments of the markers; the nearest takes precedence, key by key in the
    settings.
    """
    result: dict[str, Any] = {"settings": {}}
    for marker in reversed([*request.node.iter_markers(name)]):
        if strangers := marker.kwargs.keys() - {*parameters}:
            raise TypeError(f"{name} takes {' and '.join(parameters)}, not {strangers.pop()}")
        arguments = dict(zip(parameters, marker.args, strict=False)) | marker.kwargs
        arguments["settings"] = result["settings"] | dict(arguments.get("settings", {}))
        result |= arguments
    return result


def _new_cluster(
    config: pytest.Config, directory: Path, brokers: int, settings: Mapping[str, Any]
) -> KafkaCluster:
    from kcli.testing.kafka_cluster import KafkaCluster

    return KafkaCluster(_nursery_of(config), directory, brokers, settings)


def _nursery_of(config: pytest.Config) -> Nursery:
    if _nursery not in config.stash:
        from kcli.testing.broker_nursery import Nursery

        config.stash[_nursery] = Nursery()
    return config.stash[_nursery]
