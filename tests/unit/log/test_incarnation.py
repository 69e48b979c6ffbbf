"""What a log directory tells of the starts before."""

import msgpack
import pytest

from kserver.log import incarnation
from kserver.log.incarnation import NONE, REMEMBERED, Incarnation


def test_what_was_noted_is_read_again():
    noted = NONE.next("boot", "a").next("boot", "b")
    assert incarnation.decode(incarnation.encode(noted)) == noted == Incarnation("boot", ("b", "a"))


def test_the_last_starts_are_remembered():
    noted = NONE
    for number in range(10):
        noted = noted.next(f"boot {number}", str(number))
    assert noted == Incarnation("boot 9", tuple(map(str, range(9, 9 - REMEMBERED, -1))))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"torn" * 9,
        msgpack.packb(7),
        msgpack.packb({"boot": "b"}),
        msgpack.packb({"boot": 1, "ids": []}),
        msgpack.packb({"boot": "b", "ids": "abc"}),
        incarnation.encode(Incarnation("boot", ("a", "b")))[:-1],
    ],
)
def test_what_makes_no_sense_proves_nothing(data):
    assert incarnation.decode(data) == NONE
