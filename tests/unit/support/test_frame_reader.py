import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kserver.errors import ProtocolError
from tests.support.frame_reader import FrameReader


def framed(body):
    return len(body).to_bytes(4) + body


@given(
    bodies=st.lists(st.binary(max_size=50), max_size=8),
    cuts=st.lists(st.integers(0, 300), max_size=8),
    trail=st.binary(max_size=3),
)
def test_frames_come_out_alike_however_the_stream_is_cut(bodies, cuts, trail):
    stream = b"".join(map(framed, bodies)) + trail
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    reader = FrameReader(limit_bytes=50)
    frames = []
    for start, end in itertools.pairwise(places):
        frames += reader.feed(stream[start:end])
    assert frames == bodies


@pytest.mark.parametrize("size", [-1, 11, 0x7FFFFFFF])
def test_a_bad_length_is_refused_before_its_frame_has_come(size):
    with pytest.raises(ProtocolError, match=str(size)):
        FrameReader(limit_bytes=10).feed(framed(b"good") + size.to_bytes(4, signed=True))


def test_a_frame_of_the_very_limit_passes():
    assert FrameReader(limit_bytes=10).feed(framed(bytes(10))) == [bytes(10)]
