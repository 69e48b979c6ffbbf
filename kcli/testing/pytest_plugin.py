"""A plugin for pytest: Kafka for the tests of a project, by the fixture `kafka_broker`.

    def test_an_order_is_announced(kafka_broker):
        announce(Order(7), bootstrap_servers=kafka_broker.address)

    kafka_broker            a broker of the test's own, its data in tmp_path; see KafkaBroker
    kafka_broker_factory    starts brokers that last for the session
    kafka_broker_settings   keys of server.properties for all of them; a project overrides it
    @pytest.mark.kafka_broker(settings={...})    keys for one test, class or module

It is loaded with every run of pytest where k is installed, so it imports nothing before a test asks
for a broker.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import pluggy

    from kcli.testing.broker_nursery import KafkaBroker, Nursery

FIXTURES = {"kafka_broker", "kafka_broker_factory"}
MARKER = (
    "kafka_broker(settings): keys of server.properties, over those of kafka_broker_settings, for "
    "the brokers of kafka_broker"
)

_nursery: pytest.StashKey[Nursery] = pytest.StashKey()
_broker: pytest.StashKey[KafkaBroker] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Where a broker will be wanted, begin with its imports while other tests run."""
    wanted = (FIXTURES.intersection(getattr(item, "fixturenames", ())) for item in session.items)
    if not session.config.option.collectonly and any(wanted):
        _nursery_of(session.config)


def pytest_unconfigure(config: pytest.Config) -> None:
    if _nursery in config.stash:
        config.stash[_nursery].close()
        del config.stash[_nursery]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pluggy.Result[pytest.TestReport], None]:
    """A test that fails shows what its broker has logged."""
    made = yield
    report = made.get_result()
    if report.failed and _broker in item.stash:
        report.sections.append(("Kafka broker log", item.stash[_broker].log))


@pytest.fixture(scope="session")
def kafka_broker_settings() -> Mapping[str, Any]:
    """Keys of server.properties for all brokers: none.  Override it in a conftest.py."""
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
        together = {**kafka_broker_settings, **(settings or {})}
        directory = tmp_path_factory.mktemp("kafka")
        started.append(_nursery_of(pytestconfig).start(directory, together))
        return started[-1]

    yield start
    for broker in started:
        broker.stop()


@pytest.fixture
def kafka_broker(
    request: pytest.FixtureRequest, tmp_path: Path, kafka_broker_settings: Mapping[str, Any]
) -> Iterator[KafkaBroker]:
    """A Kafka broker for this test alone: `kafka_broker.address` is for bootstrap.servers."""
    settings = dict(kafka_broker_settings)
    # The nearest marker comes first, and has the last word.
    for marker in reversed([*request.node.iter_markers("kafka_broker")]):
        settings |= _marked(*marker.args, **marker.kwargs)
    try:
        broker = _nursery_of(request.config).start(tmp_path / "kafka", settings)
    except RuntimeError as error:
        pytest.fail(str(error), pytrace=False)
    request.node.stash[_broker] = broker
    yield broker
    broker.stop()


def _marked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the marker."""
    return dict(settings)


def _nursery_of(config: pytest.Config) -> Nursery:
    if _nursery not in config.stash:
        from kcli.testing.broker_nursery import Nursery

        config.stash[_nursery] = Nursery()
    return config.stash[_nursery]
