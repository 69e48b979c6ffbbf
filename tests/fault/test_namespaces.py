"""Test that the cuts of tests/support/namespaces.py lose packets in their direction, or between
their two seats, only."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TypeAlias

import pytest

from tests.support.namespaces import Namespaces, Seat

PORT = 9999
TIMEOUT_S = 10
RELAY = f"""
import socket, sys
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.bind((sys.argv[1], {PORT}))
own.settimeout({TIMEOUT_S})
print("bound", flush=True)
for line in sys.stdin:
    host, text = line.split()
    if host == "receive":
        print(own.recv(100).decode(), flush=True)
    else:
        own.sendto(text.encode(), (host, {PORT}))
        print("sent", flush=True)
"""


class Outside:
    """Datagrams of this process."""

    def __init__(self, host: str) -> None:
        self.host = host
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((host, PORT))
        self._socket.settimeout(TIMEOUT_S)

    def send(self, receiver: Outside | Inside, text: str) -> None:
        self._socket.sendto(text.encode(), (receiver.host, PORT))

    def receive(self) -> str:
        return self._socket.recv(100).decode()

    def close(self) -> None:
        self._socket.close()


class Inside:
    """Datagrams of a process in a seat."""

    def __init__(self, seat: Seat) -> None:
        self.host = seat.host
        self._process = subprocess.Popen(
            [*seat.command, sys.executable, "-c", RELAY, seat.host],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._answer() == "bound"

    def _answer(self, request: str = "") -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(request)
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def send(self, receiver: Outside | Inside, text: str) -> None:
        assert self._answer(f"{receiver.host} {text}\n") == "sent"

    def receive(self) -> str:
        return self._answer("receive now\n")

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


Directions: TypeAlias = Sequence[tuple[Outside | Inside, Outside | Inside, bool]]
"""Sender, receiver, and whether packets from one to the other are lost."""


@pytest.fixture
def network() -> Iterator[Namespaces]:
    with Namespaces() as network:
        yield network


@pytest.mark.parametrize(
    ("cut", "is_sending_lost", "is_receiving_lost"),
    [(Seat.cut_outgoing, True, False), (Seat.cut_incoming, False, True)],
    ids=["outgoing", "incoming"],
)
def test_a_one_way_cut_loses_packets_in_its_direction_only(
    network, cut, is_sending_lost, is_receiving_lost
):
    seat, other_seat = network.seat(), network.seat()
    target, neighbour, outside = ends = (
        Inside(seat),
        Inside(other_seat),
        Outside(network.outside.host),
    )
    directions: Directions = [
        (target, neighbour, is_sending_lost),
        (target, outside, is_sending_lost),
        (neighbour, target, is_receiving_lost),
        (outside, target, is_receiving_lost),
        (neighbour, outside, False),
    ]
    with closing_all(ends):
        check_directions(directions, lambda: cut(seat), seat.heal)


def test_a_cut_between_two_seats_loses_nothing_else(network):
    seats = [network.seat() for _ in range(3)]
    one, two, three, outside = ends = (*map(Inside, seats), Outside(network.outside.host))
    directions: Directions = [
        (one, two, True),
        (two, one, True),
        (one, three, False),
        (three, two, False),
        (two, outside, False),
        (outside, one, False),
    ]
    with closing_all(ends):
        check_directions(directions, lambda: seats[0].cut_from(seats[1]), seats[0].heal)


def check_directions(
    directions: Directions, cut: Callable[[], None], heal: Callable[[], None]
) -> None:
    """Check which datagrams arrive before the cut, during it and afterwards."""
    # Hardware addresses that were resolved before a cut must not matter.
    for sender, receiver, _ in directions:
        sender.send(receiver, "before")
        assert receiver.receive() == "before"
    cut()
    for sender, receiver, is_lost in directions:
        sender.send(receiver, "during")
        if not is_lost:
            assert receiver.receive() == "during"
    heal()
    # Datagrams arrive in order: one that was not lost would be received first.
    for sender, receiver, _ in directions:
        sender.send(receiver, "after")
        assert receiver.receive() == "after"


@contextmanager
def closing_all(ends: Iterable[Outside | Inside]) -> Iterator[None]:
    with ExitStack() as stack:
        for end in ends:
            stack.callback(end.close)
        yield
