import pytest

from kcli.commands.zookeeper_server_stop import after_start


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("python /usr/bin/k zookeeper-server-start -daemon zk", ["-daemon", "zk"]),
        ("/usr/bin/k zookeeper-server-start zk", ["zk"]),
        ("/usr/bin/k server-start zk", None),
        ("vi zookeeper-server-start", None),
        ("k", None),
    ],
)
def test_a_server_is_known_by_its_command_line(line, after):
    assert after_start(line.split()) == after
