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
        ("/usr/bin/java -Xmx1G org.apache.zookeeper.server.quorum.QuorumPeerMain zk", ["zk"]),
        ("java -cp x kafka.Kafka server.properties", None),
        ("grep java QuorumPeerMain", None),
        ("", None),
    ],
)
def test_a_server_is_known_by_its_command_line(line, after):
    assert after_start(line.split()) == after
