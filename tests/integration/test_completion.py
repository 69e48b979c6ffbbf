"""Test shell completion in bash, zsh and fish, with a running cluster."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from kcli.main import main
from kcli.shell_completion.cluster_names import KEPT_S, ClusterNames
from tests.support.process import BrokerProcess
from tests.support.shells import Shell
from tests.support.tools import require

ROOT = Path(__file__).parents[2]
SHELLS = ("bash", "zsh", "fish")
ANSWER_WITHIN_S = 30  # the clients' own timeout is a minute

LINES = [
    ("k topi", "k topics "),
    ("k topics --desc", "k topics --describe "),
    ("k topics --topic or", "k topics --topic orders "),
    ("k topics --topic=or", "k topics --topic=orders "),
    ("k topics --topic 'or", "k topics --topic 'orders' "),
    ("k topics --bootstrap-server=127.0.0.1:", "k topics --bootstrap-server={address} "),
    ("k console-consumer --topic payments --partition ", "{line}0 "),
    ("k topics --config cleanup.pol", "k topics --config cleanup.policy="),
    ("k dump-log --files da", "k dump-log --files data.log "),
    ("k dump-log --files=da", "k dump-log --files=data.log "),
    ("k dump-log --files x,da", "k dump-log --files x,data.log "),
    ("k dump-log --files=with\\ sp", "k dump-log --files=with\\ space.log "),
    ("k dump-log --files a:", "k dump-log --files a:b.log "),
    ("~/bin/k topics --desc", "~/bin/k topics --describe "),
    ("k topics --command-config absent --topic or", None),
    ("./absent/k topi", None),
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as broker:
        for topic, partitions in (("orders", 3), ("payments", 1)):
            words = ["--topic", topic, "--partitions", str(partitions)]
            assert main(["topics", "--bootstrap-server", broker.address, "--create", *words]) == 0
        yield broker


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest, tmp_path: Path, broker: BrokerProcess) -> Iterator[Shell]:
    require(request.param)
    programs = tmp_path / "home/bin"
    programs.mkdir(parents=True)
    k = programs / "k"
    run = "import sys; from kcli.main import main; sys.exit(main())"
    k.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{run}" "$@"\n')
    k.chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    for name in ("data.log", "with space.log", "a:b.log"):
        (work / name).touch()
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "LANG": "C.UTF-8",
        "K_BOOTSTRAP_SERVER": broker.address,
    }
    with Shell(request.param, work, tmp_path / "home", environment) as shell:
        yield shell


def test_a_shell_completes_what_is_typed_and_is_never_written_over(
    shell: Shell, broker: BrokerProcess
) -> None:
    for line, expected in LINES:
        completed = line if expected is None else expected.format(line=line, address=broker.address)
        assert shell.line_after(f"{line}\t") == completed
    for noise in (
        b"Traceback",
        b"connection",
        b"Connection",
        b"refused",
        b"absent:",
        b"nknown",
        b"not found",
    ):
        assert noise not in shell.screen


def test_each_script_is_one_that_its_shell_can_read(capsys: pytest.CaptureFixture[str]) -> None:
    for name in SHELLS:
        assert main(["completion", name]) == 0
        script = capsys.readouterr().out
        if shutil.which(name):
            subprocess.run([name, "-n"], input=script, text=True, check=True)
    assert main(["completion", "csh"]) == 2
    assert "bash, zsh, fish" in capsys.readouterr().err


def here(address: str) -> SimpleNamespace:
    return SimpleNamespace(bootstrap_server=address, command_config=None)


def test_what_was_found_is_kept_for_some_seconds(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        at = ["--bootstrap-server", broker.address]
        assert main(["topics", *at, "--create", "--topic", "orders", "--partitions", "2"]) == 0
        names = ClusterNames(here(broker.address), tmp_path / "cache")
        assert names.topics() == {"orders": 2}
        assert names.brokers() == {"0": broker.address}
        assert "retention.ms" in names.topic_keys()
        assert main(["topics", *at, "--create", "--topic", "payments"]) == 0
        assert names.topics() == {"orders": 2}
        for file in (tmp_path / "cache").iterdir():
            old = file.stat().st_mtime - KEPT_S
            os.utime(file, (old, old))
        assert names.topics() == {"orders": 2, "payments": 1}
    assert (tmp_path / "cache").stat().st_mode & 0o077 == 0


def test_a_spoilt_cache_is_made_anew(tmp_path: Path, broker: BrokerProcess) -> None:
    names = ClusterNames(here(broker.address), tmp_path)
    assert "orders" in names.topics()
    for file in tmp_path.iterdir():
        file.write_bytes(b"\0nonsense")
    assert "orders" in names.topics()


def test_a_cluster_that_never_answers_costs_one_short_wait(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=16) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        ran = subprocess.run(
            [
                *(sys.executable, "-c", "from kcli.main import main; main()"),
                *("__complete", "fish", "topics", "--bootstrap-server", address, "--topic", ""),
            ],
            capture_output=True,
            timeout=ANSWER_WITHIN_S,
            env=os.environ | {"XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
            check=True,
        )
    assert ran.stdout == b""
    kept = ClusterNames(here(address), tmp_path / "k")
    assert kept.topics() == {}
