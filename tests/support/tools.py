"""Programs and packages that some tests need and the project does not install.

    java = require("java")

If one is absent, the test that needs it is skipped, with its install command; in CI (the
environment variable CI is set) it fails instead. The end of a run lists the absent ones.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import shutil
import socket
import sys

import pytest

PROGRAMS = {
    "bash": "apt-get install bash",
    "cargo": "apt-get install cargo",
    "fish": "apt-get install fish",
    "gcc": "apt-get install gcc",
    "go": "apt-get install golang-go",
    "java": "apt-get install default-jdk-headless",
    "kcat": "apt-get install kcat",
    "mvn": "apt-get install maven",
    "node": "apt-get install nodejs",
    "npm": "apt-get install npm",
    "ss": "apt-get install iproute2",
    "zsh": "apt-get install zsh",
}
PACKAGES = {
    "aiokafka": "pip install aiokafka",
    "confluent_kafka": "pip install confluent-kafka",
    "kafka": "pip install kafka-python",
    "pyspark": "pip install '.[spark]'",
}

K = (sys.executable, "-c", "import sys; from kcli.main import main; sys.exit(main())")
"""The command `k` of this tree, wherever it is installed."""

SERVER_PORTS = (20_000, 32_000)

absent: dict[str, str] = {}
"""The tools that were absent in this run, each with its install line."""


def find(tool: str) -> str | None:
    """Return the path of a program, or of a package's directory."""
    if tool in PROGRAMS:
        return shutil.which(tool)
    spec = importlib.util.find_spec(tool)
    return next(iter(spec.submodule_search_locations or ()), None) if spec else None


def require(tool: str) -> str:
    """As `find`; without the tool, the test is skipped or fails."""
    found = find(tool)
    if found is None:
        absent[tool] = (PROGRAMS | PACKAGES)[tool]
        reason = f"{tool} is absent: {absent[tool]}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def free_port() -> int:
    """Return a port that nothing listens on, to be bound soon.

    It is below the ephemeral ports, since an outgoing connection could take one of those in the
    meantime.
    """
    for _ in range(100):
        port = random.SystemRandom().randrange(*SERVER_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError(f"no free port between {SERVER_PORTS[0]} and {SERVER_PORTS[1]}")
