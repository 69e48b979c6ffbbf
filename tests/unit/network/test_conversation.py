"""Bytes in, frames to dispatch, answers out in order."""

import gc
import resource
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kserver.errors import ProtocolError
from kserver.network.conversation import (
    BUFFER_BYTES,
    OUT_LIMIT_BYTES,
    PENDING_LIMIT,
    Buffers,
    Conversation,
    Pending,
)


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


class Talk:
    """A conversation whose dispatch is `answer`, and what became of it."""

    def __init__(self, answer=bytes, max_frame_bytes=100 << 20):
        self.frames = []
        self.woken = 0
        self.answer = answer
        self.conversation = Conversation(
            self.dispatch,
            max_frame_bytes=max_frame_bytes,
            buffers=Buffers(),
            wake=self.wake,
        )

    def dispatch(self, frame):
        self.frames.append(bytes(frame))
        return self.answer(bytes(frame))

    def wake(self):
        self.woken += 1

    def feed(self, data, step=None):
        """Put `data` in as far as the conversation wants it; returns what it did not want."""
        while data and self.conversation.wants_input:
            room = self.conversation.writable()
            size = min(len(room), len(data), step or len(data))
            room[:size] = data[:size]
            data = data[size:]
            self.conversation.received(size)
        return data

    def sent(self):
        out = list(self.conversation.out)
        self.conversation.out.clear()
        self.conversation.out_bytes = 0
        return out


@given(
    st.lists(st.binary(max_size=40) | st.integers(0, 3 * BUFFER_BYTES).map(bytes), max_size=12),
    st.integers(1, 2 * BUFFER_BYTES),
)
def test_frames_arrive_whole_and_in_order_however_the_bytes_are_cut(bodies, step):
    talk = Talk(answer=lambda frame: None)
    talk.feed(framed(*bodies), step)
    assert talk.frames == bodies


@pytest.mark.parametrize("size", [-1, 101, 2**31 - 1, -(2**31)])
def test_a_length_outside_the_limit_closes_the_connection(size):
    talk = Talk(max_frame_bytes=100)
    with pytest.raises(ProtocolError, match=r"socket\.request\.max\.bytes"):
        talk.feed(struct.pack(">i", size))


@pytest.mark.parametrize("claimed", [90 << 20, 3 << 20, BUFFER_BYTES])
def test_a_claimed_length_takes_no_memory_until_bytes_arrive(claimed):
    def resident_bytes():
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize()

    before = resident_bytes()
    talks = [Talk() for _ in range(100)]
    for talk in talks:
        talk.feed(struct.pack(">i", claimed) + b"x" * 100)
    assert resident_bytes() - before < 4 << 20


def test_a_claim_that_no_memory_is_left_for_closes_the_connection():
    talk = Talk()
    gc.collect()  # else what other tests left would be given back below, and make room
    limits = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as statm:
        used_bytes = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used_bytes + (50 << 20), limits[1]))
    try:
        with pytest.raises(ProtocolError, match="no memory"):
            talk.feed(struct.pack(">i", 90 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def test_a_large_buffer_is_lent_again():
    talk = Talk(answer=lambda frame: None)
    body = bytes(1 << 20)
    talk.feed(framed(body, body))
    assert [len(frame) for frame in talk.frames] == [1 << 20, 1 << 20]


@given(st.data())
def test_answers_leave_in_the_order_of_their_requests(data):
    kinds = data.draw(st.lists(st.sampled_from(["now", "later", "exclusive", "none"]), max_size=20))
    pendings = {}

    def answer(frame):
        kind = kinds[int(frame)]
        if kind == "none":
            return None
        if kind == "now":
            return frame
        pendings[int(frame)] = Pending(exclusive=kind == "exclusive")
        return pendings[int(frame)]

    talk = Talk(answer)
    talk.feed(framed(*(b"%d" % n for n in range(len(kinds)))))
    out = talk.sent()
    while any(not p.ready for p in pendings.values()):
        number = data.draw(st.sampled_from([n for n, p in pendings.items() if not p.ready]))
        pendings[number].complete(b"%d" % number)
        talk.conversation.sent()
        out += talk.sent()
    talk.conversation.sent()
    out += talk.sent()
    assert out == [b"%d" % n for n, kind in enumerate(kinds) if kind != "none"]


def test_an_exclusive_answer_mutes_until_it_completes():
    parked = Pending(exclusive=True)
    talk = Talk(lambda frame: parked if frame == b"fetch" else frame)
    talk.feed(framed(b"fetch", b"next"))
    assert talk.frames == [b"fetch"]
    parked.complete(b"fetched")
    assert talk.woken == 1
    talk.conversation.sent()
    assert talk.sent() == [b"fetched", b"next"]


def test_a_client_that_reads_no_answers_is_not_read_from():
    talk = Talk(lambda frame: bytes(OUT_LIMIT_BYTES // 4))
    rest = talk.feed(framed(*[b"x"] * BUFFER_BYTES), step=500)
    assert len(rest) == 5 * BUFFER_BYTES - BUFFER_BYTES
    assert len(talk.frames) == 5
    talk.sent()
    talk.conversation.sent()
    assert len(talk.frames) == 10


def test_while_an_answer_is_awaited_one_buffer_is_read_and_kept_for_later():
    """Else nobody would notice that the client has left."""
    parked = Pending(exclusive=True)
    talk = Talk(lambda frame: parked if frame == b"fetch" else None)
    rest = talk.feed(framed(b"fetch", *[b"next"] * BUFFER_BYTES))
    assert len(rest) == 9 + 8 * BUFFER_BYTES - BUFFER_BYTES
    assert talk.frames == [b"fetch"]
    parked.complete(b"fetched")
    talk.conversation.sent()
    rest = talk.feed(rest)
    assert not rest
    assert talk.frames == [b"fetch"] + [b"next"] * BUFFER_BYTES


def test_an_end_is_told_to_whoever_prepares_an_answer():
    told = []
    first, second = Pending(exclusive=False), Pending(exclusive=True)
    first.on_abandoned = lambda: told.append("first")
    second.on_abandoned = lambda: told.append("second")
    talk = Talk(lambda frame: {b"1": first, b"2": second}[frame])
    talk.feed(framed(b"1", b"2"))
    first.complete(b"in time")
    talk.conversation.close()
    talk.conversation.close()
    assert told == ["second"]


def test_only_so_many_answers_are_awaited():
    talk = Talk(lambda frame: Pending(exclusive=False))
    talk.feed(framed(*[b"x"] * 1000))
    assert len(talk.frames) == PENDING_LIMIT


def test_nothing_completes_into_a_closed_conversation():
    parked = Pending(exclusive=True)
    talk = Talk(lambda frame: parked)
    talk.feed(framed(b"x"))
    talk.conversation.close()
    parked.complete(b"late")
    assert talk.woken == 0
    assert not talk.conversation.out


def test_who_is_throttled_is_heard_again_once_that_is_over():
    talk = Talk()
    talk.conversation.throttled = True
    assert talk.feed(framed(b"a", b"b")) == b""
    assert talk.frames == []
    assert talk.conversation.held_back
    talk.conversation.sent()
    assert talk.frames == []
    talk.conversation.throttled = False
    talk.conversation.sent()
    assert talk.frames == [b"a", b"b"]


def test_who_is_throttled_fills_no_more_than_his_buffer():
    talk = Talk()
    talk.conversation.throttled = True
    rest = talk.feed(framed(bytes(3 * BUFFER_BYTES)))
    assert len(rest) >= 2 * BUFFER_BYTES
