import pytest
from hypothesis import given
from hypothesis import strategies as st

from kserver import znodes
from kserver.controller.features import NEWEST, SUPPORTED, Update, UpgradeType, known_to_all, plan
from kserver.errors import ErrorCode, StorageError

GROUPS, TRANSACTIONS = "group.version", "transaction.version"
UP, SAFE, UNSAFE = UpgradeType
ALONE = {3: NEWEST}
"""The live brokers, and what they know."""
names = st.sampled_from([GROUPS, TRANSACTIONS, "metadata.version"])
updates = st.lists(st.builds(Update, names, st.integers(-1, 4), st.integers(0, 4)), max_size=3)
levels = st.fixed_dictionaries({}, optional={GROUPS: st.just(1), TRANSACTIONS: st.integers(1, 2)})


@given(updates, levels)
def test_all_that_are_asked_for_are_done_or_none(asked, before):
    after, errors = plan(asked, before, 3, ALONE)
    assert len(errors) == len(asked)
    if any(errors):
        assert after == before
    else:
        assert {u.name: after.get(u.name, 0) for u in asked} == {u.name: u.level for u in asked}
        assert all(level in SUPPORTED[name] and level > 0 for name, level in after.items())
        assert znodes.decode_features(znodes.encode_features(after)) == after


@pytest.mark.parametrize(
    ("update", "text"),
    [
        (Update(GROUPS, 2), "Local controller 3 only supports versions 0-1"),
        (Update("kraft.version", 1), "Local controller 3 does not support this feature."),
        (Update(GROUPS, -1), "A feature version cannot be less than 0."),
        (Update(TRANSACTIONS, 1), "without setting the upgrade type to either safe or unsafe"),
        (Update(GROUPS, 1, 9), "The controller does not support the given upgrade type."),
    ],
)
def test_what_cannot_be_is_refused_with_its_reason(update, text):
    _, (error,) = plan([update], NEWEST, 3, ALONE)
    assert error is not None
    assert error.code is ErrorCode.invalid_update_version
    assert f"Invalid update version {update.level} for feature {update.name}. " in error.message
    assert text in error.message


@pytest.mark.parametrize("how", [SAFE, UNSAFE])
def test_a_level_is_lowered_by_either_downgrade_and_raised_by_none(how):
    lowered, errors = plan([Update(TRANSACTIONS, 0, how)], NEWEST, 3, ALONE)
    assert (lowered, errors) == ({GROUPS: 1}, [None])
    _, (error,) = plan([Update(TRANSACTIONS, 1, how)], lowered, 3, ALONE)
    assert error is not None
    assert "Can't downgrade to a newer version." in error.message


def test_a_feature_named_twice_is_refused():
    _, errors = plan([Update(GROUPS, 0, SAFE), Update(GROUPS, 1)], NEWEST, 3, ALONE)
    assert all(error is not None for error in errors)


def test_features_that_kafka_has_switched_off_do_not_count():
    assert znodes.decode_features(b'{"version":2,"status":0,"features":{}}') == {}
    old = b'{"version":1,"status":1,"features":{"a":{"min_version_level":1,"max_version_level":2}}}'
    assert znodes.decode_features(old) == {"a": 2}
    with pytest.raises(StorageError):
        znodes.decode_features(b'{"version":2}')


def test_a_level_is_not_raised_above_what_a_live_broker_knows():
    update = Update(TRANSACTIONS, 2)
    _, (error,) = plan([update], {}, 3, ALONE | {4: {}})
    assert error is not None
    assert "Broker 4 does not support this feature." in error.message
    _, (error,) = plan([update], {}, 3, ALONE | {4: {TRANSACTIONS: 1}})
    assert error is not None
    assert "Broker 4 only supports versions 0-1" in error.message
    assert plan([Update(TRANSACTIONS, 0, SAFE)], NEWEST, 3, {4: {}}) == ({GROUPS: 1}, [None])


def test_levels_are_those_that_all_brokers_know():
    assert known_to_all(NEWEST, [NEWEST, NEWEST]) == NEWEST
    assert known_to_all(NEWEST, [NEWEST, {TRANSACTIONS: 1, "metadata.version": 9}]) == {
        TRANSACTIONS: 1
    }
    assert known_to_all(NEWEST, [NEWEST, {}]) == {}
