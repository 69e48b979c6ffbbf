"""Test suites of Go clients, built from their modules, with the outcome of each test."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.support.tools import require

GO_MOD = Path(__file__).parents[1] / "integration" / "clients" / "go" / "go.mod"
TIMEOUT_S = 1800
DOCKER = """\
import json, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect(SOCKET)
    with server.makefile("rw") as file:
        file.write(json.dumps(sys.argv[1:]) + "\\n")
        file.flush()
        print(file.read())
"""


def module(name: str, version: str = "") -> Path:
    """Return the source directory of a module, by default of the version that our own
    programs use.
    """
    if not version:
        found = re.search(rf"^\s*{re.escape(name)} (v\S+)$", GO_MOD.read_text(), re.M)
        assert found is not None, name
        version = found[1]
    download = [require("go"), "mod", "download", "-json", f"{name}@{version}"]
    done = subprocess.run(download, check=True, capture_output=True, text=True)
    return Path(json.loads(done.stdout)["Dir"])


class Suite:
    """The tests of one package; `tags` are build tags."""

    def __init__(self, package: Path, program: Path, tags: str = "") -> None:
        self.package = package
        self.program = program
        build = [require("go"), "test", "-c", "-tags", tags, "-o", str(program), "."]
        subprocess.run(build, cwd=package, check=True)

    def start(
        self,
        output: Path,
        words: Sequence[str],
        environment: Mapping[str, str],
        within: Sequence[str] = (),
    ) -> subprocess.Popen[bytes]:
        """Start the tests; `within` is a command prefix, such as one for a network namespace."""
        command = [*within, str(self.program), "-test.v", f"-test.timeout={TIMEOUT_S}s", *words]
        with open(output, "wb") as file:
            return subprocess.Popen(
                command,
                cwd=self.package,
                env=os.environ | environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )


class Compose:
    """`with Compose(directory, answers) as path:` puts a `docker` on that PATH, for a suite that
    calls `docker compose stop|start|logs ... NAME`. `answers` is called with the word and the name,
    and returns the output.
    """

    def __init__(self, directory: Path, answers: Callable[[str, str], str]) -> None:
        directory.mkdir()
        self._directory = directory
        self._answers = answers
        path = directory / "socket"
        script = directory / "docker"
        script.write_text(f"#!{sys.executable}\n" + DOCKER.replace("SOCKET", repr(str(path))))
        script.chmod(0o755)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()

    def __enter__(self) -> str:
        threading.Thread(target=self._serve, daemon=True).start()
        return f"{self._directory}{os.pathsep}{os.environ['PATH']}"

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # the listener is closed
                return
            with connection, connection.makefile("rw") as file:
                _, word, *_, name = json.loads(file.readline())
                file.write(self._answers(word, name))


def outcomes(output: str) -> dict[str, str]:
    """Return PASS, FAIL or SKIP of each test and subtest; the last outcome counts."""
    return {
        name: outcome
        for outcome, name in re.findall(r"^ *--- (PASS|FAIL|SKIP): (\S+) \(", output, re.M)
    }


def failed(output: str) -> set[str]:
    """Return the failed tests, except those of which only subtests failed."""
    found = {name for name, outcome in outcomes(output).items() if outcome == "FAIL"}
    return {name for name in found if not any(part.startswith(f"{name}/") for part in found)}
