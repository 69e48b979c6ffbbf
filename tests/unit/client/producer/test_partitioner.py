from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcli.client.producer.partitioner import murmur2, partition_for_key


@pytest.mark.parametrize(
    ("key", "hash"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_that_of_javas_clients(key, hash):
    """The vectors of Kafka's UtilsTest, as signed numbers."""
    assert murmur2(key) == hash % (1 << 32)


@given(st.binary(max_size=40), st.integers(1, 1000))
def test_a_key_has_one_partition_among_those_that_there_are(key, partitions):
    partition = partition_for_key(key, partitions)
    assert 0 <= partition < partitions
    assert partition_for_key(bytes(bytearray(key)), partitions) == partition
