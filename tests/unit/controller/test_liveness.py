"""A process is believed gone only when that is proven."""

import random

import pytest

from kserver.controller.liveness import ControllerWatch, Liveness, Proof

SESSION_S = 10.0
ACTS = ("closed", "refused", "answered", "not_answered")
WEIGHTS = (2, 3, 1, 1)


def after(*acts, proof=None):
    proof = proof or Proof()
    for act in acts:
        getattr(proof, act)()
    return proof.state


@pytest.mark.parametrize(
    ("acts", "state"),
    [
        ("closed", Liveness.SUSPECTED),
        ("closed refused", Liveness.REFUSED),
        ("closed refused refused", Liveness.GONE),
        ("refused refused", Liveness.CONNECTED),
        ("closed answered", Liveness.CONNECTED),
        ("closed refused answered refused", Liveness.CONNECTED),
        ("closed not_answered", Liveness.CONNECTED),
        ("closed refused not_answered closed refused", Liveness.REFUSED),
        ("closed refused refused not_answered", Liveness.GONE),
        ("closed refused refused closed refused", Liveness.GONE),
        ("closed refused refused answered", Liveness.CONNECTED),
    ],
)
def test_each_line_of_the_table(acts, state):
    assert after(*acts.split()) is state


def prove(seeds, cls=Proof):
    """Two refusals in a row after the end of a connection prove it, and nothing else does."""
    for seed in seeds:
        chance = random.Random(seed)
        proof, refusals, is_open = cls(), 0, True
        for _ in range(200):
            act = chance.choices(ACTS, WEIGHTS)[0]
            was_gone = proof.is_gone
            getattr(proof, act)()
            if act == "closed":
                refusals, is_open = (0, False) if is_open else (refusals, False)
            elif act == "refused":
                refusals += not is_open
            elif act == "answered" or not was_gone:
                refusals, is_open = 0, True
            assert proof.is_gone == (refusals >= 2), (seed, act)


def test_only_two_refusals_in_a_row_prove_it():
    prove(range(500))


class OneRefusalWillDo(Proof):
    __slots__ = ()

    def refused(self):
        super().refused()
        super().refused()


class NoAnswerIsRefusal(Proof):
    __slots__ = ()

    def not_answered(self):
        self.refused()


class NoAnswerIsAnAnswer(Proof):
    __slots__ = ()

    def not_answered(self):
        self.answered()


class RefusedOutOfTheBlue(Proof):
    __slots__ = ()

    def refused(self):
        self.closed()
        super().refused()


@pytest.mark.parametrize(
    "planted", [OneRefusalWillDo, NoAnswerIsRefusal, NoAnswerIsAnAnswer, RefusedOutOfTheBlue]
)
def test_a_planted_bug_is_found(planted):
    with pytest.raises(AssertionError):
        prove(range(500), planted)


def is_deposed(watch, now_s):
    after("closed", "refused", "refused", proof=watch)
    return watch.is_gone and watch.may_depose(now_s)


def test_a_controller_that_is_gone_is_deposed_once():
    watch = ControllerWatch(SESSION_S)
    watch.elected(1)
    assert is_deposed(watch, 0)
    watch.elected(2)
    assert is_deposed(watch, 1)


def test_a_broker_that_is_refused_alone_gives_in():
    watch = ControllerWatch(SESSION_S)
    watch.elected(1)
    assert is_deposed(watch, 0)
    watch.elected(1)
    assert not is_deposed(watch, 1)
    assert watch.state is Liveness.REFUSED, "it is looked for again"
    assert not is_deposed(watch, 29.9)
    assert is_deposed(watch, 30)
    watch.elected(1)
    assert not is_deposed(watch, 89.9)
    assert is_deposed(watch, 90)
    watch.elected(1)
    watch.answered()
    assert is_deposed(watch, 91), "it was reached since"


def test_brokers_that_are_elected_in_turn_are_each_held_to_their_own_wait():
    watch = ControllerWatch(SESSION_S)
    deposed = []
    for number in range(20):
        watch.elected(1 + number % 2)
        if is_deposed(watch, number):
            deposed.append(watch.broker)
        assert watch.is_held_back == (number > 1)
    assert deposed == [1, 2]
    watch.elected(3)
    assert not watch.is_held_back
