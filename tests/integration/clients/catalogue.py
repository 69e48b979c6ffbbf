"""All clients by name, each started at its first use."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.integration.clients.client import Client
from tests.integration.clients.steps import Program, SteppedClient
from tests.support import apache_kafka
from tests.support.brokers import QUICK_START
from tests.support.tools import require

HERE = Path(__file__).parent
JAVA = {"java-4.3.1": "4.3.1", "java-3.9.2": "3.9.2"}
GO = ("sarama", "franz")
NODE = "kafkajs"
READERS = ("confluent", "kafka-python", "aiokafka", "kcat", *GO, *JAVA)
WRITERS = (*READERS, NODE)


class Catalogue:
    """Opens clients; compiled programs go to `directory`. A client with missing tools skips the
    test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._programs: dict[str, Program] = {}
        self._clients: dict[tuple[str, str], Client] = {}

    def open(self, name: str, address: str) -> Client:
        """Return the client of that name for that address; there is only one."""
        if (name, address) not in self._clients:
            self._clients[name, address] = self._open(name, address)
        return self._clients[name, address]

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        for program in self._programs.values():
            program.close()

    def _open(self, name: str, address: str) -> Client:
        # Each import needs the client's library.
        match name:
            case "confluent":
                require("confluent_kafka")
                from tests.integration.clients.confluent import ConfluentClient

                return ConfluentClient(address)
            case "kafka-python":
                require("kafka")
                from tests.integration.clients.kafka_python import KafkaPythonClient

                return KafkaPythonClient(address)
            case "aiokafka":
                require("aiokafka")
                from tests.integration.clients.aio import AioClient

                return AioClient(address)
            case "kcat":
                from tests.integration.clients.kcat import KcatClient

                return KcatClient(require("kcat"), address)
        if name not in self._programs:
            command, options = self._command(name)
            self._programs[name] = Program(command, **options)
        return SteppedClient(self._programs[name], address)

    def _command(self, name: str) -> tuple[Sequence[str], dict[str, Any]]:
        if name in JAVA:
            java, source = require("java"), HERE / "java" / "Client.java"
            libraries = f"{apache_kafka.install(JAVA[name])}/libs/*"
            return [java, *QUICK_START.split(), "-cp", libraries, str(source)], {}
        if name in GO:
            return [built(name, self.directory)], {}
        assert name == NODE, name
        directory = HERE / "node"
        install_packages(directory)
        return [require("node"), "client.mjs"], {"cwd": directory}


def built(name: str, directory: Path) -> str:
    """Build a Go program, whose source is the directory of its name; return its path."""
    program = str(directory / name)
    build = [require("go"), "build", "-o", program, f"./{name}"]
    subprocess.run(build, cwd=HERE / "go", check=True)
    return program


def install_packages(directory: Path) -> None:
    lock, done = (
        directory / "package-lock.json",
        directory / "node_modules" / ".package-lock.json",
    )
    if not done.exists() or done.stat().st_mtime < lock.stat().st_mtime:
        command = [require("npm"), "ci", "--no-audit", "--no-fund"]
        subprocess.run(command, cwd=directory, check=True)
