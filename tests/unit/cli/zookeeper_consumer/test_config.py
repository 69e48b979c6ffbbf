"""What the paper's consumer is told, and what is passed on."""

import pytest

from kcli.zookeeper_consumer.config import split
from kserver.errors import ConfigError


def test_its_own_keys_are_kept_and_the_others_passed_on():
    config, others = split(
        {
            "group.id": "g",
            "zookeeper.connect": "z:2181/k",
            "zookeeper.session.timeout.ms": "400",
            "rebalance.max.retries": "7",
            "rebalance.backoff.ms": "10",
            "fetch.min.bytes": "5",
        }
    )
    assert (config.group_id, config.zookeeper_connect) == ("g", "z:2181/k")
    assert config.zookeeper_session_timeout_ms == 400
    assert (config.rebalance_max_retries, config.rebalance_backoff_ms) == (7, 10)
    assert others == {"fetch.min.bytes": "5"}
    assert not config.warnings


def test_the_defaults_are_those_of_kafka_0_8():
    config, _ = split({"group.id": "g"})
    assert config.zookeeper_session_timeout_ms == 6000
    assert (config.rebalance_max_retries, config.rebalance_backoff_ms) == (4, 2000)


def test_the_old_name_of_automatic_commits_is_known_too():
    config, others = split({"group.id": "g", "auto.commit.enable": "false"})
    assert not config.enable_auto_commit
    assert not others


@pytest.mark.parametrize("name", ["a/b", "..", ".", "ü", "a b"])
@pytest.mark.parametrize("key", ["group.id", "consumer.id"])
def test_a_name_that_can_be_no_znodes_is_refused(key, name):
    with pytest.raises(ConfigError, match=key):
        split({"group.id": "g"} | {key: name})
