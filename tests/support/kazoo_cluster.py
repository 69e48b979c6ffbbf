"""A pytest plugin: kazoo's own tests, on our ZooKeeper instead of a cluster started by kazoo.

python -m pytest -p tests.support.kazoo_cluster --pyargs kazoo.tests
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.support.zookeeper_server import OwnZooKeeperServer

os.environ.setdefault("ZOOKEEPER_VERSION", "3.8.4")
# kazoo imports them for the certificates of the TLS cluster that it would start itself.
for _name in ("OpenSSL", "jks"):
    _module: Any = ModuleType(_name)
    _module.crypto = None
    sys.modules.setdefault(_name, _module)


class _Server(OwnZooKeeperServer):
    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def run(self) -> None:
        if not self.running:
            self.start()

    def stop(self) -> None:
        self.kill()


class _Cluster(list[_Server]):
    """A cluster of one server."""

    def start(self) -> None:
        self[0].run()

    def stop(self) -> None:
        self[0].kill()

    terminate = stop

    def get_logs(self) -> list[str]:
        return [(self[0].directory / "output.txt").read_text()]


_directory = tempfile.TemporaryDirectory(prefix="kazoo-")
_cluster = _Cluster([_Server(Path(_directory.name))])


def pytest_configure() -> None:
    from kazoo.testing import harness

    harness.get_global_cluster = lambda: _cluster


def pytest_unconfigure() -> None:
    _cluster.stop()
    _directory.cleanup()
