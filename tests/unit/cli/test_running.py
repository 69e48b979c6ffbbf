"""Work runs to its end, or to the end that it is given; every failure has its reason and status."""

import asyncio
import os
import signal

import pytest

from kcli.client.errors import ClusterUnreachable, NoOffset, TimedOut
from kcli.options import Refused
from kcli.running import granted, raise_first, reason, run, status_of
from kserver.errors import ConfigError, ErrorCode, KafkaError


async def forever():
    await asyncio.Event().wait()


def test_work_gives_its_result():
    async def work():
        return 7

    assert run(work(), None) == 7


def test_the_time_limit_is_named():
    with pytest.raises(TimeoutError, match=r"not done within 0\.01 s"):
        run(forever(), 0.01)


def test_a_timeout_of_the_work_s_own_is_let_through():
    async def work():
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        run(work(), None)


def test_sigterm_ends_the_work_in_order():
    closed = []

    async def work():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            await forever()
        finally:
            closed.append(True)

    with pytest.raises(SystemExit) as end:
        run(work(), None)
    assert (end.value.code, closed) == (143, [True])


@pytest.mark.parametrize(
    ("error", "text", "status"),
    [
        (KafkaError(ErrorCode.invalid_partitions, "too few"), "too few", 1),
        (KafkaError(ErrorCode.invalid_partitions), "Number of partitions is below 1.", 1),
        (KafkaError(ErrorCode.invalid_record), "invalid_record", 1),
        (Refused("no"), "no", 1),
        (ConfigError("bad"), "bad", 1),
        (NoOffset([]), "Undefined offset with no reset policy for partitions: []", 1),
        (TimedOut("late"), "late", 124),
        (
            ClusterUnreachable("listTopics"),
            "Timed out waiting for a node assignment. Call: listTopics",
            124,
        ),
    ],
)
def test_every_failure_has_its_reason_and_status(error, text, status):
    assert (reason(error), status_of(error)) == (text, status)


def test_the_first_refusal_is_raised():
    first = KafkaError(ErrorCode.invalid_topic_exception, "first")
    with pytest.raises(KafkaError, match="first"):
        raise_first({"a": None, "b": first, "c": KafkaError(ErrorCode.invalid_config)})
    raise_first({"a": None, "b": 1})
    assert granted(5) == 5
