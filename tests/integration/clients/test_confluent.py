"""Test confluent-kafka, the librdkafka client that most Python programs use."""

from tests.integration.clients.promises import Promises


class TestConfluent(Promises):
    client_name = "confluent"
