"""Processes with a network that can be cut: each in its own network namespace, behind one bridge.

A cut acts as a pulled cable: nothing is refused, nothing is closed, nothing arrives.
Needs Linux, `ip` of iproute2, and root.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
from random import Random
from typing import Self

import pytest

from tests.support.tools import require

_numbers = itertools.count(1)
FIRST_HOST = 10


class Namespaces:
    """`with Namespaces() as network: seat = network.seat()`; the end deletes all namespaces."""

    def __init__(self) -> None:
        require("ss")  # of the same package => part of the same package
        # Names of interfaces have 15 characters at most.
        self._name = f"k{os.getpid()}-{next(_numbers)}"
        random = Random()
        self._subnet = f"10.{random.randint(64, 191)}.{random.randint(1, 254)}"
        self._seats: list[Seat] = []

    def __enter__(self) -> Self:
        try:
            ip("link", "add", self._name, "type", "bridge")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"namespaces need root: {error.stderr}")
        ip("addr", "add", f"{self._subnet}.1/24", "dev", self._name)
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
        self._seats.append(Seat(f"{self._name}-{number}", host, self._name))
        return self._seats[-1]


class Seat:
    """One namespace: `seat.command` prefixes that of a process that listens at `seat.host`."""

    def __init__(self, name: str, host: str, bridge: str) -> None:
        self.host = host
        self.command = ("ip", "netns", "exec", name)
        self._name = name
        ip("netns", "add", name)
        ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("link", "set", name, "master", bridge, "up")
        inside = ("-n", name)
        ip(*inside, "addr", "add", f"{host}/24", "dev", "eth0")
        ip(*inside, "link", "set", "eth0", "up")
        ip(*inside, "link", "set", "lo", "up")

    def cut(self) -> None:
        ip("link", "set", self._name, "down")

    def heal(self) -> None:
        ip("link", "set", self._name, "up")

    def remove(self) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            ip("netns", "del", self._name)


def ip(*words: str) -> None:
    """Run `ip`. Raises CalledProcessError with its output."""
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
