"""franz-go, which speaks the newest versions of each API."""

from tests.integration.clients.promises import Promises


class TestFranz(Promises):
    client_name = "franz"
