"""IBM's sarama, the oldest of Go's clients."""

import functools

import pytest

from tests.integration.clients.promises import Promises
from tests.integration.clients.steps import Program, SteppedClient


@pytest.fixture(scope="module")
def open_client(go_programs):
    program = Program([go_programs / "sarama"])
    yield functools.partial(SteppedClient, program)
    program.close()


class TestSarama(Promises):
    pass
