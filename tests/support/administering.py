"""The admin client with scripted brokers, in virtual time."""

from __future__ import annotations

from random import Random

from kcli.client.admin.admin import Admin
from kcli.client.config import AdminConfig
from kserver.wire.api_key import ApiKey
from tests.support.loop import SimLoop, simulate
from tests.support.scripted_broker import ScriptedBroker, metadata


def run(scenario, *, brokers: int = 1, **settings: str):
    async def main(loop: SimLoop):
        started = [ScriptedBroker(loop, f"broker-{n}", id=n) for n in range(brokers)]
        for broker in started:
            broker.on(ApiKey.METADATA, metadata(*started))
            await broker.start()
        given = {"bootstrap.servers": "broker-0:9092", "default.api.timeout.ms": "10000"}
        config = AdminConfig.of(given | {k.replace("_", "."): v for k, v in settings.items()})
        async with Admin(config, random=Random(1)) as admin:
            return await scenario(admin, *started)

    return simulate(main, 1)
