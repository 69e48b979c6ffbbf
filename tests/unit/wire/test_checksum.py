from hypothesis import given
from hypothesis import strategies as st

from kserver.wire.checksum import crc32c


def slow_crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_the_check_value_of_the_crc_catalogue():
    assert crc32c(b"123456789") == 0xE3069283


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_a_checksum_can_go_on_from_what_came_before(first, second):
    assert crc32c(second, crc32c(first)) == crc32c(first + second) == slow_crc32c(first + second)
