"""Bytes in, frames to dispatch, answers out in order."""

import gc
import resource
import struct
from random import Random

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

    def __init__(self, answer=bytes, max_frame_bytes=100 << 20, buffers=None):
        self.frames = []
        self.woken = 0
        self.answer = answer
        self.conversation = Conversation(
            self.dispatch,
            max_frame_bytes=max_frame_bytes,
            buffers=buffers or Buffers(),
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


LARGE = 4 * BUFFER_BYTES


def test_beyond_the_memory_for_requests_only_the_one_that_began_first_is_read_on():
    buffers = Buffers(limit_bytes=LARGE)
    first, second, small = (Talk(buffers=buffers) for _ in range(3))
    for talk in (first, second):
        assert talk.feed(framed(bytes(LARGE))[: LARGE // 2 + 4]) == b""
    assert buffers.held_bytes == LARGE
    assert first.conversation.wants_input
    assert not second.conversation.wants_input
    small.feed(framed(b"small"))
    assert small.frames == [b"small"]
    first.feed(bytes(LARGE // 2))
    assert len(first.frames) == 1
    assert second.woken
    assert second.conversation.wants_input
    second.feed(bytes(LARGE // 2))
    assert len(second.frames) == 1
    assert buffers.held_bytes == 0


def test_a_large_request_is_held_until_it_is_answered_or_its_connection_ends():
    buffers = Buffers(limit_bytes=1)
    for finish in (
        lambda talk, pending: pending.complete(b""),
        lambda talk, _: talk.conversation.close(),
    ):
        pending = Pending(exclusive=True)
        asking, waiting = Talk(lambda _, p=pending: p, buffers=buffers), Talk(buffers=buffers)
        asking.feed(framed(bytes(LARGE)))
        assert buffers.held_bytes == LARGE
        begun = framed(bytes(LARGE))
        rest = waiting.feed(begun)
        finish(asking, pending)
        waiting.feed(rest)
        assert waiting.frames == [bytes(LARGE)]
        assert buffers.held_bytes == 0


@given(st.integers(0, 1 << 32), st.integers(1, 5), st.integers(1, 4 * LARGE))
def test_whatever_the_limit_every_request_comes_through(seed, talkers, limit):
    random = Random(seed)
    buffers = Buffers(limit_bytes=limit)
    talks = [Talk(lambda frame: None, buffers=buffers) for _ in range(talkers)]
    left = [framed(bytes(random.randrange(BUFFER_BYTES, LARGE))) for _ in talks]
    while any(left):
        able = [n for n, talk in enumerate(talks) if left[n] and talk.conversation.wants_input]
        assert able, "nobody may go on"
        chosen = random.choice(able)
        size = random.randrange(1, LARGE)
        before = buffers.held_bytes
        rest = talks[chosen].feed(left[chosen][:size])
        left[chosen] = rest + left[chosen][size:]
        assert buffers.held_bytes <= max(before, limit) + size
    assert [len(talk.frames) for talk in talks] == [1] * talkers
    assert buffers.held_bytes == 0


def test_who_leaves_within_a_large_request_gives_its_memory_back():
    buffers = Buffers(limit_bytes=1)
    leaving, waiting = Talk(buffers=buffers), Talk(buffers=buffers)
    leaving.feed(framed(bytes(LARGE))[:LARGE])
    rest = waiting.feed(framed(bytes(LARGE)))
    assert rest
    leaving.conversation.close()
    assert waiting.feed(rest) == b""
    assert buffers.held_bytes == 0


@given(st.integers(0, 200_000))
def test_how_much_of_a_request_has_come_is_known(size):
    talk = Talk()
    data = framed(bytes(150_000), bytes(150_000))
    talk.feed(data[:size])
    whole, part = divmod(size, 150_004)
    assert (talk.conversation.request_count, talk.conversation.partial_bytes) == (whole, part)


def test_the_next_is_read_on_while_the_first_awaits_its_answer_or_when_it_leaves_with_nothing():
    for leave in (lambda talk: talk.feed(bytes(LARGE)), lambda talk: talk.conversation.close()):
        buffers = Buffers(limit_bytes=1)
        pending = Pending(exclusive=True)
        first = Talk(lambda _, p=pending: p, buffers=buffers)
        next_one, last = Talk(buffers=buffers), Talk(buffers=buffers)
        first.feed(struct.pack(">i", LARGE))
        next_one.feed(framed(bytes(LARGE))[:LARGE])
        last.feed(framed(bytes(LARGE))[:LARGE])
        assert not next_one.conversation.wants_input
        leave(first)
        assert next_one.woken
        assert next_one.conversation.wants_input
        assert not last.conversation.wants_input
