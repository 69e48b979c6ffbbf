"""franz-go, which speaks the newest versions of each API."""

import functools

import pytest

from tests.integration.clients.promises import Promises
from tests.integration.clients.steps import Program, SteppedClient


@pytest.fixture(scope="module")
def open_client(go_programs):
    program = Program([go_programs / "franz"])
    yield functools.partial(SteppedClient, program)
    program.close()


class TestFranz(Promises):
    pass
