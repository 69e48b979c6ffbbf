import pytest

from kserver.config.listeners import advertised, bound, connection_limits, protocol_map
from kserver.errors import ConfigError
from kserver.model import Endpoint

PLAIN = {"PLAINTEXT": "PLAINTEXT", "LAN": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
HERE = Endpoint("PLAINTEXT", "PLAINTEXT", "h", 1)


def bind(*listeners: str) -> tuple[Endpoint, ...]:
    return bound(listeners, PLAIN, frozenset())


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("PLAINTEXT://:9092", "", 9092),
        ("plaintext://localhost:0", "localhost", 0),
        ("PLAINTEXT://10.0.0.1:9092", "10.0.0.1", 9092),
        ("PLAINTEXT://[::1]:9092", "::1", 9092),
        ("PLAINTEXT://[fe80::1%eth0]:9092", "fe80::1%eth0", 9092),
    ],
)
def test_a_listener_is_name_host_and_port(text: str, host: str, port: int) -> None:
    assert bind(text) == (Endpoint("PLAINTEXT", "PLAINTEXT", host, port),)


@pytest.mark.parametrize(
    ("listeners", "said"),
    [
        (["PLAINTEXT:9092"], "Unable to parse PLAINTEXT:9092 to a broker endpoint"),
        (["PLAINTEXT://h"], "Unable to parse PLAINTEXT://h to a broker endpoint"),
        (["PLAINTEXT://a_b c:1"], "Unable to parse PLAINTEXT://a_b c:1 to a broker endpoint"),
        (["WAN://:1"], "No security protocol defined for listener WAN"),
        (["PLAINTEXT://:65536"], "The port of PLAINTEXT://:65536 is not between 0 and 65535"),
        (["PLAINTEXT://:-1"], "The port of PLAINTEXT://:-1 is not between 0 and 65535"),
        (
            ["LAN://:1", "lan://:2"],
            "Each listener must have a different name, listeners: LAN://:1,lan://:2",
        ),
        (
            ["LAN://:1", "PLAINTEXT://:1"],
            "Each listener must have a different port, listeners: LAN://:1,PLAINTEXT://:1",
        ),
        (
            ["LAN://10.0.0.1:1", "PLAINTEXT://10.0.0.2:1"],
            "If you have two listeners on the same port then one needs to be IPv4 and the other "
            "IPv6, listeners: LAN://10.0.0.1:1,PLAINTEXT://10.0.0.2:1, port: 1",
        ),
        ([], "At least one listener has to be named"),
    ],
)
def test_a_bad_listener_is_refused(listeners: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        bind(*listeners)
    assert str(refused.value) == said


def test_ipv4_and_ipv6_may_share_a_port() -> None:
    assert len(bind("LAN://10.0.0.1:1", "PLAINTEXT://[::1]:1")) == 2


def test_any_number_of_listeners_may_take_a_free_port() -> None:
    assert len(bind("LAN://:0", "PLAINTEXT://:0")) == 2


def test_listeners_of_a_kraft_controller_are_left_out() -> None:
    listeners = ["PLAINTEXT://:1", "CONTROLLER://:2"]
    assert [e.listener for e in bound(listeners, PLAIN, {"CONTROLLER"})] == ["PLAINTEXT"]
    with pytest.raises(ConfigError, match="At least one listener"):
        bound(listeners[1:], PLAIN, {"CONTROLLER"})


def test_what_is_bound_is_advertised_unless_told_otherwise() -> None:
    assert advertised(None, [HERE], PLAIN, ()) == (HERE,)


def test_what_is_advertised_need_not_be_what_is_bound() -> None:
    assert advertised(["PLAINTEXT://out:7"], [HERE], PLAIN, ()) == (
        Endpoint("PLAINTEXT", "PLAINTEXT", "out", 7),
    )


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_clients_cannot_be_sent_to_any_address(host: str) -> None:
    with pytest.raises(ConfigError, match="nonroutable"):
        advertised([f"PLAINTEXT://{host}:1"], [HERE], PLAIN, ())
    with pytest.raises(ConfigError, match="nonroutable"):
        advertised(None, bind(f"PLAINTEXT://{host}:1"), PLAIN, ())


def test_only_listeners_that_are_bound_can_be_advertised() -> None:
    with pytest.raises(ConfigError, match=r"Found LAN\. The valid options .* are PLAINTEXT"):
        advertised(["LAN://out:7"], [HERE], PLAIN, ())


def test_a_protocol_map_is_by_upper_case_name() -> None:
    assert protocol_map("lan:plaintext, WAN:SASL_SSL") == {"LAN": "PLAINTEXT", "WAN": "SASL_SSL"}


@pytest.mark.parametrize("text", ["LAN", "LAN:", ":SSL", "LAN:QUIC", "LAN:SSL,lan:SSL"])
def test_a_bad_protocol_map_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        protocol_map(text)


def test_connection_limits_are_by_host() -> None:
    assert connection_limits("") == {}
    assert connection_limits("a:1, 10.0.0.1:0,::1:3") == {"a": 1, "10.0.0.1": 0, "::1": 3}


@pytest.mark.parametrize("text", ["a", "a:", ":1", "a:b", "a:-1"])
def test_a_bad_connection_limit_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        connection_limits(text)
