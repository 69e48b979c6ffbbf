"""Test `k cluster roll`: brokers are restarted one by one under load, and errors stop it."""

from __future__ import annotations

import re
import signal

import pytest

from tests.integration.test_cluster_start import Cluster, k
from tests.support.steady_load import SteadyLoad

pytestmark = pytest.mark.story

LINE = re.compile(r"broker (\d): answered again after [\d.]+ s, everything in sync after [\d.]+ s")


class Rolled(Cluster):
    """A cluster of `k cluster-start`; `kill` is a shell command that kills a broker's first
    process."""

    def __init__(self, directory, *words):
        super().__init__(*words)
        self._directory = directory

    def __enter__(self):
        super().__enter__()
        for name, pid in self.pids.items():
            (self._directory / name.replace(" ", "-")).write_text(str(pid))
        self.address = ",".join(a for n, a in self.addresses.items() if n.startswith("broker"))
        self.kill = f"kill -9 $(cat {self._directory}/broker-{{broker}})"
        return self

    def k(self, *words):
        return k(*words, "--bootstrap-server", self.address)

    def controller(self):
        described = self.k("cluster", "roll", "--restart", "{broker}", "--dry-run").stdout
        return described.split()[-1].rstrip(".")


def test_every_broker_is_restarted_the_controller_last_and_no_record_is_lost(tmp_path):
    with Rolled(tmp_path, "--restart") as cluster:
        made = cluster.k("topics", "--create", "--topic", "t", "--partitions", 3)
        assert made.returncode == 0, made.stderr
        controller = cluster.controller()
        with SteadyLoad({"bootstrap.servers": cluster.address}, "t", 3) as load:
            load.advance()
            rolled = cluster.k("cluster", "roll", "--restart", cluster.kill)
            load.advance()
        load.check()
        assert rolled.returncode == 0, rolled.stderr
        found = [LINE.fullmatch(line)[1] for line in rolled.stdout.splitlines()]
        assert sorted(found) == ["1", "2", "3"]
        assert found[-1] == controller
        # Each kill was reported, and the broker came back as another process.
        assert {cluster.told(r"broker (\d) \(pid \d+\) died: .*")[1] for _ in found} == {*"123"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Rolled(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.k("topics", "--create", "--topic", "t", "--partitions", 3)
        yield cluster


def test_what_would_be_run_is_said_and_not_run(cluster, tmp_path):
    told = cluster.k(
        *("cluster", "roll", "--dry-run", "--broker-list", "2,1"),
        *("--restart", f"touch {tmp_path}/{{broker}} {{host}}:{{port}} {{{{}}}}"),
    )
    where = {id: cluster.addresses[f"broker {id}"] for id in (1, 2)}
    lines = {f"Would run touch {tmp_path}/{id} {where[id]} {{}}." for id in (1, 2)}
    assert set(told.stdout.splitlines()) == lines
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        (["--restart", "{id}"], 2, "'id'; in it {broker}, {host} and {port} stand for"),
        (["--restart", "{"], 2, "in it {broker}"),
        ([], 2, "restart"),
        (["--restart", "true", "--broker-list", "1,x"], 2, "'x' is not a broker id"),
        (["--restart", "true", "--broker-list", "9"], 1, "broker 9 does not exist"),
        (["--restart", "exit 7"], 1, "was not restarted: status 7 of exit 7"),
        (["--restart", "true", "--wait", "500ms"], 1, "its connections are open 0.5 s after"),
    ],
)
def test_what_does_not_restart_a_broker_is_said(cluster, words, status, why):
    told = cluster.k("cluster", "roll", *words)
    assert (told.returncode, told.stdout) == (status, "")
    assert why in told.stderr


def test_the_first_that_does_not_come_back_ends_it_and_nobody_else_is_touched(cluster):
    """Last test of this file, because a broker stays dead."""
    told = cluster.k("cluster", "roll", "--restart", cluster.kill, "--wait", "2s")
    assert (told.returncode, told.stdout) == (1, "")
    (dead,) = re.findall(r"broker (\d) did not come back: .*Connection refused", told.stderr)
    assert cluster.told(r"broker (\d) \(pid \d+\) died: .*")[1] == dead
    # It does not begin either while a replica is out of sync.
    told = cluster.k("cluster", "roll", "--restart", cluster.kill, "--wait", "1s")
    assert re.search(r"broker \d was not restarted: not in sync: t-0, t-1, t-2", told.stderr)
    cluster.process.send_signal(signal.SIGTERM)
