import inspect
import random
import struct

import pytest

from kserver.errors import ProtocolError
from kserver.zookeeper_server import jute
from kserver.zookeeper_server.jute import (
    AclRecord,
    CreateRequest,
    MultiHeader,
    OpCode,
    Reader,
    ReplyHeader,
    SetWatches,
    VersionedRequest,
    ZooKeeperRequestHeader,
    encode,
)

RECORDS = sorted(
    (r for _, r in inspect.getmembers(jute, inspect.isclass) if hasattr(r, "_fields")),
    key=lambda record: record.__name__,
)


def some(hint, chance):
    """A value of that type."""
    if hint == jute.Int:
        return chance.choice([0, -1, 1, 2**31 - 1, -(2**31)])
    if hint == jute.Long:
        return chance.choice([0, -1, 1 << 32, 2**63 - 1, -(2**63)])
    if hint == jute.Bool:
        return chance.random() < 0.5
    if hint is str:
        return chance.choice(["", "/a/b", "/ü/\U0001f600"])
    if hint == bytes | None:
        return chance.choice([None, b"", b"\0\xff", bytes(300)])
    if getattr(hint, "__origin__", None) is tuple:
        return tuple(some(hint.__args__[0], chance) for _ in range(chance.randrange(3)))
    return filled(hint, chance)


def filled(record, chance):
    hints = jute.get_type_hints(record, include_extras=True).values()
    return record(*[some(hint, chance) for hint in hints])


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_what_is_written_is_read_back(record):
    chance = random.Random(record.__name__)
    for _ in range(50):
        value = filled(record, chance)
        reader = Reader(encode(value))
        assert reader.record(record) == value
        assert reader.remaining == 0


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_a_record_that_is_cut_is_refused(record):
    data = encode(filled(record, random.Random(1)))
    for size in range(len(data)):
        with pytest.raises(ProtocolError):
            Reader(data[:size]).record(record)


def test_bytes_are_zookeepers():
    """As its own client writes them."""
    create = CreateRequest("/a", b"x", (AclRecord(31, "world", "anyone"),), 3)
    assert encode(ZooKeeperRequestHeader(7, OpCode.CREATE), create) == (
        b"\0\0\0\7" b"\0\0\0\1"
        b"\0\0\0\2/a" b"\0\0\0\1x"
        b"\0\0\0\1" b"\0\0\0\x1f" b"\0\0\0\5world" b"\0\0\0\6anyone"
        b"\0\0\0\3"
    )  # fmt: skip
    assert jute.frame(ReplyHeader(-2, 9, 0)).hex() == "00000010fffffffe000000000000000900000000"


def test_null_is_kept_for_data_only():
    null = b"\xff\xff\xff\xff"
    assert Reader(null).buffer() is None
    assert Reader(null).text() == ""
    assert Reader(null).vector(Reader.text) == ()


@pytest.mark.parametrize("size", [-2, -(2**31), 5, 2**31 - 1])
def test_a_length_beyond_the_frame_is_refused(size):
    for read in (Reader.buffer, Reader.text, lambda reader: reader.vector(Reader.text)):
        with pytest.raises(ProtocolError):
            read(Reader(struct.pack(">i", size) + b"abc"))


def test_a_text_that_is_no_utf_8_is_refused():
    with pytest.raises(ProtocolError):
        Reader(b"\0\0\0\1\xff").text()


def test_a_multi_is_read_to_its_end():
    ops = [(OpCode.DELETE, VersionedRequest("/a", 1)), (OpCode.CHECK, VersionedRequest("/b", -1))]
    data = encode(*jute.multi((MultiHeader(kind, False, -1), op) for kind, op in ops))
    assert list(Reader(data).multi(lambda _: VersionedRequest)) == ops
    with pytest.raises(ProtocolError):
        list(Reader(data[:-1]).multi(lambda _: VersionedRequest))


def test_noise_is_refused_or_read_but_never_fails_otherwise():
    chance = random.Random(5)
    for _ in range(2000):
        noise = chance.randbytes(chance.randrange(60))
        for record in (CreateRequest, SetWatches, jute.ConnectRequest):
            try:
                Reader(noise).record(record)
            except ProtocolError:
                continue
