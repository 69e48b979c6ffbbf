"""Test that `k zookeeper-shell` prints the same as Apache's zookeeper-shell, on our server and on
Apache's."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.support import apache_kafka, tools
from tests.support.tools import K
from tests.support.zookeeper_server import OwnZooKeeperServer, ZooKeeperServer

VERSION = "3.9.2"
PATIENCE_S = 120
APACHE = [sys.executable, apache_kafka.__file__, "tool", VERSION, "zookeeper-shell.sh"]
QUICK = {"KAFKA_HEAP_OPTS": "-Xmx128M -XX:TieredStopAtLevel=1", "TZ": "UTC"}
TYPED = """\
bogus
ls
ls -x /
create
get /nope
ls nope
ls /a/
ls //
ls /../a
stat
set /x
delete -v
sync /
history
printwatches
printwatches off
printwatches
printwatches on
create /q 'a b'
create /q again
create /q/r
create /q/r/s "1,2"
get /q/r
get -s /q
get /q/r/s
ls /q
ls -s /q
ls -R /q
ls /q -R
getAllChildrenNumber /q
create -s /q/n- data
create -se /q/e- data
create -e /e data
create /e/below data
ls /q
delete -v 7 /q
delete -v x1
delete /q
set /q x
set -s -v 1 /q y
set -v 1 /q z
set /nope z
stat /q
stat /nope
getAcl /q
setAcl /q/r world:anyone:cdrw,nonsense
getAcl -s /q/r
setAcl /q/r world:anyone:r
getAcl /nope
setAcl -R /q world:anyone:crda
getAcl /q/r/s
create /acl d world:anyone:rz
getAcl /acl
redo 99
redo 13
redo
deleteall /nope
deleteall /q
ls /
addauth
addauth digest me:secret
get -w /acl
stat -w /acl
history
close
ls /
"""
VARYING = (
    (r"(c|m)time = .*", r"\1time = "),
    (r"(c|m|p)Zxid = .*", r"\1Zxid = "),
    (r"ephemeralOwner = 0x\w{2,}", "ephemeralOwner = 0x."),
    # Apache's shell prints the parser's Java exception names before their messages.
    (r"org\.apache\.\S+Exception: ", ""),
)
PASSING = re.compile(r"\[?\d{4}-|\[main\]|$|WATCHER::|WatchedEvent state:\w+ type:None")


@pytest.fixture(scope="module", autouse=True)
def java():
    tools.require("java")
    tools.require("mvn")


@pytest.fixture(params=[ZooKeeperServer, OwnZooKeeperServer])
def servers(request, tmp_path):
    """Addresses of two servers of the same kind, so that one shell's changes do not affect the
    other."""
    with request.param(tmp_path / "1") as one, request.param(tmp_path / "2") as other:
        yield one.address, other.address


def run(command, address, *words, typed=""):
    done = subprocess.run(
        [*command, address, *words],
        input=typed,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=os.environ | QUICK,
    )
    shown = []
    for text in (done.stdout, done.stderr):
        for varying, same in VARYING:
            text = re.sub(varying, same, text)
        lines = [line for line in text.splitlines() if not PASSING.match(line)]
        shown.append([line.replace(address, "ADDRESS") for line in lines])
    return done.returncode, *shown


def k(address, *words, typed=""):
    return run([*K, "zookeeper-shell"], address, *words, typed=typed)


def test_what_is_typed_is_answered_alike(servers):
    ours, theirs = servers
    assert k(ours, typed=TYPED) == run(APACHE, theirs, typed=TYPED)


@pytest.mark.parametrize(
    "words",
    [["ls", "/zookeeper"], ["get", "/nope"], ["bogus"], ["create", "/one", "data"], ["quit"]],
    ids=lambda words: words[0],
)
def test_one_command_is_answered_alike(servers, words):
    ours, theirs = servers
    assert k(ours, *words) == run(APACHE, theirs, *words)
