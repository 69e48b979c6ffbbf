"""Test `k zookeeper-shell` without Java: its options, connection errors, and exit statuses."""

from __future__ import annotations

import socket
import subprocess

import pytest

from tests.support.terminal import on_a_terminal
from tests.support.tools import K
from tests.support.zookeeper_server import OwnZooKeeperServer

PATIENCE_S = 60


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with OwnZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server.address


def shell(*words, typed=""):
    command = [*K, "zookeeper-shell", *words]
    return subprocess.run(command, input=typed, capture_output=True, text=True, timeout=PATIENCE_S)


def test_one_command_for_a_script(address):
    made = shell(address, "create", "/script", "a b")
    assert (made.returncode, made.stderr) == (0, "Created /script\n")
    read = shell(address, "-timeout", "5000", "get", "/script")
    assert read.returncode == 0
    assert read.stdout.startswith(f"Connecting to {address}\n")
    assert read.stdout.endswith("state:SyncConnected type:None path:null\na b\n")


def test_paths_lie_below_the_chroot(address):
    shell(address, "create", "/below")
    assert shell(f"{address}/below", "create", "/it").stderr == "Created /it\n"
    assert shell(address, "ls", "/below").stdout.endswith("\n[it]\n")


@pytest.mark.parametrize(
    ("typed", "status"),
    [
        ("ls /\n", 0),
        ("bogus\nls /\n", 0),
        ("get /nope\n", 1),
        ("get /nope\nquit\nls /\n", 1),
        ("ls /\n\nbogus", 127),
        ("", 0),
    ],
)
def test_the_status_is_that_of_the_last_command(address, typed, status):
    assert shell(address, typed=typed).returncode == status


@pytest.mark.parametrize("command", ["create -c /c", "create -t 5 /t", "whoami", "addWatch /"])
def test_what_is_not_supported_is_named(address, command):
    refused = shell(address, *command.split())
    assert refused.returncode == 1
    assert "not supported" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_version_that_is_no_number_is_named(address):
    refused = shell(address, "delete", "-v", "one", "/x")
    assert (refused.returncode, refused.stderr) == (1, "the version one is not a number\n")


def test_where_nobody_listens_it_says_so_at_once():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    refused = shell(f"127.0.0.1:{port}/kafka", "ls", "/")
    assert refused.returncode == 1
    assert refused.stderr == (
        f"k zookeeper-shell: no ZooKeeper answers at 127.0.0.1:{port}/kafka: start it, or correct"
        " the address\n"
    )


@pytest.mark.parametrize("address", ["x" * 80, "\u202e", "h:99999", "", ","])
def test_what_is_no_address_is_named(address):
    refused = shell(address, "ls", "/")
    assert refused.returncode == 1
    assert "no ZooKeeper answers at" in refused.stderr
    assert "error:" not in refused.stderr


def test_who_accepts_and_is_silent_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        refused = shell(address, "-timeout", "500", "ls", "/")
    assert refused.returncode == 1
    assert "no ZooKeeper answers" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_shell_goes_on_after_a_server_that_is_not_there(address):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        elsewhere = f"127.0.0.1:{silent.getsockname()[1]}"
        typed = f"connect {elsewhere}\nls /\nconnect {address}\nls /zookeeper\n"
        gone_on = shell(address, "-timeout", "500", typed=typed)
    assert gone_on.returncode == 0
    assert gone_on.stderr == f"no ZooKeeper answers at {elsewhere}\n"
    assert "Not connected\n" in gone_on.stdout
    assert gone_on.stdout.endswith("[config, quota]\n")


def test_bytes_that_are_no_text_are_kept(address):
    command = [*K, "zookeeper-shell", address]
    typed = b"create /bytes \xff\xfe\nget -s /bytes\nls /\xff\n"
    done = subprocess.run(command, input=typed, capture_output=True, timeout=PATIENCE_S)
    assert b"dataLength = 2\n" in done.stdout
    assert done.returncode == 1
    assert b"invalid character @1" in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_terminal_has_a_prompt(address):
    words = [*K, "zookeeper-shell", address]
    status, shown = on_a_terminal(words, typed=b"get /nope\nls /zookeeper\nquit\n")
    assert status == 0
    assert f"[zk: {address}(CONNECTED) 0] ".encode() in shown
    assert f"[zk: {address}(CONNECTED) 2] ".encode() in shown
    assert b"Node does not exist: /nope\r\n" in shown
    assert b"[config, quota]\r\n" in shown


def test_without_an_address_it_tells_how_it_is_used():
    told = shell()
    assert told.returncode == 1
    assert told.stdout.startswith("USAGE: k zookeeper-shell zookeeper_host:port[/path]")


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["h:1", "-zk-tls-config-file", "f", "ls", "/"], 1, "-zk-tls-config-file"),
        (["h:1", "-timeout", "soon", "ls", "/"], 2, "soon"),
    ],
)
def test_an_option_that_cannot_be_is_refused(words, status, text):
    refused = shell(*words)
    assert refused.returncode == status
    assert text in refused.stderr
