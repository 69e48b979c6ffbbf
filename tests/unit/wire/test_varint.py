import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kserver.errors import ProtocolError
from kserver.wire import varint

SIGNED = st.integers(-(1 << 63), (1 << 63) - 1)
UNSIGNED = st.integers(0, (1 << 64) - 1)


@pytest.mark.parametrize(
    ("number", "written"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (300, "d804"),
        ((1 << 31) - 1, "feffffff0f"),
        (-(1 << 31), "ffffffff0f"),
        (-(1 << 63), "ffffffffffffffffff01"),
    ],
)
def test_signed_numbers_go_in_zigzag_order(number, written):
    assert varint.encode(number).hex() == written


@pytest.mark.parametrize(("number", "written"), [(0, "00"), (127, "7f"), (128, "8001")])
def test_unsigned_numbers_go_as_they_are(number, written):
    assert varint.encode_unsigned(number).hex() == written


@given(SIGNED)
def test_what_is_encoded_is_decoded_with_its_size(number):
    written = varint.encode(number)
    assert varint.decode(b"before" + written + b"\xff", 6) == (number, 6 + len(written))
    assert varint.size(number) == len(written)


@given(UNSIGNED)
@example((1 << 64) - 1)
def test_the_same_holds_for_unsigned_numbers(number):
    written = varint.encode_unsigned(number)
    assert varint.decode_unsigned(memoryview(written), 0) == (number, len(written))
    assert varint.size_unsigned(number) == len(written)


@pytest.mark.parametrize("padded", ["8000", "80808000", "80808080808080808000"])
def test_a_number_may_be_padded_up_to_ten_bytes(padded):
    assert varint.decode(bytes.fromhex(padded), 0) == (0, len(padded) // 2)


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param("", id="nothing"),
        pytest.param("80", id="cut short"),
        pytest.param("8080808080808080808000", id="eleven bytes"),
        pytest.param("ffffffffffffffffff02", id="65 bits"),
    ],
)
def test_broken_numbers_are_refused(broken):
    with pytest.raises(ProtocolError):
        varint.decode_unsigned(bytes.fromhex(broken), 0)
    with pytest.raises(ProtocolError):
        varint.decode(bytes.fromhex(broken), 0)
