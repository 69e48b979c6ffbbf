"""Messages declared as tables: every version of each goes both ways, and nonsense is refused."""

import dataclasses
import functools
import io
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.consumer_protocol_subscription import v0, v1, v2, v3
from kio.serial import entity_writer

from kcli.segments import foreign_records, kraft_records
from kserver.errors import ProtocolError
from kserver.group import records as group
from kserver.txn import records as txn
from kserver.wire import control
from kserver.wire.schema import STRUCT, UnknownKind, schemas

DECLARED = [
    *(one for kind in foreign_records.OFFSETS.kinds.values() for one in kind),
    *(one for kind in foreign_records.SHARE_STATE.kinds.values() for one in kind),
    *(one for kind in txn.RECORDS.kinds.values() for one in kind),
    *kraft_records.KINDS.values(),
    *group.MEMBER_PROTOCOL.values(),
    *control.SCHEMAS.values(),
]
SCALARS = {
    "int8": st.integers(-(1 << 7), (1 << 7) - 1),
    "int16": st.integers(-(1 << 15), (1 << 15) - 1),
    "uint16": st.integers(0, (1 << 16) - 1),
    "int32": st.integers(-(1 << 31), (1 << 31) - 1),
    "int64": st.integers(-(1 << 63), (1 << 63) - 1),
    "float64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "string": st.text(max_size=9),
    "bytes": st.binary(max_size=9),
    "uuid": st.uuids(),
}


def values_of(fields, version):
    """Any values of these fields; those that the version lacks have their defaults."""
    return st.fixed_dictionaries(
        {f.name: value_of(f, version) if f.is_in(version) else st.just(f.default) for f in fields}
    )


def value_of(field, version):
    found = values_of(field.fields, version) if field.type == STRUCT else SCALARS[field.type]
    if field.is_array:
        found = st.lists(found, max_size=3)
    return st.none() | found if field.is_nullable else found


@functools.cache
def any_values(number, version):
    return values_of(DECLARED[number].fields, version)


NUMBERS = st.integers(0, len(DECLARED) - 1)


def message(data):
    """A schema, one of its versions and values that this has."""
    number = data.draw(NUMBERS)
    schema = DECLARED[number]
    version = data.draw(st.integers(schema.first, schema.last))
    return schema, version, data.draw(any_values(number, version))


@given(st.data())
def test_what_is_written_is_read_again(data):
    schema, version, values = message(data)
    assert schema.decode(version, schema.encode(version, values)) == values


@pytest.mark.parametrize("schema", DECLARED, ids=lambda schema: schema.name)
def test_the_defaults_of_every_message_go_both_ways(schema):
    for version in range(schema.first, schema.last + 1):
        values = {field.name: field.default for field in schema.fields}
        assert schema.decode(version, schema.encode(version, {})) == values
        assert schema.as_json(version, values).keys() <= values.keys()


@given(st.data())
def test_what_is_cut_short_is_refused(data):
    schema, version, values = message(data)
    whole = schema.encode(version, values)
    if whole:
        with pytest.raises(ProtocolError):
            schema.decode(version, whole[: data.draw(st.integers(0, len(whole) - 1))])


@given(st.data(), st.binary(max_size=60))
def test_no_bytes_lead_to_anything_but_values_or_a_refusal(data, noise):
    schema = DECLARED[data.draw(NUMBERS)]
    version = data.draw(st.integers(schema.first, schema.last))
    try:
        values = schema.decode(version, noise)
    except ProtocolError:
        return
    again = schema.decode(version, schema.encode(version, values))
    assert repr(again) == repr(values)  # a NaN is not itself


def test_a_count_claims_no_more_than_has_come():
    (schema,) = schemas("A 0\n    many []int64").values()
    with pytest.raises(ProtocolError, match="many is truncated"):
        schema.decode(0, b"\x7f\xff\xff\xff")


def test_a_version_that_is_not_known_is_refused():
    (schema,) = schemas("A 1-2\n    a int8").values()
    for version in (0, 3):
        with pytest.raises(ProtocolError, match=f"A has no version {version}"):
            schema.decode(version, b"\0")


def test_a_tag_of_a_newer_release_is_passed_over():
    old, new = (
        schemas(f"A 0 flexible 0+\n    a int8 0+ tag 1{more}")["A"]
        for more in ("", "\n    b string 0+ tag 7")
    )
    assert old.decode(0, new.encode(0, {"a": 3, "b": "later"})) == {"a": 3}


def test_what_is_left_out_has_its_default():
    table = "A 0-1 flexible 1+\n    a int32 1+ = -1\n    b []?\n        c uuid\n    d bytes? = null"
    (schema,) = schemas(table).values()
    for version in (0, 1):
        defaults = {"a": -1, "b": [], "d": None}
        assert schema.decode(version, schema.encode(version, {})) == defaults


def test_json_holds_what_the_version_has_and_tags_that_say_something():
    table = "A 0-1 flexible 1+\n    a uuid 1+ tag 0\n    b bytes\n    c int8 1+"
    (schema,) = schemas(table).values()
    id = UUID(int=1)
    assert schema.as_json(0, {"a": id, "b": b"\xff", "c": 2}) == {"b": "/w=="}
    assert schema.as_json(1, {"a": UUID(int=0), "b": b"", "c": 2}) == {"b": "", "c": 2}
    shown = {"a": "AAAAAAAAAAAAAAAAAAAAAQ", "b": "", "c": 2}
    assert schema.as_json(1, {"a": id, "b": b"", "c": 2}) == shown


@pytest.mark.parametrize("version", range(4))
def test_bytes_are_those_of_other_implementations(version):
    module = (v0, v1, v2, v3)[version].data
    made = module.ConsumerProtocolSubscription
    values = {"topics": ["a", "é"], "userData": b"u", "ownedPartitions": []}
    fields = {"topics": ("a", "é"), "user_data": b"u"}
    if version >= 1:
        owned = module.TopicPartition(topic="a", partitions=(1, 2))
        fields["owned_partitions"] = (owned,)
        values["ownedPartitions"] = [{"topic": "a", "partitions": [1, 2]}]
    values["generationId"] = fields["generation_id"] = 7
    values["rackId"] = fields["rack_id"] = "r"
    known = {f.name: fields[f.name] for f in dataclasses.fields(made)}
    written = io.BytesIO()
    entity_writer(made)(written, made(**known))
    schema = group.MEMBER_PROTOCOL["ConsumerProtocolSubscription"]
    assert schema.encode(version, values) == written.getvalue()


def test_records_carry_their_kind_and_their_version():
    key = group.RECORDS.encode_key(1, {"group": "g", "topic": "t", "partition": 2})
    assert key == b"\0\x01\0\x01g\0\x01t\0\0\0\x02"
    assert group.RECORDS.decode_key(key) == (1, {"group": "g", "topic": "t", "partition": 2})
    value = group.RECORDS.encode_value(1, 3, {"offset": 5})
    assert value[:2] == b"\0\x03"
    version, values = group.RECORDS.decode_value(1, value)
    assert (version, values["offset"], values["leaderEpoch"]) == (3, 5, -1)


def test_a_kind_of_a_newer_release_is_told_apart():
    with pytest.raises(UnknownKind) as unknown:
        group.RECORDS.decode_key(b"\x01\0")
    assert unknown.value.kind == 256
    with pytest.raises(ProtocolError, match="truncated"):
        group.RECORDS.decode_key(b"\x01")
