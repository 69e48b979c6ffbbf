"""A broker's files become the lines that Kafka's dump-log prints of them."""

import struct

import pytest

from kcli.segments.segment_files import (
    UNLIMITED,
    Problems,
    aborted_entries,
    index_entries,
    insane_index,
    insane_time_index,
    log_entries,
    producer_entries,
    time_index_entries,
)
from kcli.segments.segment_text import Printing, line
from kserver.errors import ProtocolError, StorageError
from kserver.wire.batch import TimestampType, encode_batch, end_transaction_marker
from kserver.wire.compression import Compression

ALL = Printing(deep=True, contents=True)


BATCHES = Printing()


def lines(entries, printing=BATCHES):
    return [line(entry, printing) for entry in entries]


def log(data, printing=BATCHES, limit=UNLIMITED):
    problems = Problems()
    entries = log_entries("/d/0.log", memoryview(data), printing.deep, limit, problems)
    return lines(entries, printing), problems


def index(entries):
    return b"".join(struct.pack(">ii", *entry) for entry in entries)


def times(entries):
    return b"".join(struct.pack(">qi", *entry) for entry in entries)


def three():
    """Batches of two records each from offset 0, with timestamps 10, 20 and 30."""
    return [
        encode_batch([(t, None, b"a", ()), (t, None, b"b", ())], base_offset=n * 2)
        for n, t in enumerate((10, 20, 30))
    ]


def test_a_batch_is_one_line_of_all_its_fields():
    data = encode_batch(
        [(1000, b"k", b"v", ()), (1005, None, None, ())],
        base_offset=40,
        leader_epoch=3,
        producer_id=7,
        producer_epoch=1,
        base_sequence=9,
        transactional=True,
        compression=Compression.gzip,
        timestamp_type=TimestampType.log_append_time,
    )
    crc = int.from_bytes(data[17:21])
    assert log(data)[0] == [
        "baseOffset: 40 lastOffset: 41 count: 2 baseSequence: 9 lastSequence: 10 producerId: 7 "
        "producerEpoch: 1 partitionLeaderEpoch: 3 isTransactional: true isControl: false "
        "deleteHorizonMs: OptionalLong.empty position: 0 LogAppendTime: 1005 "
        f"size: {len(data)} magic: 2 compresscodec: gzip crc: {crc} isvalid: true"
    ]


def test_a_batch_with_a_changed_byte_is_not_valid():
    data = bytearray(encode_batch([(0, None, b"value", ())]))
    data[-2] ^= 1
    assert log(data)[0][0].endswith(" isvalid: false")


def test_a_record_is_a_line_of_its_metadata_and_contents():
    data = encode_batch(
        [(5, b"k", b"v\xff", [("h1", b"x"), ("h2", None)]), (6, None, None, ())],
        base_offset=7,
        producer_id=1,
        producer_epoch=0,
        base_sequence=0x7FFFFFFF,
    )
    assert log(data, ALL)[0][1:] == [
        "| offset: 7 CreateTime: 5 keySize: 1 valueSize: 2 sequence: 2147483647 "
        "headerKeys: [h1,h2] key: k payload: v\ufffd",
        "| offset: 8 CreateTime: 6 keySize: -1 valueSize: -1 sequence: 0 headerKeys: []",
    ]


def test_without_metadata_a_record_is_its_contents():
    data = encode_batch([(5, b"k", b"v", ()), (5, None, b"v", ()), (5, None, None, ())])
    printing = Printing(deep=True, contents=True, metadata=False)
    assert log(data, printing)[0][1:] == ["| key: k payload: v", "| payload: v", ""]


@pytest.mark.parametrize(("commit", "name"), [(True, "COMMIT"), (False, "ABORT")])
def test_a_marker_says_how_the_transaction_ended(commit, name):
    key, value = end_transaction_marker(commit, 4)
    data = encode_batch([(5, key, value, ())], control=True, transactional=True)
    assert log(data, ALL)[0][1].endswith(f"headerKeys: [] endTxnMarker: {name} coordinatorEpoch: 4")


def test_krafts_control_records_are_json():
    value = struct.pack(">hiB", 0, 1, 2) + struct.pack(">iBB", 1, 0, 1) + b"\0"
    data = encode_batch([(5, struct.pack(">hh", 0, 2), value, ())], control=True)
    assert log(data, ALL)[0][1].endswith(
        'LeaderChange: {"version":0,"leaderId":1,"voters":[{"voterId":1}],"grantingVoters":[]}'
    )


def test_an_unknown_control_record_is_named_by_its_number():
    data = encode_batch([(5, struct.pack(">hh", 0, 77), b"", ())], control=True)
    assert log(data, ALL)[0][1].endswith(" controlType: UNKNOWN(77)")


def test_what_follows_the_last_whole_batch_is_counted():
    data = b"".join(three())
    assert log(data[:-5])[0][-1] == f"Found {len(three()[2]) - 5} invalid bytes at the end of 0.log"
    assert len(log(data[:-5], limit=len(data) - 5)[0]) == 2


def test_a_gap_between_records_is_a_problem():
    first, _, last = three()
    _, problems = log(first + last, ALL)
    assert list(problems.lines()) == [
        "Non-consecutive offsets in /d/0.log",
        "  1 is followed by 4",
    ]


def test_zeros_are_no_batch():
    with pytest.raises(ProtocolError, match="Found record size 0 smaller than minimum record"):
        log(bytes(100))


def run_index(entries, data, base=0, size=1 << 20):
    problems = Problems()
    found = lines(index_entries("/d/i", entries, base, memoryview(data), size, problems))
    return found, list(problems.lines())


def test_a_right_index_shows_its_entries_up_to_the_zeros_after_them():
    first, second, third = three()
    entries = index([(1, 0), (5, len(first + second))]) + bytes(80)
    assert run_index(entries, first + second + third) == (
        ["offset: 1 position: 0", f"offset: 5 position: {len(first + second)}"],
        [],
    )


def test_an_entry_that_names_another_offset_is_a_mismatch():
    assert run_index(index([(2, 0)]), b"".join(three()))[1] == [
        "Mismatches in :/d/i",
        "  Index offset: 2, log offset: 1",
    ]


def test_an_entry_behind_the_end_is_a_mismatch():
    assert run_index(index([(1, 5000)]), b"".join(three()))[1][1:] == [
        "  Index offset: 1, log offset: -1"
    ]


def run_times(entries, positions, data):
    problems = Problems()
    found = lines(time_index_entries("/d/t", entries, 0, positions, memoryview(data), problems))
    return found, list(problems.lines())


def test_a_right_time_index_shows_its_entries():
    first, second, third = three()
    positions = index([(1, 0), (3, len(first))]) + bytes(80)
    entries = times([(10, 1), (30, 5)]) + bytes(120)
    assert run_times(entries, positions, first + second + third) == (
        ["timestamp: 10 offset: 1", "timestamp: 30 offset: 5"],
        [],
    )


def test_what_is_wrong_in_a_time_index_is_listed():
    data = b"".join(three())
    found = run_times(times([(10, 1), (25, 3), (20, 3), (30, 4)]), index([(1, 0)]), data)
    assert found[1] == [
        "Found timestamp mismatch in :/d/t",
        "  Index timestamp: 25, log timestamp: 20",
        "Found out of order timestamp in :/d/t",
        "  Index timestamp: 20, Previously indexed timestamp: 25",
        "The following indexed offsets are not found in :/d/t",
        "Indexed offset: 4, found log offset: 5",
    ]


def test_the_brokers_own_check_of_an_index():
    assert insane_index("/i", index([(0, 0), (5, 9)]), 100) is None
    assert insane_index("/i", b"", 100) is None
    assert "found 9 bytes which is neither positive nor" in insane_index("/i", bytes(9), 100)
    assert "the last offset is 99 which is less than the base offset 100" in insane_index(
        "/i", index([(-1, 0)]), 100
    )


def test_the_brokers_own_check_of_a_time_index():
    assert insane_time_index("/t", times([(5, 0), (9, 1)]), 100) is None
    assert "last timestamp is 4 which is less than the first timestamp 5" in insane_time_index(
        "/t", times([(5, 0), (4, 1)]), 100
    )
    assert "last offset is 99 which is less than the first offset 100" in insane_time_index(
        "/t", times([(5, 0), (9, -1)]), 100
    )
    assert "found 13 bytes" in insane_time_index("/t", bytes(13), 100)


def test_an_aborted_transaction_is_a_line():
    assert lines(aborted_entries(struct.pack(">hqqqq", 0, 1, 2, 5, 6))) == [
        "version: 0 producerId: 1 firstOffset: 2 lastOffset: 5 lastStableOffset: 6"
    ]


def test_a_producer_is_a_line(tmp_path):
    from kserver.wire.checksum import crc32c

    entries = struct.pack(">i", 2)
    entries += struct.pack(">qhiqiqiq", 1, 2, 14, 30, 4, 1000, 3, 26)
    entries += struct.pack(">qhiqiqiq", 9, 0, -1, -1, 0, 1000, -1, -1)
    snapshot = struct.pack(">hI", 1, crc32c(entries)) + entries
    assert lines(producer_entries("f", snapshot)) == [
        "producerId: 1 producerEpoch: 2 coordinatorEpoch: 3 "
        "currentTxnFirstOffset: OptionalLong[26] lastTimestamp: 1000 firstSequence: 10 "
        "lastSequence: 14 lastOffset: 30 offsetDelta: 4 timestamp: 1000",
        "producerId: 9 producerEpoch: 0 coordinatorEpoch: -1 "
        "currentTxnFirstOffset: OptionalLong.empty lastTimestamp: 1000 ",
    ]
    with pytest.raises(StorageError):
        lines(producer_entries("f", snapshot[:-1]))
