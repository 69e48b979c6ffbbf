import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kserver.cluster_config.quotas import (
    ANY,
    CLIENT_ID,
    CLIENT_KEYS,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    DEFAULT,
    EXACT,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    Alteration,
    Component,
    QuotaPlan,
    bounds,
    entity_of,
    matching,
    named_twice,
    names_of,
    plan,
)
from kserver.errors import ErrorCode, KafkaError, StorageError
from kserver.model import QuotaEntity

ENTITIES = st.sampled_from(
    [
        *(QuotaEntity(user) for user in ("", "alice")),
        *(QuotaEntity(client_id=client_id) for client_id in ("", "c1", "c2")),
        *(QuotaEntity(user, client_id) for user in ("", "alice") for client_id in ("", "c1")),
        *(QuotaEntity(ip=ip) for ip in ("", "127.0.0.1", "::1")),
    ]
)


def planned(*named, **changes):
    return plan(Alteration(named, list(changes.items())), ())


@pytest.mark.parametrize(
    ("named", "entity"),
    [
        ([(USER, "alice")], QuotaEntity("alice")),
        ([(USER, None)], QuotaEntity("")),
        ([(CLIENT_ID, "c")], QuotaEntity(client_id="c")),
        ([(CLIENT_ID, None), (USER, "alice")], QuotaEntity("alice", "")),
        ([(IP, "10.0.0.1")], QuotaEntity(ip="10.0.0.1")),
        ([(IP, None)], QuotaEntity(ip="")),
        ([(CLIENT_ID, "../a b/%\n")], QuotaEntity(client_id="../a b/%\n")),
    ],
)
def test_an_entity_is_named_by_its_types(named, entity):
    assert entity_of(named) == entity


@given(ENTITIES)
def test_an_entity_is_known_by_its_names(entity):
    assert entity_of(names_of(entity)) == entity


@pytest.mark.parametrize(
    "named",
    [
        [],
        [("group", "g")],
        [(USER, "a"), (USER, "b")],
        [(USER, "")],
        [(IP, "10.0.0.1"), (USER, "a")],
        [(IP, "host.example")],
        [(IP, "10.0.0.256")],
        [(CLIENT_ID, "..")],
        [(CLIENT_ID, ".")],
        [(CLIENT_ID, "c" * 1025)],
    ],
)
def test_what_no_entity_can_be_is_refused(named):
    with pytest.raises(KafkaError) as refusal:
        entity_of(named)
    assert refusal.value.code is ErrorCode.invalid_request


def test_values_are_written_as_java_writes_their_types():
    assert planned((USER, "a"), producer_byte_rate=1024.0, request_percentage=1e7) == QuotaPlan(
        QuotaEntity("a"), {PRODUCER_BYTE_RATE: "1024", REQUEST_PERCENTAGE: "1.0E7"}
    )
    assert planned((IP, None), connection_creation_rate=7.0).changes == {
        CONNECTION_CREATION_RATE: "7"
    }
    assert planned((CLIENT_ID, "c"), consumer_byte_rate=None).changes == {CONSUMER_BYTE_RATE: None}


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("key", CLIENT_KEYS)
def test_a_quota_is_a_number_above_zero(key, value):
    with pytest.raises(KafkaError) as refusal:
        planned((CLIENT_ID, "c"), **{key: value})
    assert refusal.value.code is ErrorCode.invalid_request


@pytest.mark.parametrize(
    ("named", "changes"),
    [
        ((USER, "a"), [(PRODUCER_BYTE_RATE, 1.5)]),
        ((USER, "a"), [(PRODUCER_BYTE_RATE, 1e19)]),
        ((IP, "10.0.0.1"), [(CONNECTION_CREATION_RATE, 2.0**31)]),
        ((IP, "10.0.0.1"), [(PRODUCER_BYTE_RATE, 1.0)]),
        ((USER, "a"), [(CONNECTION_CREATION_RATE, 1.0)]),
        ((USER, "a"), [("SCRAM-SHA-256", 1.0)]),
        ((USER, "a"), [("SCRAM-SHA-256", None)]),
        ((USER, "a"), [(PRODUCER_BYTE_RATE, 1.0), (PRODUCER_BYTE_RATE, None)]),
    ],
)
def test_a_key_or_value_that_the_entity_does_not_have_is_refused(named, changes):
    with pytest.raises(KafkaError) as refusal:
        plan(Alteration([named], changes), ())
    assert refusal.value.code is ErrorCode.invalid_request


def test_an_entity_named_twice_is_refused_both_times():
    both = [
        Alteration([(USER, "a"), (CLIENT_ID, "c")], []),
        Alteration([(CLIENT_ID, "c"), (USER, "a")], []),
    ]
    twice = named_twice([*both, Alteration([(USER, "a")], [])])
    assert len(twice) == 1
    for one in both:
        with pytest.raises(KafkaError, match="duplicate entity"):
            plan(one, twice)


def test_what_an_entity_overrides_beside_its_quotas_is_none():
    overrides = {CONTROLLER_MUTATION_RATE: "5.0E-1", "SCRAM-SHA-256": "salt=x", "retention.ms": "1"}
    assert bounds(overrides) == {CONTROLLER_MUTATION_RATE: 0.5}
    with pytest.raises(StorageError):
        bounds({PRODUCER_BYTE_RATE: "many"})


@given(st.sets(ENTITIES), st.lists(ENTITIES, max_size=1), st.booleans())
def test_a_filter_of_exact_names_finds_those_that_have_them(entities, wanted, strict):
    quotas = {entity: {PRODUCER_BYTE_RATE: 1.0} for entity in entities}
    names = [one for entity in wanted for one in names_of(entity)]
    components = [Component(kind, DEFAULT if name is None else EXACT, name) for kind, name in names]
    found = {entity for entity, _ in matching(quotas, components, strict=strict)}
    for entity in entities:
        has = set(names) == set(names_of(entity)) if strict else set(names) <= set(names_of(entity))
        assert (entity in found) is has


def test_any_name_matches_the_default_too():
    quotas = {entity: {} for entity in (QuotaEntity(""), QuotaEntity("a"), QuotaEntity("a", "c"))}
    any_user = [Component(USER, ANY, None)]
    assert len(matching(quotas, any_user, strict=False)) == 3
    assert len(matching(quotas, any_user, strict=True)) == 2
    assert matching(quotas, [], strict=True) == []


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([Component("", ANY, None)], ErrorCode.invalid_request),
        ([Component("group", ANY, None)], ErrorCode.unsupported_version),
        ([Component(USER, 3, None)], ErrorCode.invalid_request),
        ([Component(USER, EXACT, None)], ErrorCode.invalid_request),
        ([Component(USER, DEFAULT, "a")], ErrorCode.invalid_request),
        ([Component(USER, ANY, "a")], ErrorCode.invalid_request),
        ([Component(USER, ANY, None), Component(USER, ANY, None)], ErrorCode.invalid_request),
        ([Component(USER, ANY, None), Component(IP, ANY, None)], ErrorCode.invalid_request),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(components, code):
    with pytest.raises(KafkaError) as refusal:
        matching({}, components, strict=False)
    assert refusal.value.code is code
