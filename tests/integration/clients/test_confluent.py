"""confluent-kafka, the client of librdkafka that most Python programs use."""

from tests.integration.clients.promises import Promises


class TestConfluent(Promises):
    client_name = "confluent"
