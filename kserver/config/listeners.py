"""Listeners: parses and validates `listeners`, `advertised.listeners` and related keys.

Pure: text in, endpoints out; no name is looked up and no port is bound.

    listeners=PLAINTEXT://:9092,LAN://10.0.0.1:9093          two endpoints to bind
    listener.security.protocol.map=PLAINTEXT:PLAINTEXT,LAN:PLAINTEXT
    advertised.listeners=LAN://broker1.example:9093          address for clients of LAN

An empty host means every interface to bind, or this machine's name to advertise; port 0 means any
free port.  The code that binds replaces both.

Rules and error texts are those of Kafka's SocketServerConfigs and KafkaConfig.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from kserver.errors import ConfigError
from kserver.model import Endpoint

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
ENDPOINT = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")
ADDRESS = re.compile(r"[0-9.]+|.*:.*")
ANY_ADDRESS = ("0.0.0.0", "::")


def protocol_map(text: str) -> dict[str, str]:
    """Parse `NAME:PROTOCOL,...`; return protocols by upper-case name."""
    protocols: dict[str, str] = {}
    for name, protocol in pairs(text):
        if protocol.upper() not in PROTOCOLS:
            raise ConfigError(f"No security protocol {protocol}: one of {', '.join(PROTOCOLS)}")
        if name.upper() in protocols:
            raise ConfigError(f"Listener {name.upper()} is mapped twice")
        protocols[name.upper()] = protocol.upper()
    return protocols


def connection_limits(text: str) -> dict[str, int]:
    """Parse `host:limit,...`; return limits by host."""
    limits = {}
    for host, limit in pairs(text):
        if not (limit.isascii() and limit.isdigit()):
            raise ConfigError(f"The limit of {host} is not a number: {limit}")
        limits[host] = int(limit)
    return limits


def pairs(text: str) -> list[tuple[str, str]]:
    """Parse `a:b, c:d`; each is split at the last colon, as the first part may be an IPv6
    address."""
    name_pairs = []
    for entry in filter(None, map(str.strip, text.split(","))):
        first, colon, second = entry.rpartition(":")
        if not (first and colon and second):
            raise ConfigError(f"{entry} is not of the form name:value")
        name_pairs.append((first.strip(), second.strip()))
    return name_pairs


def bound(
    listeners: Sequence[str], protocols: Mapping[str, str], left_out: Collection[str]
) -> tuple[Endpoint, ...]:
    """Return the endpoints to bind, without those of a KRaft controller."""
    endpoints = _parse(listeners, protocols, left_out)
    if not endpoints:
        raise ConfigError("At least one listener has to be named")
    _refuse_shared_ports(endpoints, ",".join(listeners))
    return endpoints


def advertised(
    listeners: Sequence[str] | None,
    own: Sequence[Endpoint],
    protocols: Mapping[str, str],
    left_out: Collection[str],
) -> tuple[Endpoint, ...]:
    """Return the advertised endpoints; by default `own`, the bound endpoints."""
    endpoints = tuple(own) if listeners is None else _parse(listeners, protocols, left_out)
    if any(e.host in ANY_ADDRESS for e in endpoints):
        raise ConfigError(
            f"advertised.listeners cannot use the nonroutable meta-address {ANY_ADDRESS[0]}. "
            "Use a routable IP address."
        )
    names = [e.listener for e in own]
    if strangers := [e.listener for e in endpoints if e.listener not in names]:
        raise ConfigError(
            "advertised.listeners listener names must be equal to or a subset of the ones defined "
            f"in listeners. Found {','.join(strangers)}. The valid options based on the current "
            f"configuration are {','.join(names)}"
        )
    if not endpoints:
        raise ConfigError("At least one listener has to be advertised")
    return endpoints


def _parse(
    listeners: Sequence[str], protocols: Mapping[str, str], left_out: Collection[str]
) -> tuple[Endpoint, ...]:
    endpoints = []
    for text in listeners:
        match = ENDPOINT.fullmatch(text)
        if not match:
            raise ConfigError(f"Unable to parse {text} to a broker endpoint")
        name, host, port = match[1].upper(), match[2], int(match[3])
        if name not in protocols:
            raise ConfigError(f"No security protocol defined for listener {name}")
        if not 0 <= port <= 65535:
            raise ConfigError(f"The port of {text} is not between 0 and 65535")
        endpoints.append(Endpoint(name, protocols[name], host, port))
    names = [e.listener for e in endpoints]
    if len(set(names)) < len(names):
        raise ConfigError(
            f"Each listener must have a different name, listeners: {','.join(listeners)}"
        )
    return tuple(e for e in endpoints if e.listener not in left_out)


def _refuse_shared_ports(endpoints: Sequence[Endpoint], listeners: str) -> None:
    """Reject listeners on the same port, except one IPv4 and one IPv6 address."""
    by_port: dict[int, list[str]] = {}
    for endpoint in endpoints:
        if endpoint.port:
            by_port.setdefault(endpoint.port, []).append(endpoint.host)
    for port, hosts in by_port.items():
        if len(hosts) == 1:
            continue
        if len(hosts) > 2 or not all(map(ADDRESS.fullmatch, hosts)):
            raise ConfigError(f"Each listener must have a different port, listeners: {listeners}")
        if len({":" in host for host in hosts}) == 1:
            raise ConfigError(
                "If you have two listeners on the same port then one needs to be IPv4 and the "
                f"other IPv6, listeners: {listeners}, port: {port}"
            )
