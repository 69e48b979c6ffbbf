"""What readers make of a cluster that says that what they read is not there."""

from __future__ import annotations

import pytest

from kserver.wire.api_key import ApiKey

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from kcli.spark.logs import GONE_AFTER_S, Logs
from kcli.spark.offset_ranges import DataLost, KafkaOffsetRange
from kcli.spark.options import batch_options
from kcli.spark.range_fetcher import Fetch
from kserver.errors import ConfigError, ErrorCode
from tests.support.consuming import ID, OK, T0, T1, Server
from tests.support.loop import SimLoop, simulate
from tests.support.scripted_broker import metadata

LED = (0, 1)
"""By broker 0 in epoch 1."""


def forgetful(server: Server, *forgotten, until_s: float) -> None:
    """The broker tells this of topic t until then."""

    def answer(request):
        topic = forgotten if server.loop.time() < until_s else (OK, LED, LED)
        return metadata(server.broker, topics=[("t", *topic)])(request)

    server.broker.on(ApiKey.METADATA, answer)


def run(scenario, **given: str):
    options = {"kafka.bootstrap.servers": "broker-0:9092"} | given

    async def main(loop: SimLoop):
        server = Server(loop)
        server.logs[T0].append(5)
        await server.broker.start()
        return await scenario(server, batch_options(options))

    return simulate(main, 1)


SUBSCRIBED = {"subscribe": "t"}
UNKNOWN = (ErrorCode.unknown_topic_or_partition,)
ONE = (OK, LED)


async def fetched(options, partition=T0) -> int | None:
    async with Fetch(options, [KafkaOffsetRange(partition, 0, 5, ID)]) as fetch:
        found = await fetch.next()
        return None if found is None else found.batches[-1].next_offset


def test_ranges_are_read_one_after_another_and_the_topic_asked_for_once():
    async def scenario(server, options):
        server.logs[T1].append(3)
        server.logs[T1].append(4)
        found = []
        wanted = [
            KafkaOffsetRange(T0, 1, 4, ID),
            KafkaOffsetRange(T0, 4, 4, ID),
            KafkaOffsetRange(T1, 2, 7, ID),
        ]
        async with Fetch(options, wanted) as fetch:
            while (one := await fetch.next()) is not None:
                found.append((one.range, one.start, one.batches[-1].next_offset))
        assert found == [(wanted[0], 1, 5), (wanted[2], 2, 7)]
        assert len(server.broker.asked(ApiKey.METADATA)) == 1
        assert len(server.fetches) == 2

    run(scenario, **SUBSCRIBED)


def test_a_broker_that_has_not_heard_of_a_topic_yet_is_asked_again():
    async def scenario(server, options):
        forgetful(server, *UNKNOWN, until_s=server.loop.time() + GONE_AFTER_S / 2)
        assert await fetched(options) == 5

    run(scenario, **SUBSCRIBED)


@pytest.mark.parametrize("forgotten", [UNKNOWN, ONE])
def test_what_stays_unknown_is_gone(forgotten):
    async def scenario(server, options):
        server.logs[T1].append(5)
        began_s = server.loop.time()
        forgetful(server, *forgotten, until_s=began_s + 10 * GONE_AFTER_S)
        with pytest.raises(DataLost, match="partition t-1 was deleted"):
            await fetched(options, T1)
        assert GONE_AFTER_S <= server.loop.time() - began_s < 2 * GONE_AFTER_S

    run(scenario, **SUBSCRIBED)


def test_the_rest_of_what_is_gone_is_passed_over_on_request():
    async def scenario(server, options):
        forgetful(server, *UNKNOWN, until_s=server.loop.time() + 10 * GONE_AFTER_S)
        assert await fetched(options) is None

    run(scenario, **SUBSCRIBED, failOnDataLoss="false")


@pytest.mark.parametrize(
    "wanted", [SUBSCRIBED, {"assign": '{"t":[0,1]}'}, {"subscribePattern": "t"}]
)
@pytest.mark.parametrize("forgotten", [UNKNOWN, ONE])
def test_partitions_that_were_known_are_not_given_up_at_once(wanted, forgotten):
    async def scenario(server, options):
        async with Logs(options) as logs:
            began_s = server.loop.time()
            forgetful(server, *forgotten, until_s=began_s + GONE_AFTER_S / 2)
            assert await logs.partitions([T0, T1]) == {T0: ID, T1: ID}
            forgetful(server, *forgotten, until_s=server.loop.time() + 10 * GONE_AFTER_S)
            began_s = server.loop.time()
            assert T1 not in await logs.partitions([T0, T1])
            assert GONE_AFTER_S <= server.loop.time() - began_s < 2 * GONE_AFTER_S

    run(scenario, **wanted)


def test_what_nobody_knew_is_refused_or_missing_at_once():
    async def scenario(server, options):
        forgetful(server, *UNKNOWN, until_s=server.loop.time() + GONE_AFTER_S)
        began_s = server.loop.time()
        async with Logs(options) as logs:
            with pytest.raises(ConfigError, match="option subscribe names t, which does not exist"):
                await logs.partitions()
            assert await logs.partitions([]) == {}
        assert server.loop.time() - began_s < 1

    run(scenario, **SUBSCRIBED)
