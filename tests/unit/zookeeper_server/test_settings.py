import pytest

from kserver.errors import ConfigError
from kserver.zookeeper_server.settings import parse

PLAIN = "dataDir=/tmp/zookeeper\nclientPort=2181\n"


def test_kafkas_own_file_needs_no_warning():
    settings = parse(f"{PLAIN}maxClientCnxns=0\nadmin.enableServer=false\n", "zk")
    assert (settings.data_dir, settings.port) == ("/tmp/zookeeper", 2181)
    assert settings.max_connections == 0
    assert settings.tick_ms == 3000
    assert (settings.min_timeout_ms, settings.max_timeout_ms) == (6000, 60000)
    assert settings.words == {"srvr"}
    assert settings.warnings == ()


def test_timeouts_follow_the_tick_unless_they_are_said():
    settings = parse(f"{PLAIN}tickTime=500\nmaxSessionTimeout=60000\n", "zk")
    assert (settings.min_timeout_ms, settings.max_timeout_ms) == (1000, 60000)


def test_what_is_not_known_is_named():
    assert parse(f"{PLAIN}tickTme=500\n", "zk").warnings == ("tickTme is not known here: ignored",)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("clientPort=2181\n", "dataDir is missing"),
        ("dataDir=/tmp\n", "clientPort is missing"),
        ("dataDir=/tmp\nclientPort=99999\n", "clientPort=99999 is not a number from 0 to 65535"),
        (PLAIN + "tickTime=fast\n", "tickTime=fast is not a number"),
        (PLAIN + "minSessionTimeout=9\nmaxSessionTimeout=8\n", "minSessionTimeout=9 is more than"),
        (PLAIN + "server.1=a:2888:3888\n", "an ensemble, which needs Apache's ZooKeeper"),
        (PLAIN + "secureClientPort=2182\n", "not served over TLS"),
    ],
)
def test_what_cannot_be_taken_is_refused_with_its_file(text, told):
    with pytest.raises(ConfigError, match=f"^zk: .*{told}"):
        parse(text, "zk")
