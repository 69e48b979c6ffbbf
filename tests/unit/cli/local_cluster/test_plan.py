"""What a cluster of this machine is started with."""

import pytest

from kcli.local_cluster.plan import OWN_KEYS, LocalClusterPlan, data_problem, left_alone
from kserver.config.broker import BrokerConfig
from kserver.zookeeper_server.settings import parse


def plan(count=3, port=9092, overrides=None):
    return LocalClusterPlan(count, port, "/data", overrides or {})


@pytest.mark.parametrize(
    ("count", "replicas", "least"), [(1, 1, 1), (2, 2, 1), (3, 3, 2), (5, 3, 2)]
)
def test_topics_have_three_replicas_or_as_many_as_there_are_brokers(count, replicas, least):
    for id in plan(count).ids:
        config = BrokerConfig.load(None, plan(count).broker(id, "127.0.0.1:1", "127.0.0.1:2"))
        assert config.default_replication_factor == replicas
        assert config.offsets_topic_replication_factor == replicas
        assert config.transaction_state_log_replication_factor == replicas
        assert config.transaction_state_log_min_isr == least


def test_brokers_differ_in_id_port_and_directory():
    made = [
        BrokerConfig.load(None, plan().broker(id, f"127.0.0.1:{plan().port_of(id)}", "z:1"))
        for id in plan().ids
    ]
    assert [config.broker_id for config in made] == [1, 2, 3]
    assert [config.endpoints[0].port for config in made] == [9092, 9093, 9094]
    assert [config.log_directories[0] for config in made] == [
        "/data/broker-1",
        "/data/broker-2",
        "/data/broker-3",
    ]
    assert {config.zookeeper_connect for config in made} == {"z:1"}


def test_port_0_is_a_free_one_for_each():
    assert [plan(port=0).port_of(id) for id in plan().ids] == [0, 0, 0]


def test_an_override_has_the_last_word_over_what_is_only_a_default():
    words = plan(overrides={"default.replication.factor": "1"}).broker(1, "h:1", "z:1")
    assert "default.replication.factor=1" in words


@pytest.mark.parametrize("key", OWN_KEYS)
def test_a_key_that_cannot_be_one_for_all_is_refused_with_the_reason(key):
    problem = plan(overrides={key: "x"}).problem()
    assert problem == f"--override {key} is not supported: {OWN_KEYS[key]}"


def test_one_metrics_port_for_all_is_refused_but_a_free_one_for_each_is_not():
    fixed, free = ({"http.listener": f"127.0.0.1:{port}"} for port in (9404, 0))
    assert "http.listener=127.0.0.1:0 takes a free one" in plan(overrides=fixed).problem()
    assert plan(overrides=free).problem() is None
    assert plan(1, overrides=fixed).problem() is None


def test_the_last_broker_has_a_port():
    assert plan(2, 65534).problem() is None
    assert "the last would listen at port 65536" in plan(3, 65534).problem()


def test_zookeeper_is_this_machines_alone():
    settings = parse(plan().zookeeper("127.0.0.1:0"), "zookeeper.properties")
    assert (settings.address, settings.port) == ("127.0.0.1", 0)
    assert settings.data_dir == "/data/zookeeper"
    assert settings.warnings == ()


def test_brokers_beyond_the_number_asked_for_are_known_by_their_data():
    assert left_alone(["zookeeper", "broker-1", "broker-5", "broker-4", "broker-x"], 3) == [4, 5]


def test_data_of_brokers_is_refused_without_their_zookeeper_s_and_of_different_clusters():
    one, other = {1: "a", 2: "a"}, {1: "a", 2: "b"}
    assert data_problem("/d", {}, has_zookeeper=False) is None
    assert data_problem("/d", one, has_zookeeper=True) is None
    assert data_problem("/d", one, has_zookeeper=False) == (
        "--data /d has the data of broker-1, broker-2, but not of their ZooKeeper: restore"
        " /d/zookeeper, or choose another directory"
    )
    assert "clusters (broker-1 a, broker-2 b)" in data_problem("/d", other, has_zookeeper=True)
