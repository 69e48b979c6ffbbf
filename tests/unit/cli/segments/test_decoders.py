"""What records of Apache's coordinators and controllers hold is shown as Apache's dump-log does."""

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcli.segments import decoders
from kcli.segments.decoders import java_json
from kserver.errors import ProtocolError
from kserver.group.records import RECORDS
from kserver.wire.batch import batches, encode_batch

DATA = Path(__file__).parents[3] / "data" / "dump-log"
DECODERS = {
    "offsets": decoders.offsets,
    "transactions": decoders.transaction_log,
    "metadata": decoders.cluster_metadata,
}


def record(key, value, offset=7):
    (batch,) = batches(encode_batch([(0, key, value, ())], base_offset=offset))
    (one,) = batch.records()
    return one


@pytest.mark.parametrize("name", DECODERS)
def test_apaches_records_are_shown_as_apache_shows_them(name):
    shown = []
    for batch in batches((DATA / name / "00000000000000000000.log").read_bytes()):
        for one in () if batch.is_control else batch.records():
            key, payload = DECODERS[name](one)
            keyed = "" if key is None else f"key: {key} "
            shown.append(f"| {keyed}payload: {payload}")
    told = (DATA / name / "apache-4.3.1.txt").read_text().splitlines()
    assert shown == [line for line in told if line.startswith("| ")]


def test_the_state_of_a_share_group_is_shown():
    key = struct.pack(">hh", 0, 1) + b"g" + bytes(16) + struct.pack(">i", 3)
    value = struct.pack(">hiiiq", 0, 1, 2, 3, 4) + struct.pack(">qq", 5, 6) + b"\x01\x00"
    assert decoders.share_group_state(record(key, value)) == (
        '{"type":"0","data":{"groupId":"g","topicId":"AAAAAAAAAAAAAAAAAAAAAA","partition":3}}',
        '{"version":"0","data":{"snapshotEpoch":1,"stateEpoch":2,"leaderEpoch":3,"startOffset":4,'
        '"createTimestamp":5,"writeTimestamp":6,"stateBatches":[]}}',
    )


def test_what_is_not_known_or_broken_is_told_and_passed_over():
    assert decoders.offsets(record(b"\0\x63", b"")) == (
        "Unknown record type 99 at offset 7, skipping.",
        None,
    )
    key, payload = decoders.offsets(record(b"\0\x01\0", b""))
    assert (key.startswith("Error at offset 7, skipping. "), payload) == (True, None)
    for value in (b"", b"\x02", b"\x01\x63\0", b"\x01\x02\x09"):
        key, payload = decoders.cluster_metadata(record(None, value))
        assert (key, payload.startswith("Error at 7, skipping. ")) == (None, True)


def test_a_record_without_a_key_is_none_of_a_coordinator():
    with pytest.raises(ProtocolError, match="offset 7 has no key"):
        decoders.offsets(record(None, b""))


def test_a_members_own_bytes_are_shown_where_they_are_no_consumers():
    member = dict.fromkeys(("memberId", "clientId", "clientHost"), "m")
    member |= {"subscription": b"\0\x09", "assignment": b""}
    group = {"protocolType": "consumer", "members": [member]}
    key = RECORDS.encode_key(2, {"group": "g"})
    _, payload = decoders.offsets(record(key, RECORDS.encode_value(2, 3, group)))
    (shown,) = json.loads(payload)["data"]["members"]
    assert (shown["subscription"], shown["assignment"]) == ("AAk=", "")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON)
def test_json_is_json(value):
    assert json.loads(java_json(value)) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1024.0, "1024.0"),
        (10485760.0, "1.048576E7"),
        (1e16, "1.0E16"),
        (-12345678.9, "-1.23456789E7"),
        (0.001, "0.001"),
        (0.0009, "9.0E-4"),
        ('é\x1b"\\u001b\n', '"é\\u001B\\"\\\\u001b\\n"'),
    ],
)
def test_json_is_written_as_java_writes_it(value, text):
    assert java_json(value) == text
