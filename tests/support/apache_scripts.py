"""Apache's scripts, many runs in one JVM: what each prints, and its exit status.

with ApacheScripts("4.3.1") as scripts:
    outcome = scripts.run("consumer-groups", "--bootstrap-server", address, "--list")
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import NamedTuple, Self

from tests.support import apache_kafka
from tests.support.brokers import QUICK_START
from tests.support.tools import require

QUIET = "-Dlog4j2.level=OFF"
"""Without the archive's configuration, logs go to the output of the process's first script."""


class Outcome(NamedTuple):
    status: int
    out: str
    err: str


class ApacheScripts:
    """The scripts whose class is a program by itself, which leaves no state behind when it ends."""

    def __init__(self, version: str) -> None:
        java = require("java")
        home = apache_kafka.install(version)
        self._classes = json.loads((home / "tools.json").read_text())
        source = Path(__file__).with_name("Scripts.java")
        self._process = subprocess.Popen(
            [java, *QUICK_START.split(), QUIET, "-cp", f"{home}/libs/*", str(source)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(self, script: str, *words: str) -> Outcome:
        """Run `script`, named as in kafka-SCRIPT.sh."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"class": self._classes[f"kafka-{script}"], "words": words}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return Outcome(**json.loads(self._process.stdout.readline()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ended: object) -> None:
        self.close()

    def close(self) -> None:
        with self._process:
            self._process.kill()
