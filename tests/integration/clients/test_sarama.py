"""Test IBM's sarama, the oldest of Go's clients."""

from tests.integration.clients.promises import Promises


class TestSarama(Promises):
    client_name = "sarama"
