import gzip
import resource
import struct
import subprocess
import sys
import zlib

import cramjam
import lz4.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kserver.errors import ErrorCode, KafkaError
from kserver.wire.compression import Compression, compress, decompress, has_linked_blocks

CODECS = [codec for codec in Compression if codec]
LIMIT = 1 << 20
TEXT = b"".join(b"a line of text, number %d\n" % n for n in range(9000))
NOISE = bytes(zlib.crc32(bytes([n % 251, n // 251])) & 0xFF for n in range(50_000))
SKIPPABLE = b"\x50\x2a\x4d\x18\4\0\0\0skip"
XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


def refused(codec, data, limit_bytes=LIMIT):
    with pytest.raises(KafkaError) as caught:
        decompress(codec, data, limit_bytes)
    return caught.value.code is ErrorCode.corrupt_message


def zstd_of_unknown_size(data):
    packer = cramjam.zstd.Compressor()
    packer.compress(data)
    return bytes(packer.finish())


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("data", [b"", b"x", TEXT, NOISE], ids=["nothing", "x", "text", "noise"])
def test_what_is_compressed_is_decompressed(codec, data):
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    assert decompress(codec, memoryview(bytearray(packed)), LIMIT) == data
    assert compress(codec, memoryview(bytearray(data))) == packed


@pytest.mark.parametrize("codec", CODECS)
def test_compression_makes_text_smaller(codec):
    assert len(compress(codec, TEXT)) < len(TEXT) / 4


@pytest.mark.parametrize(
    ("codec", "fast", "dense"),
    [(Compression.gzip, 1, 9), (Compression.lz4, 9, 17), (Compression.zstd, -5, 9)],
)
def test_levels_are_those_of_the_topic_keys(codec, fast, dense):
    assert len(compress(codec, TEXT, dense)) < len(compress(codec, TEXT, fast))
    for level in (fast, dense):
        assert decompress(codec, compress(codec, TEXT, level), LIMIT) == TEXT


def test_lz4_at_javas_default_level_is_its_fast_compressor():
    assert compress(Compression.lz4, TEXT, 9) == compress(Compression.lz4, TEXT)
    assert compress(Compression.lz4, TEXT, 1) != compress(Compression.lz4, TEXT)


# What Java writes and reads


def test_snappy_is_written_in_javas_blocks():
    packed = compress(Compression.snappy, TEXT)
    assert packed.startswith(XERIAL)
    sizes, at = [], 16
    while at < len(packed):
        size = int.from_bytes(packed[at : at + 4])
        sizes.append(cramjam.snappy.decompress_raw_len(packed[at + 4 : at + 4 + size]))
        at += 4 + size
    assert sizes[:-1] == [32 * 1024] * (len(TEXT) // (32 * 1024))
    assert sum(sizes) == len(TEXT)


def test_lz4_is_written_as_javas_reader_wants_it():
    frame = lz4.frame.get_frame_info(compress(Compression.lz4, TEXT))
    assert frame["block_size_id"] == lz4.frame.BLOCKSIZE_MAX64KB
    assert not frame["block_linked"]
    assert not frame["content_checksum"]
    assert not frame["block_checksum"]
    assert frame["content_size"] == 0


@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        (Compression.gzip, gzip.compress(TEXT[:999]) + gzip.compress(TEXT[999:])),
        (Compression.snappy, bytes(cramjam.snappy.compress_raw(TEXT))),
        (Compression.lz4, lz4.frame.compress(TEXT, store_size=True)),
        (Compression.lz4, lz4.frame.compress(TEXT, content_checksum=True, block_checksum=True)),
        (Compression.lz4, lz4.frame.compress(TEXT, block_size=7, block_linked=True)),
        (Compression.zstd, zstd_of_unknown_size(TEXT)),
        (Compression.zstd, zstd_of_unknown_size(TEXT[:9]) + zstd_of_unknown_size(TEXT[9:])),
    ],
    ids=["members", "bare block", "size", "checksums", "linked", "no size", "frames"],
)
def test_other_encoders_are_read_too(codec, packed):
    assert decompress(codec, packed, LIMIT) == TEXT
    assert decompress(codec, packed, len(TEXT)) == TEXT
    assert refused(codec, packed, len(TEXT) - 1)


@pytest.mark.parametrize(
    ("codec", "after"),
    [
        (Compression.gzip, bytes(8)),
        (Compression.gzip, b"\x1f\x8b\x08\0\0\0\0\0\0\xff"),
        (Compression.snappy, b"\0\0\1"),
        (Compression.snappy, XERIAL),
        (Compression.lz4, lz4.frame.compress(TEXT)),
        (Compression.lz4, SKIPPABLE),
        (Compression.zstd, SKIPPABLE),
    ],
    ids=["zeros", "gzip header", "torn size", "xerial header", "frame", "lz4 skip", "zstd skip"],
)
def test_what_javas_readers_ignore_at_the_end_is_ignored(codec, after):
    assert decompress(codec, compress(codec, TEXT) + after, LIMIT) == TEXT


@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        (Compression.gzip, gzip.compress(TEXT) + b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + b"\xff" * 40),
        (Compression.snappy, XERIAL + bytes(4)),
        (Compression.lz4, SKIPPABLE + compress(Compression.lz4, TEXT)),
        (Compression.lz4, compress(Compression.lz4, TEXT)[:-4]),
        (Compression.lz4, lz4.frame.compress(TEXT, content_checksum=True)[:-4]),
        (Compression.lz4, b"\x04\x22\x4d\x18"),
    ],
    ids=["broken member", "empty block", "skip first", "no end", "no checksum", "magic alone"],
)
def test_what_javas_readers_refuse_is_corrupt(codec, packed):
    assert refused(codec, packed)


def test_concatenated_xerial_streams_are_read():
    streams = compress(Compression.snappy, TEXT[:999]) + compress(Compression.snappy, TEXT[999:])
    assert decompress(Compression.snappy, streams, LIMIT) == TEXT


def test_linked_lz4_blocks_are_told():
    linked = memoryview(lz4.frame.compress(TEXT, block_linked=True, block_size=4))
    assert has_linked_blocks(linked)
    assert decompress(Compression.lz4, linked, LIMIT) == TEXT  # a log may hold them
    assert not has_linked_blocks(memoryview(compress(Compression.lz4, TEXT)))
    assert not has_linked_blocks(linked[:4])
    assert not has_linked_blocks(memoryview(SKIPPABLE))


def test_many_tiny_members_take_linear_time():
    assert decompress(Compression.gzip, gzip.compress(b"") * 20_000, LIMIT) == b""


# What nobody should send


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", [b"x", TEXT, NOISE], ids=["x", "text", "noise"])
def test_a_torn_end_is_corrupt(codec, data):
    packed = compress(codec, data)
    for left in {1, 7, len(packed) // 2, len(packed) - 2, len(packed) - 1}:
        assert refused(codec, packed[:left])


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("garbage", [b"garbage, not compressed at all", b"\xff" * 100])
def test_garbage_is_corrupt(codec, garbage):
    assert refused(codec, garbage)
    after = compress(codec, TEXT) + garbage
    if codec in (Compression.gzip, Compression.lz4):
        assert decompress(codec, after, LIMIT) == TEXT  # as Java's readers do
    else:
        assert refused(codec, after)


@pytest.mark.parametrize("codec", CODECS)
@given(st.data())
@settings(max_examples=60)
def test_changed_bytes_are_read_within_the_limit_or_corrupt(codec, data):
    packed = bytearray(compress(codec, NOISE[:300] + TEXT[:600]))
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    try:
        unpacked = decompress(codec, bytes(packed), 2000)
    except KafkaError:
        assert refused(codec, bytes(packed), 2000)
    else:
        assert len(unpacked) <= 2000


@pytest.mark.parametrize("codec", CODECS)
def test_a_declared_size_is_not_believed(codec):
    claims = {
        Compression.gzip: gzip.compress(b"x")[:-4] + b"\xff\xff\xff\x7f",
        Compression.snappy: b"\xff\xff\xff\xff\x0f" + b"\0x",
        Compression.lz4: lz4.frame.compress(TEXT, store_size=True).replace(
            struct.pack("<Q", len(TEXT)), struct.pack("<Q", 1 << 60)
        ),
        Compression.zstd: b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 60) + b"\1\0\0",
    }
    assert refused(codec, claims[codec])


MEASURE = """
import resource, sys
from kserver.errors import KafkaError
from kserver.wire.compression import Compression, decompress
for codec in Compression:
    try:
        decompress(codec, b"warm", 10)
    except KafkaError:
        pass
bombs = [(Compression[name], open(path, "rb").read()) for name, path in
         (argument.split("=") for argument in sys.argv[2:])]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
refused = 0
for codec, bomb in bombs:
    try:
        decompress(codec, bomb, int(sys.argv[1]))
    except KafkaError:
        refused += 1
print(refused, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_bombs_are_refused_in_little_memory(tmp_path):
    zeros = bytes(128 << 20)
    bombs = [(codec.name, compress(codec, zeros)) for codec in CODECS]
    bombs += [
        ("snappy", bytes(cramjam.snappy.compress_raw(zeros))),
        ("lz4", lz4.frame.compress(zeros, block_size=7, store_size=True)),
        ("zstd", zstd_of_unknown_size(zeros)),
        ("gzip", gzip.compress(bytes(LIMIT // 2)) * 256),
    ]
    del zeros
    arguments = []
    for number, (name, bomb) in enumerate(bombs):
        path = tmp_path / str(number)
        path.write_bytes(bomb)
        arguments.append(f"{name}={path}")
    # In a process of its own, since the high-water mark of memory never falls.
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(LIMIT), *arguments],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30)),
    )
    times_refused, grown_kib = map(int, done.stdout.split())
    assert times_refused == len(bombs)
    assert grown_kib < 16 * 1024
