"""Apache's own client, of the two releases that most programs run."""

import functools
from pathlib import Path

import pytest

from kserver.errors import ErrorCode
from tests.integration.clients.promises import Promises
from tests.integration.clients.steps import Program, SteppedClient
from tests.support import apache_kafka
from tests.support.brokers import QUICK_START
from tests.support.tools import require

SOURCE = Path(__file__).with_name("java") / "Client.java"


@pytest.fixture(scope="module", params=["4.3.1", "3.9.2"])
def program(request):
    java = require("java")
    home = apache_kafka.install(request.param)
    program = Program([java, *QUICK_START.split(), "-cp", f"{home}/libs/*", str(SOURCE)])
    yield program
    program.close()


@pytest.fixture(scope="module")
def open_client(program):
    return functools.partial(SteppedClient, program)


class TestJava(Promises):
    # It waits for a topic's metadata until it gives up.
    unknown_topic_code = ErrorCode.request_timed_out.value
