"""The broker as a process: the real world, logging, signals, exit status.

0   stopped by SIGTERM or SIGINT, everything flushed and marked clean
1   could not start, or a part of it failed: one line on standard error says why
130, 143   stopped at once by a second signal
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import resource
import signal
import sys
from collections.abc import Sequence

from kserver import __version__
from kserver.broker import Broker
from kserver.config.broker import BrokerConfig, user_data_directory
from kserver.errors import ConfigError, StorageError
from kserver.world import World
from kserver.world.clock import WallClock
from kserver.world.disk import OsDisk
from kserver.world.embedded import EmbeddedZooKeeper
from kserver.world.zookeeper import ZooKeeper, ZooKeeperError

log = logging.getLogger("kserver")

COORDINATION = "coordination.msgpack"
"""The embedded coordination store, in the first log directory."""
CONNECT = "zookeeper.connect"


def load(path: str | None, overrides: Sequence[str]) -> BrokerConfig:
    """The configuration of a start: from a file, or the embedded defaults.  Raises ConfigError."""
    if path is not None:
        return BrokerConfig.load(path, overrides)
    return BrokerConfig.embedded(user_data_directory(os.environ), overrides)


def real_world(config: BrokerConfig) -> World:
    clock, disk = WallClock(), OsDisk()
    if config.zookeeper_connect is None:
        path = f"{config.log_directories[0]}/{COORDINATION}"
        zookeeper: ZooKeeper = EmbeddedZooKeeper(disk, path, clock)
    else:
        from kserver.world.kazoo import KazooZooKeeper

        zookeeper = KazooZooKeeper(
            config.zookeeper_connect,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            connection_timeout_ms=config.zookeeper_connection_timeout_ms
            or config.zookeeper_session_timeout_ms,
        )
    return World(clock, disk, zookeeper, random.SystemRandom())


def run(config: BrokerConfig) -> int:
    """Serve until a signal; the exit status."""
    # Three descriptors a partition and one a connection soon pass the usual soft limit of 1,024.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stdout,
        format="[%(asctime)s] %(levelname)s %(message)s (%(name)s)",
    )
    logging.getLogger("kazoo").setLevel(logging.WARNING)
    for warning in config.warnings:
        log.warning("%s", warning)
    log.info("k %s, data in %s", __version__, ", ".join(config.log_directories))
    try:
        asyncio.run(_serve(config))
    except (ConfigError, StorageError, ZooKeeperError, OSError, BaseExceptionGroup) as failed:
        reasons = _reasons(failed)
        if reasons is None:
            raise
        for reason in reasons:
            print(f"k server-start: {reason}", file=sys.stderr)
        return 1
    log.info("stopped")
    return 0


async def _serve(config: BrokerConfig) -> None:
    broker = Broker(config, real_world(config))
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def asked_to_stop(number: int) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked_to_stop, number)

    def ready() -> None:
        # What was made up to here lives as long as the process: no collection need walk it again.
        gc.collect()
        gc.freeze()
        for endpoint in broker.endpoints:
            log.info("listening on %s", endpoint)
        log.info("[KafkaServer id=%d] started", broker.id)

    await broker.run(stop, ready)


def _reasons(failed: BaseException) -> list[str] | None:
    """What to tell the user; None for a bug, which deserves its traceback."""
    if not isinstance(failed, BaseExceptionGroup):
        expected = isinstance(failed, ConfigError | StorageError | ZooKeeperError | OSError)
        return [str(failed)] if expected else None
    each = [_reasons(one) for one in failed.exceptions]
    return None if None in each else [line for lines in each for line in lines or ()]
