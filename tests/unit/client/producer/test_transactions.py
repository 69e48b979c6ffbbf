"""The states of a producer's transactions, and what refusals mean to them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcli.client.errors import (
    CommitFailed,
    IllegalTransactionState,
    ProducerFenced,
    TransactionFailed,
)
from kcli.client.producer.transactions import (
    MEANINGS,
    VALID_PREVIOUS_STATES,
    TransactionAction,
    TransactionManagerState,
    Transactions,
    action_after,
    most_severe,
)
from kserver.errors import ErrorCode, KafkaError
from kserver.wire.api_key import ApiKey

ENTERED = (
    TransactionManagerState.INITIALIZING,
    TransactionManagerState.IN_TRANSACTION,
    TransactionManagerState.COMMITTING_TRANSACTION,
    TransactionManagerState.ABORTING_TRANSACTION,
)
"""The states that a caller's step leads to."""


def in_state(state: TransactionManagerState, **rest) -> Transactions:
    failed = state in (TransactionManagerState.ABORTABLE_ERROR, TransactionManagerState.FATAL_ERROR)
    return Transactions("x", state, KafkaError(ErrorCode.none) if failed else None, **rest)


@pytest.mark.parametrize("target", ENTERED)
@pytest.mark.parametrize("state", TransactionManagerState)
def test_a_step_is_taken_where_the_table_allows_it_and_changes_nothing_elsewhere(state, target):
    core = in_state(state)
    if state in VALID_PREVIOUS_STATES[target]:
        core.enter(target, "call")
        assert (core.state, core.error) == (target, None)
    else:
        expected = IllegalTransactionState if core.error is None else TransactionFailed
        with pytest.raises(expected):
            core.enter(target, "call")
        assert core.state is state


steps = st.lists(
    st.one_of(
        st.tuples(st.just("enter"), st.sampled_from(ENTERED)),
        st.tuples(
            st.just("refused"),
            st.tuples(st.sampled_from(sorted(MEANINGS)), st.sampled_from(list(ErrorCode))),
        ),
        st.tuples(st.just("batch"), st.sampled_from(list(ErrorCode))),
        st.tuples(st.just("completed"), st.none()),
        st.tuples(st.just("learn"), st.tuples(st.integers(0, 2), st.integers(0, 3))),
    ),
    max_size=40,
)


@given(steps, st.booleans())
def test_there_is_an_error_in_the_error_states_and_in_no_other(steps, can_bump):
    core = Transactions("x", can_bump=can_bump)
    for kind, what in steps:
        before = core.state
        match kind:
            case "enter":
                try:
                    core.enter(what, "call")
                except (IllegalTransactionState, TransactionFailed):
                    assert core.state is before
            case "refused":
                api, code = what
                if (means := action_after(api, code)) > TransactionAction.MOVED:
                    core.handle_error(KafkaError(code), means)
            case "batch":
                core.handle_failed_batch(KafkaError(what))
            case "completed":
                if before in VALID_PREVIOUS_STATES[TransactionManagerState.READY]:
                    core.complete()
            case "learn":
                core.learn(*what)
        assert (core.error is not None) == (
            core.state
            in (TransactionManagerState.ABORTABLE_ERROR, TransactionManagerState.FATAL_ERROR)
        )
        assert core.state is before or before in VALID_PREVIOUS_STATES[core.state]
        if before is TransactionManagerState.FATAL_ERROR:
            assert core.state is before


@pytest.mark.parametrize(
    ("api", "code", "means"),
    [
        (ApiKey.FIND_COORDINATOR, ErrorCode.coordinator_not_available, TransactionAction.AGAIN),
        (
            ApiKey.FIND_COORDINATOR,
            ErrorCode.transactional_id_authorization_failed,
            TransactionAction.FATAL,
        ),
        (ApiKey.INIT_PRODUCER_ID, ErrorCode.concurrent_transactions, TransactionAction.AGAIN),
        (ApiKey.INIT_PRODUCER_ID, ErrorCode.invalid_transaction_timeout, TransactionAction.FATAL),
        (ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.not_coordinator, TransactionAction.MOVED),
        (
            ApiKey.ADD_PARTITIONS_TO_TXN,
            ErrorCode.unknown_topic_or_partition,
            TransactionAction.AGAIN,
        ),
        (ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.invalid_topic_exception, TransactionAction.ABORT),
        (
            ApiKey.ADD_PARTITIONS_TO_TXN,
            ErrorCode.invalid_producer_id_mapping,
            TransactionAction.FATAL,
        ),
        (ApiKey.ADD_OFFSETS_TO_TXN, ErrorCode.invalid_producer_epoch, TransactionAction.FENCED),
        (ApiKey.ADD_OFFSETS_TO_TXN, ErrorCode.unknown_producer_id, TransactionAction.BUMP),
        (ApiKey.END_TXN, ErrorCode.coordinator_load_in_progress, TransactionAction.AGAIN),
        (ApiKey.END_TXN, ErrorCode.invalid_txn_state, TransactionAction.FATAL),
        (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.request_timed_out, TransactionAction.MOVED),
        (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.illegal_generation, TransactionAction.NOT_A_MEMBER),
    ],
)
def test_what_codes_mean(api, code, means):
    assert action_after(api, code) is means


def test_of_many_codes_the_gravest_counts_and_what_was_not_attempted_least():
    codes = [ErrorCode.none, ErrorCode.coordinator_load_in_progress, ErrorCode.not_coordinator]
    assert most_severe(ApiKey.TXN_OFFSET_COMMIT, codes) is ErrorCode.not_coordinator
    codes += [ErrorCode.producer_fenced, ErrorCode.illegal_generation]
    assert most_severe(ApiKey.TXN_OFFSET_COMMIT, codes) is ErrorCode.producer_fenced
    handle_error = [ErrorCode.operation_not_attempted, ErrorCode.topic_authorization_failed]
    assert (
        most_severe(ApiKey.ADD_PARTITIONS_TO_TXN, handle_error)
        is ErrorCode.topic_authorization_failed
    )
    assert most_severe(ApiKey.TXN_OFFSET_COMMIT, []) is ErrorCode.none


def test_a_producer_that_was_replaced_is_told_so():
    core = in_state(TransactionManagerState.COMMITTING_TRANSACTION)
    core.handle_error(KafkaError(ErrorCode.invalid_producer_epoch), TransactionAction.FENCED)
    with pytest.raises(ProducerFenced, match="newer producer") as caught:
        core.check()
    assert not caught.value.abortable


def test_a_member_that_was_replaced_is_told_so():
    core = in_state(TransactionManagerState.IN_TRANSACTION)
    core.handle_error(KafkaError(ErrorCode.illegal_generation), TransactionAction.NOT_A_MEMBER)
    with pytest.raises(TransactionFailed) as caught:
        core.check()
    assert caught.value.abortable
    assert isinstance(caught.value.cause, CommitFailed)


def test_a_new_epoch_is_asked_for_only_where_the_coordinator_gives_one_only_then():
    error = KafkaError(ErrorCode.unknown_producer_id)
    for can_bump, version, state in (
        (True, 0, TransactionManagerState.ABORTABLE_ERROR),
        (True, 1, TransactionManagerState.ABORTABLE_ERROR),
        (False, 1, TransactionManagerState.FATAL_ERROR),
        (True, 2, TransactionManagerState.FATAL_ERROR),
    ):
        core = in_state(TransactionManagerState.IN_TRANSACTION, can_bump=can_bump, version=version)
        core.handle_error(error, TransactionAction.BUMP)
        assert core.state is state
        assert core.bump_needed == (state is TransactionManagerState.ABORTABLE_ERROR)


def test_an_abort_that_is_refused_cannot_be_aborted():
    core = in_state(TransactionManagerState.ABORTING_TRANSACTION)
    core.handle_error(KafkaError(ErrorCode.transaction_abortable), TransactionAction.ABORT)
    assert core.state is TransactionManagerState.FATAL_ERROR


def test_features_of_an_older_epoch_change_nothing_and_the_newer_protocol_begins_with_an_epoch():
    core = in_state(TransactionManagerState.READY, version=1, features_epoch=5)
    core.learn(2, 4)
    assert core.version == 1
    core.learn(2, 6)
    assert core.implicit
    assert core.bump_needed
    core.learn(1, 7)
    assert not core.implicit
    fresh = in_state(TransactionManagerState.INITIALIZING)
    fresh.learn(2, 1)
    assert fresh.implicit
    assert not fresh.bump_needed
