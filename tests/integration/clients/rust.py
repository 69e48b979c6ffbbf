"""Rust programs, built once per machine: Cargo keeps the build next to its other caches."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.support import tools
from tests.support.apache_kafka import caches

HERE = Path(__file__).parent / "rust"
BUILD_TIMEOUT_S = 240
RUN_TIMEOUT_S = 60


def built(name: str) -> Path:
    """Build a program of src/bin. The test is skipped if Cargo is missing or too old."""
    cargo = tools.require("cargo")
    _require_version(cargo)
    target = caches() / "k-tests" / "rust"
    command = [cargo, "build", "--quiet", "--locked", "--bin", name]
    environment = os.environ | {"CARGO_TARGET_DIR": str(target)}
    subprocess.run(command, cwd=HERE, env=environment, check=True, timeout=BUILD_TIMEOUT_S)
    return target / "debug" / name


def run(name: str, address: str, topic: str, partitions: int, replicas: int) -> list[Any]:
    """Run the program; return its result for each partition."""
    command = [built(name), address, topic, str(partitions), str(replicas)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def _require_version(cargo: str) -> None:
    """Skip the test, also in CI, if Cargo is older than the crates need, as Debian's may be."""
    package = tomllib.loads((HERE / "Cargo.toml").read_text())["package"]
    minimum = package["rust-version"]
    words = subprocess.run([cargo, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.match(r"cargo (\d+)\.(\d+)", words)
    assert found, words
    if tuple(map(int, found.groups())) < tuple(map(int, minimum.split("."))):
        tools.absent[f"cargo {minimum}"] = "rustup toolchain install stable"
        pytest.skip(f"cargo {minimum} or newer is needed, and this is {words.strip()}")
