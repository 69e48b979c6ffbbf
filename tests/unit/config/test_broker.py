import dataclasses
from pathlib import Path

import pytest

from kserver.config.broker import BrokerConfig, ConfigEntry, user_data_directory
from kserver.config.setting import DescribedConfig, Source, describe, settings_of
from kserver.errors import ConfigError
from kserver.model import Endpoint


def write(directory: Path, text: str) -> str:
    path = directory / "server.properties"
    path.write_text(text)
    return str(path)


def refusals(*overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.load(None, overrides)
    return str(refused.value).splitlines()


def described(config: BrokerConfig, name: str) -> DescribedConfig:
    return next(d for d in describe(config) if d.name == name)


OURS = {
    "socket.send.buffer.bytes",
    "socket.receive.buffer.bytes",
    "replica.socket.receive.buffer.bytes",
}
"""Whose defaults differ, as their descriptions say."""


def test_every_default_is_described_as_apache_describes_it() -> None:
    """Recorded from kafka-configs.sh --describe --all of 4.3.1, less what its start script sets."""
    ours = {d.name: as_kafka_configs_prints(d) for d in describe(BrokerConfig())}
    recorded = Path(__file__).with_name("apache-4.3.1-broker.txt").read_text().splitlines()
    assert len(recorded) > 320
    for line in recorded:
        name = line.split("=")[0]
        assert (ours[name] == line) is (name not in OURS), line


def as_kafka_configs_prints(one: DescribedConfig) -> str:
    synonyms = ", ".join(f"{s.source.name}:{s.name}={s.value}" for s in one.synonyms)
    value = "null" if one.value is None else one.value
    sensitive = str(one.setting.sensitive).lower()
    return f"{one.name}={value} sensitive={sensitive} synonyms={{{synonyms}}}"


def test_a_file_is_read_and_overrides_stand_above_it(tmp_path: Path) -> None:
    path = write(tmp_path, "num.partitions=3\nlog.segment.bytes=100\nnum.partitions=4\n")
    config = BrokerConfig.load(path, ["log.segment.bytes=200", "broker.rack=a=b"])
    assert (config.num_partitions, config.log_segment_bytes) == (4, 200)
    assert config.broker_rack == "a=b"
    assert config.explicit["log.segment.bytes"] == "200"


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.properties: No such file or directory"):
        BrokerConfig.load(str(tmp_path / "none.properties"))


def test_all_that_is_wrong_is_said_at_once_with_line_and_range(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "# a comment\nlog.segment.bytes=x\nnum.partitions=0\nssl.key.password=hunter2\n"
        "listeners=SSL://:9093\nbroker.rack=here\n",
    )
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.load(path, ["log.preallocate=maybe"])
    assert str(refused.value).splitlines() == [
        f"{path}:2: Invalid value 'x' for configuration log.segment.bytes: "
        "Not a number of type INT (allowed: [14,...])",
        f"{path}:3: Invalid value '0' for configuration num.partitions: "
        "Value must be at least 1 (allowed: [1,...])",
        "--override log.preallocate: Invalid value 'maybe' for configuration log.preallocate: "
        "Expected value to be either true or false (allowed: true or false)",
        f"{path}:5: listener SSL://:9093 speaks SSL, which is not served yet: "
        "name PLAINTEXT listeners alone",
    ]


def test_a_broken_line_is_named_with_its_file(tmp_path: Path) -> None:
    path = write(tmp_path, "\nbroker.rack=\\u12\n")
    with pytest.raises(ConfigError, match=rf"^{path}: line 2: Malformed"):
        BrokerConfig.load(path)


def test_an_override_is_key_and_value() -> None:
    assert refusals("num.partitions") == ["--override num.partitions: expected key=value"]


def test_an_unknown_key_warns_and_names_the_nearest_known_one(tmp_path: Path) -> None:
    path = write(tmp_path, "log.retention.hour=3\nacme.plugin.door=open\n")
    config = BrokerConfig.load(path)
    assert config.warnings == (
        f"{path}:1: unknown key 'log.retention.hour': did you mean 'log.retention.hours'?",
        f"{path}:2: unknown key 'acme.plugin.door'",
    )
    assert "acme.plugin.door" not in config.explicit


def test_settings_of_one_listener_and_of_plugins_are_not_unknown() -> None:
    config = BrokerConfig.load(
        None, ["listener.name.lan.ssl.client.auth=none", "rsm.config.bucket=b"]
    )
    assert config.warnings == ()


def test_a_password_shows_nowhere() -> None:
    config = BrokerConfig.load(None, ["ssl.key.password=hunter2"])
    assert config.ssl_key_password == "hunter2"
    assert described(config, "ssl.key.password").value is None
    assert described(config, "ssl.key.password").synonyms == (
        ("ssl.key.password", None, Source.STATIC_BROKER_CONFIG),
    )
    assert "hunter2" not in repr(config)


def test_a_given_value_is_described_with_the_default_behind_it() -> None:
    one = described(BrokerConfig.load(None, ["num.partitions=3"]), "num.partitions")
    assert one.source is Source.STATIC_BROKER_CONFIG
    assert one.synonyms == (
        ("num.partitions", "3", Source.STATIC_BROKER_CONFIG),
        ("num.partitions", "1", Source.DEFAULT_CONFIG),
    )


def test_without_zookeeper_the_broker_is_a_cluster_of_its_own() -> None:
    config = BrokerConfig.load(None, [])
    assert config.broker_id == 0
    assert config.offsets_topic_replication_factor == 1
    assert config.transaction_state_log_replication_factor == 1
    assert config.transaction_state_log_min_isr == 1


def test_without_zookeeper_what_is_given_still_counts() -> None:
    config = BrokerConfig.load(None, ["broker.id=7", "offsets.topic.replication.factor=2"])
    assert (config.broker_id, config.offsets_topic_replication_factor) == (7, 2)
    assert BrokerConfig.load(None, ["broker.id=-1"]).broker_id == 0


def test_with_zookeeper_kafkas_defaults_hold() -> None:
    config = BrokerConfig.load(None, ["zookeeper.connect=localhost:2181/kafka"])
    assert (config.broker_id, config.offsets_topic_replication_factor) == (-1, 3)


def test_node_id_stands_for_broker_id() -> None:
    assert BrokerConfig.load(None, ["node.id=5"]).broker_id == 5
    assert "node.id" in refusals("node.id=5", "broker.id=6")[0]


def test_an_embedded_broker_is_reached_from_this_machine_alone() -> None:
    config = BrokerConfig.embedded("/home/me/data", ["num.partitions=2"])
    assert config.endpoints == (Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092),)
    assert config.advertised_endpoints == config.endpoints
    assert config.log_directories == ("/home/me/data",)
    assert config.num_partitions == 2
    assert BrokerConfig.embedded("/data", ["log.dirs=/other"]).log_directories == ("/other",)


def test_user_data_lies_where_the_platform_keeps_it() -> None:
    assert user_data_directory({"HOME": "/home/me"}) == "/home/me/.local/share/k"
    assert user_data_directory({"HOME": "/h", "XDG_DATA_HOME": "/data"}) == "/data/k"


def test_a_file_for_a_kraft_broker_can_be_used() -> None:
    config = BrokerConfig.load(
        None,
        [
            "process.roles=broker,controller",
            "node.id=1",
            "controller.quorum.bootstrap.servers=localhost:9093",
            "controller.quorum.voters=1@localhost:9093",
            "listeners=PLAINTEXT://:9092,CONTROLLER://:9093",
            "inter.broker.listener.name=PLAINTEXT",
            "advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "controller.listener.names=CONTROLLER",
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
        ],
    )
    assert config.warnings == ()
    assert config.broker_id == 1
    assert [str(e) for e in config.endpoints] == ["PLAINTEXT://:9092"]
    assert [str(e) for e in config.advertised_endpoints] == ["PLAINTEXT://localhost:9092"]


def test_log_dirs_wins_over_log_dir() -> None:
    assert BrokerConfig.load(None, []).log_directories == ("/tmp/kafka-logs",)
    assert BrokerConfig.load(None, ["log.dir=/a"]).log_directories == ("/a",)
    both = BrokerConfig.load(None, ["log.dir=/a", "log.dirs=/b, /c"])
    assert both.log_directories == ("/b", "/c")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["log.dirs="], "At least one log directory must be defined"),
        (["process.roles=controller"], "process.roles names no broker"),
        (["process.roles=broker"], "for a cluster set zookeeper.connect, for a broker by itself"),
        (
            ["process.roles=broker,controller", "controller.quorum.voters=0@a:1,1@b:1"],
            "controller.quorum.voters names other nodes than this one (0@a:1,1@b:1)",
        ),
        (["node.id=3", "controller.quorum.voters=4@a:1"], "names other nodes than this one"),
        (
            ["controller.quorum.bootstrap.servers=a:1,b:1"],
            "controller.quorum.bootstrap.servers names other nodes than this one (a:1,b:1)",
        ),
        (["max.connections.per.ip=0"], "max.connections.per.ip can be set to zero only if"),
        (["max.connections.per.ip.overrides=a"], "a is not of the form name:value"),
        (["listener.security.protocol.map=PLAINTEXT:QUIC"], "No security protocol QUIC"),
        (["advertised.listeners=LAN://a:1"], "No security protocol defined for listener LAN"),
        (["listeners=PLAINTEXT://0.0.0.0:9092"], "advertised.listeners cannot use"),
        (["listeners="], "At least one listener has to be named"),
        (["zookeeper.connect=z", "broker.id=1001"], "not greater than reserved.broker.max.id"),
        (
            ["zookeeper.connect=z", "broker.id.generation.enable=false"],
            "broker.id must be greater than or equal to 0",
        ),
        (["zookeeper.connect="], "Value must not be empty"),
        (["log.retention.ms=0"], "Value must be -1, for never, or at least 1"),
        (
            ["log.cleaner.min.compaction.lag.ms=9", "log.cleaner.max.compaction.lag.ms=3"],
            "log.cleaner.min.compaction.lag.ms (9) > log.cleaner.max.compaction.lag.ms (3)",
        ),
    ],
)
def test_what_cannot_be_is_refused(overrides: list[str], said: str) -> None:
    [line] = refusals(*overrides)
    assert said in line


def test_connections_may_be_refused_to_all_but_some() -> None:
    config = BrokerConfig.load(
        None, ["max.connections.per.ip=0", "max.connections.per.ip.overrides=127.0.0.1:5"]
    )
    assert config.connection_limits == {"127.0.0.1": 5}


def test_a_change_makes_a_new_configuration() -> None:
    config = BrokerConfig.load(None, ["num.partitions=3"])
    changed = dataclasses.replace(config, num_partitions=4)
    assert (config.num_partitions, changed.num_partitions) == (3, 4)
    assert changed.explicit == config.explicit
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.num_partitions = 5  # type: ignore[misc]


def test_a_setting_that_is_not_one_is_refused() -> None:
    with pytest.raises(TypeError, match="num_partition"):
        BrokerConfig(num_partition=3)


def test_every_default_is_one_that_could_be_given() -> None:
    for setting in settings_of(BrokerConfig).values():
        text = setting.render(setting.default)
        if text is not None:
            assert BrokerConfig.of([ConfigEntry(setting.name, text, "here")]), setting.name
