"""The package works out of the zip that executors are sent."""

import subprocess
import sys

from kcli.spark.package_archive import archive

READ = """
import sys
sys.path.insert(0, sys.argv[1])
import kcli.client.config
import kserver.config.broker
print(kserver.__file__, kserver.config.broker.BrokerConfig().ssl_protocol)
"""


def test_settings_are_read_out_of_the_zip(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    zipped = archive()
    words = [sys.executable, "-c", READ, str(zipped)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == f"{zipped}/kserver/__init__.py TLSv1.3\n", done.stderr
