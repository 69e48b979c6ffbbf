"""Processes with a network that can be cut: each in its own network namespace, behind one bridge.

    seat.cut()              like a pulled cable: nothing is refused, closed, or arrives
    seat.cut_outgoing()     the packets that its process sends are lost; those to it arrive
    seat.cut_incoming()     the packets to its process are lost; those that it sends arrive
    seat.cut_from(other)    the packets between it and one other seat are lost
    seat.heal()             ends any of these

Packets are lost in one direction while the sender has, for the receiver's address, a hardware
address that no interface has.  This takes no firewall, which some kernels lack.

Needs Linux, `ip` of iproute2, and root.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
from collections.abc import Iterable, Sequence
from random import Random
from typing import NamedTuple, Self

import pytest

from tests.support.tools import require

_numbers = itertools.count(1)
FIRST_HOST = 10
NOWHERE = "02:00:00:00:00:01"
"""A hardware address that no interface has."""


class Interface(NamedTuple):
    host: str
    device: str
    options: tuple[str, ...] = ()
    """Options of `ip` that select its namespace."""

    def lose_packets_to(self, receiver: Interface) -> None:
        self._neighbour("replace", receiver, "lladdr", NOWHERE, "nud", "permanent")

    def deliver_packets_to(self, receiver: Interface) -> None:
        self._neighbour("del", receiver)

    def _neighbour(self, change: str, receiver: Interface, *words: str) -> None:
        ip(*self.options, "neigh", change, receiver.host, "dev", self.device, *words)


class Namespaces:
    """`with Namespaces() as network: seat = network.seat()`; the end deletes all namespaces."""

    def __init__(self) -> None:
        require("ss")  # of the same package => part of the same package
        # Names of interfaces have 15 characters at most.
        self._name = f"k{os.getpid()}-{next(_numbers)}"
        random = Random()
        self._subnet = f"10.{random.randint(64, 191)}.{random.randint(1, 254)}"
        self.outside = Interface(f"{self._subnet}.1", self._name)
        """Interface of all processes that have no seat, such as this one."""
        self._interfaces = [self.outside]
        self._seats: list[Seat] = []

    def __enter__(self) -> Self:
        try:
            ip("link", "add", self._name, "type", "bridge")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"namespaces need root: {error.stderr}")
        ip("addr", "add", f"{self.outside.host}/24", "dev", self._name)
        ip("link", "set", self._name, "up")
        return self

    def __exit__(self, *_: object) -> None:
        """Delete the namespaces; their processes have ended."""
        for seat in self._seats:
            seat.remove()
        ip("link", "del", self._name)

    def seat(self) -> Seat:
        number = len(self._seats) + 1
        host = f"{self._subnet}.{FIRST_HOST + number}"
        seat = Seat(f"{self._name}-{number}", host, self._name, self._interfaces)
        self._seats.append(seat)
        self._interfaces.append(seat.interface)
        return seat


class Seat:
    """One namespace: `seat.command` prefixes that of a process that listens at `seat.host`."""

    def __init__(self, name: str, host: str, bridge: str, interfaces: Sequence[Interface]) -> None:
        self.host = host
        self.command = ("ip", "netns", "exec", name)
        self.interface = Interface(host, "eth0", ("-n", name))
        self._interfaces = interfaces
        """All interfaces of the network."""
        self._lossy: list[tuple[Interface, Interface]] = []
        """Senders and receivers whose packets are lost now."""
        self._name = name
        ip("netns", "add", name)
        ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("link", "set", name, "master", bridge, "up")
        inside = self.interface.options
        ip(*inside, "addr", "add", f"{host}/24", "dev", "eth0")
        ip(*inside, "link", "set", "eth0", "up")
        ip(*inside, "link", "set", "lo", "up")

    def cut(self) -> None:
        ip("link", "set", self._name, "down")

    def cut_outgoing(self) -> None:
        self._lose((self.interface, other) for other in self._others)

    def cut_incoming(self) -> None:
        self._lose((other, self.interface) for other in self._others)

    def cut_from(self, other: Seat) -> None:
        ends = (self.interface, other.interface)
        self._lose(itertools.permutations(ends))

    @property
    def _others(self) -> list[Interface]:
        return [other for other in self._interfaces if other != self.interface]

    def _lose(self, pairs: Iterable[tuple[Interface, ...]]) -> None:
        for sender, receiver in pairs:
            sender.lose_packets_to(receiver)
            self._lossy.append((sender, receiver))

    def heal(self) -> None:
        ip("link", "set", self._name, "up")
        while self._lossy:
            sender, receiver = self._lossy.pop()
            sender.deliver_packets_to(receiver)

    def remove(self) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            ip("netns", "del", self._name)


def ip(*words: str) -> None:
    """Run `ip`. Raises CalledProcessError with its output."""
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
