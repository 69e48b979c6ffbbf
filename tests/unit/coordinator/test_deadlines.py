from hypothesis import given
from hypothesis import strategies as st

from kserver.coordinator.deadlines import Deadlines

KEYS = st.integers(0, 5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, st.integers(0, 60)),
        st.tuples(st.just("drop"), KEYS, st.just(0)),
        st.tuples(st.just("pass"), st.just(0), st.integers(0, 20)),
    )
)


@given(STEPS)
def test_each_key_passes_once_when_its_last_deadline_has_come(steps):
    deadlines, model, now = Deadlines(), {}, 0
    for what, key, number in steps:
        if what == "set":
            deadlines.set(key, now + number)
            model[key] = now + number
        elif what == "drop":
            deadlines.drop(key)
            model.pop(key, None)
        else:
            now += number
            passed = {key for key, at in model.items() if at <= now}
            assert sorted(deadlines.passed(now)) == sorted(passed)
            for key in passed:
                del model[key]
        deadlines.check()
        assert len(deadlines) == len(model)
        if model:
            assert deadlines.next_ms <= min(model.values())


def test_those_that_pass_together_come_in_the_order_of_their_times_then_of_their_setting():
    deadlines = Deadlines()
    for key, at in (("c", 5), ("a", 3), ("b", 5)):
        deadlines.set(key, at)
    assert deadlines.passed(5) == ["a", "c", "b"]


def test_a_deadline_that_is_put_off_a_thousand_times_stays_one_entry():
    deadlines = Deadlines()
    for at in range(1000):
        deadlines.set("member", 10_000 + at)
    assert deadlines.next_ms == 10_000
    assert deadlines.passed(10_500) == []
    assert deadlines.next_ms == 10_999
