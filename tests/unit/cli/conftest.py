"""What the tests of the command share."""

import socket

import pytest


@pytest.fixture
def free_port():
    """A port of 127.0.0.1 where nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]
