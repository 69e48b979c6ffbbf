"""Test franz-go, which uses the newest version of each API."""

from tests.integration.clients.promises import Promises


class TestFranz(Promises):
    client_name = "franz"
