"""confluent-kafka, the client of librdkafka that most Python programs use."""

from tests.integration.clients.promises import Promises
from tests.support.tools import require


def open_client(address):
    require("confluent_kafka")
    from tests.integration.clients.confluent import ConfluentClient

    return ConfluentClient(address)


class TestConfluent(Promises):
    pass
