"""confluent-kafka, the client of librdkafka that most Python programs use."""

import pytest

from tests.integration.clients.promises import Promises
from tests.support.tools import require


@pytest.fixture(scope="module")
def open_client():
    require("confluent_kafka")
    from tests.integration.clients.confluent import ConfluentClient

    return ConfluentClient


class TestConfluent(Promises):
    pass
