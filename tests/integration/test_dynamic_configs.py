"""Test config changes on a running broker: listeners that open and close, and persistence."""

from __future__ import annotations

import pytest

from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from tests.support import brokers
from tests.support.process import BrokerProcess
from tests.support.wire_client import WireClient

TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
PLAIN = "PLAINTEXT://127.0.0.1:0"
LAN = "LAN://127.0.0.1:0"
PROTOCOLS = "PLAINTEXT:PLAINTEXT,LAN:PLAINTEXT"


@pytest.fixture
def broker(tmp_path):
    with BrokerProcess(tmp_path) as running:
        yield running


def alter(address, kind, name, **overrides):
    """Alter configs; return the error message, or None.

    Underscores in keys stand for dots; the value None deletes a key.
    """
    configs = [
        {
            "name": key.replace("_", "."),
            "config_operation": DELETE if value is None else SET,
            "value": value,
        }
        for key, value in overrides.items()
    ]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    with WireClient(address) as client:
        answer = client.call(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False
        )
    (result,) = answer.responses
    return None if result.error_code is ErrorCode.none else result.error_message


def described(address, kind, name, key):
    asked = {"resource_type": kind, "resource_name": name, "configuration_keys": [key]}
    with WireClient(address) as client:
        (result,) = client.call(ApiKey.DESCRIBE_CONFIGS, 4, resources=[asked]).results
    return [(c.value, c.config_source) for c in result.configs]


def told_at(address):
    """Return the broker's address in the metadata that clients of this address get."""
    with WireClient(address) as client:
        (node,) = client.call(ApiKey.METADATA, 9, topics=[]).brokers
    return f"{node.host}:{node.port}"


def last_address(broker, listener):
    lines = [line for line in broker.output if f"{listener}://" in line]
    return lines[-1].split(f"{listener}://")[1].split()[0].rstrip(",")


def test_listeners_open_and_close_without_a_restart_and_last(broker):
    own = broker.address
    assert (
        alter(
            own,
            BROKER,
            "0",
            listener_security_protocol_map=PROTOCOLS,
            listeners=f"{PLAIN},{LAN}",
        )
        is None
    )
    brokers.until(lambda: any("LAN://" in line for line in broker.output))
    lan = last_address(broker, "LAN")
    assert (told_at(own), told_at(lan)) == (own, lan)
    with WireClient(lan) as client:
        assert client.call(ApiKey.METADATA, 9, topics=[]).brokers
        assert alter(own, BROKER, "0", listeners=None) is None
        with pytest.raises(OSError):
            client.call(ApiKey.METADATA, 9, topics=[])
    with pytest.raises(OSError):
        WireClient(lan)
    assert told_at(own) == own
    assert alter(own, BROKER, "0", listeners=f"{PLAIN},{LAN}") is None
    broker.restart()
    assert told_at(broker.address) == broker.address
    brokers.until(lambda: last_address(broker, "LAN") != lan)
    lan = last_address(broker, "LAN")
    assert told_at(lan) == lan


def test_what_clients_are_told_changes_without_a_restart(broker):
    own = broker.address
    told = "PLAINTEXT://broker.example:9999"
    assert alter(own, BROKER, "0", advertised_listeners=told) is None
    assert told_at(own) == "broker.example:9999"
    assert alter(own, BROKER, "0", advertised_listeners=None) is None
    assert told_at(own) == own


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"listeners": f"{PLAIN},{LAN}"}, "No security protocol defined for listener LAN"),
        (
            {"listeners": LAN, "listener_security_protocol_map": PROTOCOLS},
            "Advertised listener must be specified for inter-broker listener PLAINTEXT",
        ),
        (
            {"listener_security_protocol_map": "PLAINTEXT:SSL"},
            "PLAINTEXT://127.0.0.1:0 speaks SSL",
        ),
        ({"listeners": "nonsense"}, "Unable to parse nonsense to a broker endpoint"),
        (
            {"advertised_listeners": "LAN://broker.example:9999"},
            "No security protocol defined for listener LAN",
        ),
    ],
)
def test_listeners_that_cannot_be_are_refused(broker, changes, said):
    assert said in alter(broker.address, BROKER, "0", **changes)
    assert told_at(broker.address) == broker.address


def test_what_was_set_is_there_after_a_restart_and_after_kill_9(broker):
    brokers.create_topic(broker.address, "t", retention_ms=5)
    assert alter(broker.address, BROKER, "", log_segment_bytes="1000", max_connections="50") is None
    assert alter(broker.address, BROKER, "0", max_connections="60") is None
    assert alter(broker.address, TOPIC, "t", retention_ms=None, segment_ms="777777") is None

    def kept():
        return [
            described(broker.address, kind, name, key)
            for kind, name, key in (
                (BROKER, "0", "max.connections"),
                (BROKER, "", "max.connections"),
                (BROKER, "0", "log.segment.bytes"),
                (TOPIC, "t", "segment.bytes"),
                (TOPIC, "t", "segment.ms"),
                (TOPIC, "t", "retention.ms"),
            )
        ]

    before = kept()
    assert before == [
        [("60", 2)],
        [("50", 3)],
        [("1000", 3)],
        [("1000", 3)],
        [("777777", 1)],
        [("604800000", 5)],
    ]
    broker.restart()
    assert kept() == before
    # The configs are in effect, not only described: the log rolls.
    for _ in range(3):
        brokers.append(broker.address, "t", [(0, None, b"x" * 600, ())])
    assert len(list((broker.data / "t-0").glob("*.log"))) == 3
    broker.kill()
    broker.start()
    assert kept() == before
