from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from kcli.client.consumer.fetch_session import FetchPosition, FetchSessionHandler
from kserver.model import TopicPartition

A, B, C = (TopicPartition("t", n) for n in range(3))


def wanted(offset: int = 0, id: int = 1) -> FetchPosition:
    return FetchPosition(UUID(int=id), offset, 0, 1000)


def test_the_first_request_names_everything():
    request = FetchSessionHandler().build({A: wanted(), B: wanted()})
    assert (request.session_id, request.epoch) == (0, 0)
    assert set(request.partitions) == {A, B}


def test_the_next_names_what_is_new_or_asked_differently_and_what_to_forget():
    session = FetchSessionHandler()
    session.build({A: wanted(), B: wanted(5)})
    session.handle_response(77)
    request = session.build({B: wanted(6), C: wanted()})
    assert (request.session_id, request.epoch) == (77, 1)
    assert request.partitions == {B: wanted(6), C: wanted()}
    assert request.forgotten == {A: UUID(int=1)}


def test_what_did_not_change_is_not_named():
    session = FetchSessionHandler()
    session.build({A: wanted()})
    session.handle_response(77)
    assert session.build({A: wanted()}).partitions == {}


def test_a_broker_without_sessions_is_asked_in_full_each_time():
    session = FetchSessionHandler()
    for _ in range(3):
        request = session.build({A: wanted()})
        session.handle_response(0)
        assert (request.session_id, request.epoch, set(request.partitions)) == (0, 0, {A})


def test_after_a_failure_the_session_is_replaced_or_forgotten():
    session = FetchSessionHandler()
    session.build({A: wanted()})
    session.handle_response(77)
    session.handle_error()
    assert session.build({A: wanted()})[:2] == (77, 0)
    session.handle_error(forget=True)
    assert session.build({A: wanted()})[:2] == (0, 0)


def test_a_topic_made_anew_is_forgotten_under_its_old_id():
    session = FetchSessionHandler()
    session.build({A: wanted()})
    session.handle_response(77)
    request = session.build({A: wanted(id=2)})
    assert request.partitions == {A: wanted(id=2)}
    assert request.forgotten == {A: UUID(int=1)}


def test_epochs_wrap_to_one():
    session = FetchSessionHandler()
    session.build({})
    session.handle_response(77)
    session._epoch = 0x7FFFFFFF
    session.build({})
    session.handle_response(77)
    assert session.build({}).epoch == 1


wants = st.dictionaries(
    st.sampled_from([A, B, C]), st.builds(wanted, st.integers(0, 3), st.integers(1, 2))
)


@given(st.lists(st.tuples(wants, st.sampled_from(["ok", "ok", "lost", "restart"])), max_size=12))
def test_the_broker_always_knows_what_is_wanted(steps):
    """Its side of KIP-227: a session per id, checked epochs, kept as the requests change it."""
    session = FetchSessionHandler()
    known: dict[tuple[TopicPartition, UUID], FetchPosition] = {}
    id = epoch = 0
    for want, fate in steps:
        if fate == "restart":
            id = epoch = 0
        request = session.build(want)
        if request.epoch == 0:
            known = {(p, w.topic_id): w for p, w in request.partitions.items()}
            id, epoch = 77, 1
        elif (request.session_id, request.epoch) == (id, epoch):
            for p, topic_id in request.forgotten.items():
                del known[p, topic_id]
            known |= {(p, w.topic_id): w for p, w in request.partitions.items()}
            epoch += 1
        else:
            assert fate == "restart" or id == 0
            session.handle_error(forget=True)
            continue
        assert known == {(p, w.topic_id): w for p, w in want.items()}
        if fate == "lost":
            session.handle_error()
        else:
            session.handle_response(id)
