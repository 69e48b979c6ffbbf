"""Fixtures: `k` and Apache's own scripts of Kafka 4.3.1 on the same Apache brokers, for tests that
both give the same output.

Compared are standard output, except names, ids and times that differ between runs, and whether the
command succeeded. Where `k` differs on purpose, its manual page says so and the test states what it
does instead.
"""

from __future__ import annotations

import contextlib
import functools

import pytest

from tests.support.brokers import ApacheBroker
from tests.support.side_by_side import (
    NEW,
    OLD,
    READER,
    RECORDS,
    close_scripts,
    hang,
    k,
)
from tests.support.tools import require


@pytest.fixture(scope="session", autouse=True)
def _scripts_end():
    yield
    close_scripts()


@pytest.fixture(scope="session")
def brokers(tmp_path_factory):
    """Function that returns the broker of a version, started at the first call, with two topics."""
    require("java")
    settings = {
        "auto.create.topics.enable": "false",
        "num.partitions": 3,
        "transaction.partition.verification.enable": "false",
    }
    with contextlib.ExitStack() as running:

        @functools.cache
        def broker(version: str) -> ApacheBroker:
            directory = tmp_path_factory.mktemp(version)
            started = running.enter_context(ApacheBroker(directory, version, settings))
            _fill(["--bootstrap-server", started.address])
            hang(started.address)
            return started

        yield broker


def _fill(words: list[str]) -> None:
    seen = ["--create", "--topic", "seen", "--config", "retention.ms=1000000"]
    assert k("topics", *words, *seen) == (0, b"Created topic seen.\n", b"")
    assert k("topics", *words, "--create", "--topic", "one", "--partitions", "1").status == 0
    reader = [word for one in READER for word in ("--reader-property", one)]
    lines = b"\n".join(RECORDS)
    sent = k("console-producer", *words, "--topic", "one", *reader, input=lines)
    assert sent == (0, b"", b"")


@pytest.fixture(params=[NEW, OLD])
def broker(request, brokers):
    return brokers(request.param)


@pytest.fixture
def server(broker):
    return ["--bootstrap-server", broker.address]
