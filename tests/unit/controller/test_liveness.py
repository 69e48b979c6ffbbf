"""A broker is failed over once for each registration, and only when that is proven."""

import random

import pytest

from kserver.controller.liveness import Action, BrokerLiveness, ControllerWatch, Proof

CONNECT, AGAIN, FAIL_OVER, START, DEPOSE = (
    Action.CONNECT,
    Action.CONNECT_AGAIN,
    Action.FAIL_OVER,
    Action.START,
    Action.DEPOSE,
)
SESSION_S = 10.0
ACTS = ("registered", "unregistered", "closed", "refused", "answered", "not_answered")
WEIGHTS = (1, 1, 2, 3, 1, 1)


def registered():
    broker = BrokerLiveness()
    assert broker.registered(5) == [START]
    return broker


def test_a_killed_process_is_failed_over_at_the_second_refusal():
    broker = registered()
    assert broker.closed(5) == [CONNECT]
    assert broker.refused(5) == [AGAIN]
    assert broker.is_live
    assert broker.refused(5) == [FAIL_OVER]
    assert broker.is_fenced
    assert not broker.is_live
    assert broker.refused(5) == []
    assert broker.unregistered() == [], "it was failed over already"
    assert broker.registered(9) == [START]
    assert broker.is_live


@pytest.mark.parametrize("answer", ["answered", "not_answered"])
def test_a_network_that_blinks_changes_nothing(answer):
    broker = registered()
    broker.closed(5)
    broker.refused(5)
    assert not getattr(broker, answer)(5)
    assert broker.refused(5) == [], "refused without a connection that was closed"
    assert broker.closed(5) == [CONNECT]
    assert broker.refused(5) == [AGAIN]
    assert broker.is_live


def test_without_proof_the_session_decides():
    broker = registered()
    broker.closed(5)
    broker.not_answered(5)
    assert broker.is_live
    assert broker.unregistered() == [FAIL_OVER]
    assert broker.unregistered() == []


def test_a_listener_that_returns_makes_a_broker_that_starts():
    broker = registered()
    broker.closed(5)
    broker.refused(5)
    broker.refused(5)
    broker.not_answered(5)
    assert broker.is_fenced, "no answer proves nothing"
    assert broker.answered(5) == [START]
    assert broker.is_live
    assert broker.answered(5) == []


def test_a_restart_within_one_look_is_a_failover_and_a_start():
    broker = registered()
    assert broker.registered(5) == []
    assert broker.registered(9) == [FAIL_OVER, START]
    for late in (broker.closed, broker.refused, broker.answered):
        assert late(5) == [], "news of the registration before"
    broker.not_answered(5)
    assert broker.closed(9) == [CONNECT]


def prove(seeds, cls=BrokerLiveness):
    """What happens to real processes, and what of it a controller sees, by seed."""
    for seed in seeds:
        chance = random.Random(seed)
        broker, epoch, failed_over, refusals = cls(), 0, True, 0
        for _ in range(200):
            about = epoch if chance.random() < 0.8 else chance.randint(0, epoch)
            act = chance.choices(ACTS, WEIGHTS)[0]
            if act == "registered":
                epoch += chance.randint(0, 1)
                about = epoch
            is_news = about == broker.epoch
            actions = getattr(broker, act)(*(() if act == "unregistered" else (about,))) or []
            if act == "closed" and is_news and CONNECT in actions:
                refusals = 0
            elif act == "refused" and is_news:
                refusals += 1
            elif act in ("answered", "not_answered") and is_news:
                refusals = -1000
            for action in actions:
                if action is FAIL_OVER:
                    assert not failed_over, "failed over twice"
                    assert act != "refused" or refusals == 2, "without proof"
                    failed_over = True
                elif action is START:
                    assert failed_over, "it never was away"
                    failed_over, refusals = False, -1000
            assert broker.is_live == (not failed_over), "nobody was told"


def test_a_failover_is_proven_and_made_once():
    prove(range(500))


class OneRefusalWillDo(BrokerLiveness):
    __slots__ = ()

    def refused(self, epoch):
        return super().refused(epoch) + super().refused(epoch)


class NoAnswerIsRefusal(BrokerLiveness):
    __slots__ = ()

    def not_answered(self, epoch):
        return self.refused(epoch)


class ForgetsTheFence(BrokerLiveness):
    __slots__ = ()

    def unregistered(self):
        self._proof = Proof()
        return super().unregistered()


class BelievesTheLate(BrokerLiveness):
    __slots__ = ()

    def refused(self, _epoch):
        return super().refused(self.epoch)


@pytest.mark.parametrize(
    "planted", [OneRefusalWillDo, NoAnswerIsRefusal, ForgetsTheFence, BelievesTheLate]
)
def test_a_planted_bug_is_found(planted):
    with pytest.raises(AssertionError):
        prove(range(500), planted)


def refuse(watch, now_s):
    watch.closed()
    watch.refused(now_s)
    return watch.refused(now_s)


def test_a_controller_that_is_gone_is_deposed_once():
    watch = ControllerWatch(SESSION_S)
    watch.elected(1)
    assert watch.closed() is CONNECT
    assert watch.refused(0) is AGAIN
    assert watch.refused(0) is DEPOSE
    assert watch.refused(0) is None
    watch.elected(2)
    assert refuse(watch, 1) is DEPOSE


def test_a_broker_that_is_refused_alone_gives_in():
    watch = ControllerWatch(SESSION_S)
    watch.elected(1)
    assert refuse(watch, 0) is DEPOSE
    watch.elected(1)
    assert refuse(watch, 1) is AGAIN
    assert watch.refused(29.9) is AGAIN
    assert watch.refused(30) is DEPOSE
    watch.elected(1)
    assert refuse(watch, 89.9) is AGAIN
    assert watch.refused(90) is DEPOSE
    watch.elected(1)
    watch.answered()
    assert refuse(watch, 91) is DEPOSE, "it was reached since"


def test_a_controller_that_does_not_answer_is_left_to_its_session():
    watch = ControllerWatch(SESSION_S)
    watch.elected(1)
    watch.closed()
    watch.refused(0)
    watch.not_answered()
    assert watch.refused(1) is None
