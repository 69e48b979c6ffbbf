"""The ZooKeeper server as a process: disk and clock, logging, signals, exit status.

0   stopped by SIGTERM, SIGINT or SIGHUP
1   could not start, or the disk failed: one line on standard error has the reason
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import random
import signal
import sys
from collections.abc import Callable

from kserver.config import properties
from kserver.errors import ConfigError, StorageError
from kserver.world import log_lines, process_resources
from kserver.world.clock import WallClock
from kserver.world.disk import OsDisk
from kserver.zookeeper_server.server import VERSION, ZooKeeperServer
from kserver.zookeeper_server.settings import Settings, parse

log = logging.getLogger("kserver.zookeeper_server")


def load(path: str) -> Settings:
    """Read a file of settings. Raises ConfigError."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    return parse(properties.decode(data), path)


def run(settings: Settings, ready: Callable[[str, int], None] = lambda host, port: None) -> int:
    """Serve until a signal and return the exit status. `ready` is called once, with address and
    port, when clients are accepted.
    """
    log_lines.set_up("text", {})
    for warning in settings.warnings:
        log.warning("%s", warning)
    failed = False
    try:
        asyncio.run(_serve(settings, ready))
    except* (StorageError, OSError) as group:
        for error in group.exceptions:
            print(f"k zookeeper-server-start: {_reason(error, settings)}", file=sys.stderr)
        failed = True
    if failed:
        return 1
    log.info("stopped")
    return 0


async def _serve(settings: Settings, on_ready: Callable[[str, int], None]) -> None:
    environment = {
        "zookeeper.version": VERSION,
        "host.name": os.uname().nodename,
        "os.name": os.uname().sysname,
        "os.arch": os.uname().machine,
        "os.version": os.uname().release,
        "user.dir": os.getcwd(),
    }
    server = ZooKeeperServer(settings, OsDisk(), WallClock(), random.SystemRandom(), environment)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # nohup ignores SIGHUP, which Java respects too.
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stop.set)

    def ready(host: str, port: int) -> None:
        age_s = process_resources.age_s()
        after = "" if age_s is None else f" in {age_s * 1000:.0f} ms"
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        log.info("ZooKeeper listening on %s%s, data in %s", where, after, settings.data_dir)
        on_ready(host, port)

    await server.run(stop, ready)


def _reason(error: BaseException, settings: Settings) -> str:
    if isinstance(error, BlockingIOError):
        return f"{settings.data_dir} is used by another server"
    remedy = {
        errno.EADDRINUSE: "stop the process that listens there, or set another clientPort",
        errno.EADDRNOTAVAIL: "set clientPortAddress to an address of this machine",
        errno.EACCES: "set a clientPort that this user may open",
    }.get(getattr(error, "errno", None) or 0)
    if remedy is not None and isinstance(error, OSError) and error.filename is None:
        where = f"{settings.address or '*'}:{settings.port}"
        # asyncio's own text has the address twice and no remedy.
        return f"cannot listen at {where}: {os.strerror(error.errno or 0)}; {remedy}"
    return str(error)
