import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from kserver.wire.checksum import BY_HAND_BYTES, crc32c, crc32c_by_hand


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


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_by_hand_it_is_the_same(first, second):
    expected = slow_crc32c(first + second)
    assert crc32c_by_hand(memoryview(second), crc32c_by_hand(first)) == expected


def test_the_package_is_loaded_once_it_pays():
    script = f"""
import sys
from kserver.wire.checksum import crc32c
crc32c(bytes({BY_HAND_BYTES}))
assert "crc32c" not in sys.modules
crc32c(b"1")
assert "crc32c" in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)
