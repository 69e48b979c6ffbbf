"""`k scripts`: what is written, what runs, and what is left alone."""

import os
import subprocess

import pytest

from kcli.command.command import command_named
from kcli.command.command_list import COMMANDS
from kcli.commands.scripts import MARK, scripts_of
from kcli.main import main
from tests.support.tools import K


@pytest.fixture
def k(tmp_path):
    """A k to be run."""
    path = tmp_path / "a k"
    path.write_text("#!/bin/sh\nexec " + " ".join(f"'{word}'" for word in K) + ' "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_every_command_that_has_a_script_gets_one(tmp_path, capsys):
    directory = tmp_path / "new" / "bin"
    assert main(["scripts", "install", str(directory)]) == 0
    written = sorted(path.name for path in directory.iterdir())
    commands = [name for group in COMMANDS.values() for name in group]
    kafkas = [command_named(name).manual.kafka for name in commands]
    assert written == sorted(filter(None, kafkas))
    assert {"kafka-topics.sh", "kafka-leader-election.sh", "zookeeper-shell.sh"} < {*written}
    assert sorted(capsys.readouterr().out.split()) == sorted(
        str(directory / name) for name in written
    )
    for path in directory.iterdir():
        assert path.stat().st_mode & 0o777 == 0o755
    topics = (directory / "kafka-topics.sh").read_text()
    assert topics == f'#!/bin/sh\n{MARK}\nexec k topics "$@"\n'


def test_they_run_k_with_all_the_words(tmp_path, k):
    assert main(["scripts", "install", str(tmp_path), "--k", k]) == 0

    def run(script, *words):
        return subprocess.run(
            [str(tmp_path / script), *words], capture_output=True, text=True, cwd="/"
        )

    shown = run("kafka-topics.sh", "--version")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout == run("kafka-dump-log.sh", "--version").stdout
    refused = run("kafka-dump-log.sh", "--files", "/no where/0.log")
    assert refused.returncode == 1
    assert refused.stderr == "k dump-log: /no where/0.log: No such file or directory\n"
    assert run("kafka-metadata-quorum.sh", "describe", "--status").returncode == 1


def test_on_the_path_k_is_found(tmp_path, k):
    (tmp_path / "bin").mkdir()
    os.symlink(k, tmp_path / "bin" / "k")
    assert main(["scripts", "install", str(tmp_path)]) == 0
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    shown = subprocess.run(
        [str(tmp_path / "kafka-groups.sh"), "--version"],
        capture_output=True,
        env=os.environ | {"PATH": path},
    )
    assert (shown.returncode, shown.stderr) == (0, b"")


@pytest.mark.parametrize("kind", ["file", "directory", "link", "empty"])
def test_what_k_did_not_write_is_left_alone_and_nothing_is_written(tmp_path, kind, capsys):
    kept = tmp_path / "kafka-configs.sh"
    match kind:
        case "file":
            kept.write_text("#!/bin/bash\nexec kafka-run-class.sh kafka.admin.ConfigCommand\n")
        case "directory":
            kept.mkdir()
        case "link":
            (tmp_path / "elsewhere").write_text(scripts_of("k")["kafka-configs.sh"])
            kept.symlink_to("elsewhere")
        case "empty":
            kept.touch()
    before = sorted(tmp_path.iterdir())
    assert main(["scripts", "install", str(tmp_path)]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert "contains files that k did not write: kafka-configs.sh; " in told.err
    assert sorted(tmp_path.iterdir()) == before


def test_what_k_wrote_is_written_anew(tmp_path):
    assert main(["scripts", "install", str(tmp_path), "--k", "/old/k"]) == 0
    assert main(["scripts", "install", str(tmp_path)]) == 0
    assert "exec k topics" in (tmp_path / "kafka-topics.sh").read_text()
    assert {path.name for path in tmp_path.iterdir()} == {*scripts_of("k")}


def test_a_dry_run_writes_nothing(tmp_path, capsys):
    assert main(["scripts", "install", str(tmp_path / "d"), "--dry-run"]) == 0
    assert f"Would write {tmp_path / 'd' / 'kafka-topics.sh'}.\n" in capsys.readouterr().out
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("words", [[], ["install"], ["remove", "d"], ["install", "d", "e"]])
def test_other_words_make_no_sense(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["scripts", *words]) == 2
    assert "k scripts install DIR" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_made_is_named(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main(["scripts", "install", str(tmp_path / "file")]) == 1
    assert str(tmp_path / "file") in capsys.readouterr().err
