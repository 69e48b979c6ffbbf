"""The broker as a process: the real world, logging, signals, exit status.

0   stopped by SIGTERM, SIGINT or SIGHUP, everything flushed and marked clean
1   could not start, or a part of it failed; one line on standard error has the reason
130, 143   stopped at once by a second SIGINT or SIGTERM; a SIGHUP does not count, as systemd's
           SendSIGHUP= and shells send one together with the first signal
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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from kserver import __version__, znodes
from kserver.api.broker_loggers import LEVELS, ROOT
from kserver.broker.broker import Broker
from kserver.broker.observation import Observation
from kserver.config.broker import BrokerConfig, user_data_directory
from kserver.config.jaas import parse_jaas
from kserver.config.sections.zookeeper import DIGEST_SCHEME
from kserver.errors import ConfigError, StorageError
from kserver.metrics import catalog
from kserver.metrics.meters import IdleShare
from kserver.metrics.names import Metric
from kserver.model import Endpoint
from kserver.wire import walk
from kserver.world import World, log_lines, process_resources
from kserver.world.clock import WallClock
from kserver.world.disk import OsDisk
from kserver.world.embedded import COORDINATION, EmbeddedZooKeeper
from kserver.world.zookeeper import Login, NoAuth, ZooKeeper, ZooKeeperError, open_to_all

log = logging.getLogger("kserver")

CONNECT = "zookeeper.connect"
VALIDATE = "log.validate.records"


def load(path: str | None, overrides: Sequence[str]) -> BrokerConfig:
    """Load the config from a file, or use the embedded defaults.  Raises ConfigError."""
    if path is not None:
        return _with_absolute_paths(BrokerConfig.load(path, overrides))
    data = user_data_directory(os.environ)
    return _with_absolute_paths(BrokerConfig.embedded(data, overrides))


def _with_absolute_paths(config: BrokerConfig) -> BrokerConfig:
    """Make the log directories absolute, so that DescribeLogDirs and AlterReplicaLogDirs can name
    them."""
    key = "log.dir" if config.log_dirs is None else "log.dirs"
    directories = config.log_directories
    paths = tuple(map(os.path.abspath, directories))
    names: dict[str, str] = {}
    for name, path in zip(directories, paths, strict=True):
        other = names.setdefault(os.path.realpath(path), name)
        if other is not name:
            raise ConfigError(
                f"Invalid value {','.join(directories)} for configuration {key}: {other} and {name}"
                " are the same directory; list it once"
            )
    if paths == directories:
        return config
    explicit = {**config.explicit, "log.dirs": ",".join(paths)}
    cordoned = tuple(map(os.path.abspath, config.cordoned_log_dirs))
    if cordoned:
        explicit["cordoned.log.dirs"] = ",".join(cordoned)
    return replace(config, log_dirs=paths, cordoned_log_dirs=cordoned, explicit=explicit)


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
            login=_login(config),
            access_to=znodes.access_to if config.zookeeper_set_acl else open_to_all,
        )
    return World(clock, disk, zookeeper, random.SystemRandom(), process_resources.boot_id())


def _login(config: BrokerConfig) -> Login | None:
    """Return the credentials for ZooKeeper, if any are configured."""
    if config.zookeeper_sasl_jaas_config is not None:
        options = parse_jaas(config.zookeeper_sasl_jaas_config).options
        return Login(options["username"], options["password"], by_sasl=True)
    if config.zookeeper_auth is not None:
        user, _, password = config.zookeeper_auth.removeprefix(DIGEST_SCHEME).partition(":")
        return Login(user, password, by_sasl=False)
    return None


def run(
    config: BrokerConfig, ready: Callable[[Sequence[Endpoint]], None] = lambda endpoints: None
) -> int:
    """Serve until a signal arrives; return the exit status.  `ready` is called once, when clients
    are accepted, with the advertised endpoints."""
    # Three descriptors per partition and one per connection soon exceed the usual soft limit of
    # 1,024.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    log_lines.set_up(config.log_format, _levels(config.log_level))
    if not (walk.IS_BUILT or VALIDATE in config.explicit):
        config = _without_walk(config)
    for warning in config.warnings:
        log.warning("%s", warning)
    log.info("k %s, data in %s", __version__, ", ".join(config.log_directories))
    try:
        asyncio.run(_serve(config, ready))
    except (ConfigError, StorageError, ZooKeeperError, OSError, BaseExceptionGroup) as failed:
        reasons = _reasons(failed, config)
        if reasons is None:
            raise
        for reason in reasons:
            print(f"k server-start: {reason}", file=sys.stderr)
        return 1
    log.info("stopped")
    return 0


def _without_walk(config: BrokerConfig) -> BrokerConfig:
    """Disable the validation of each record, which takes longer in Python than the rest of an
    append."""
    log.warning(
        "%s=header: record validation was not compiled when k was installed, so records within a"
        " batch are not validated; install a C compiler and then reinstall k, or set %s=full, which"
        " takes 0.3 us per record",
        VALIDATE,
        VALIDATE,
    )
    explicit = {**config.explicit, VALIDATE: "header"}
    return replace(config, log_validate_records="header", explicit=explicit)


def _levels(entries: Sequence[str]) -> dict[str, int]:
    """Return log levels by logger, "" for all.  kazoo's INFO lines are noise here, so it gets
    WARNING."""
    levels = {"kazoo": logging.WARNING}
    for entry in entries:
        name, _, level = entry.rpartition("=")
        levels["" if name == ROOT else name] = LEVELS[level]
    return levels


async def _serve(config: BrokerConfig, on_ready: Callable[[Sequence[Endpoint]], None]) -> None:
    broker = Broker(config, real_world(config))
    _observe_process(broker.observation)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    signals = 0

    def request_stop(number: int) -> None:
        nonlocal signals
        stop.set()
        signals += number != signal.SIGHUP
        if signals > 1:
            os._exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # nohup makes SIGHUP ignored, which Java respects too.
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, request_stop, number)

    def ready() -> None:
        # Objects created until now live as long as the process, so exclude them from collections.
        gc.collect()
        gc.freeze()
        for line in _summary(broker, config):
            log.info("%s", line)
        on_ready(broker.endpoints)

    await broker.run(stop, ready)


def _summary(broker: Broker, config: BrokerConfig) -> Iterator[str]:
    """Yield lines that summarize the start; the last one says that the broker has started."""
    where = f"embedded in {config.log_directories[0]}/{COORDINATION}"
    if config.zookeeper_connect is not None:
        where = f"ZooKeeper at {config.zookeeper_connect}"
    yield f"broker {broker.id} of cluster {broker.cluster_id}, metadata store: {where}"
    yield from broker.observation.directories()
    for endpoint in broker.endpoints:
        yield f"listening on {endpoint}"
    if broker.http_address is not None:
        yield f"metrics on http://{broker.http_address}/metrics, health on /healthz and /readyz"
    age_s = process_resources.age_s()
    after = "" if age_s is None else f" in {age_s * 1000:.0f} ms"
    yield f"[KafkaServer id={broker.id}] started{after}"


def _observe_process(observation: Observation) -> None:
    """Add metrics of the process as a whole, and of the thread that runs its loop."""

    def gauge(metric: Metric, read: Callable[[], float | None]) -> None:
        metrics.add(metric, lambda: [((), value)] if (value := read()) is not None else [])

    def part(read: Callable[[], tuple[int, int] | None], at: int) -> Callable[[], int | None]:
        return lambda: None if (values := read()) is None else values[at]

    metrics = observation.metrics
    gauge(catalog.CPU, process_resources.cpu_s)
    gauge(catalog.VIRTUAL, part(process_resources.memory_bytes, 0))
    gauge(catalog.RESIDENT, part(process_resources.memory_bytes, 1))
    gauge(catalog.OPEN_FILES, process_resources.open_files)
    gauge(catalog.MAX_FILES, process_resources.most_files)
    gauge(catalog.START_TIME, process_resources.began_s)
    gauge(catalog.DISK_READ, part(process_resources.disk_bytes, 0))
    gauge(catalog.DISK_WRITTEN, part(process_resources.disk_bytes, 1))
    observation.clock = process_resources.monotonic_s
    idle = IdleShare(process_resources.monotonic_s, process_resources.thread_cpu_s)
    observation.windowed.append(idle)
    gauge(catalog.NETWORK_IDLE, idle.read)
    gauge(catalog.HANDLER_IDLE, idle.read)


def _reasons(failed: BaseException, config: BrokerConfig) -> list[str] | None:
    """Return error lines for the user; None for a bug, which is shown with its traceback."""
    if isinstance(failed, NoAuth):
        key = "zookeeper.sasl.jaas.config"
        if config.zookeeper_sasl_jaas_config is None:
            key = "zookeeper.auth"
        where = failed.path or "/"
        return [
            f"ZooKeeper at {config.zookeeper_connect} denies this broker access to {where}:"
            f" correct {key}, the users configured in ZooKeeper, or the ACL of {where}"
        ]
    if not isinstance(failed, BaseExceptionGroup):
        expected = isinstance(failed, ConfigError | StorageError | ZooKeeperError | OSError)
        return [str(failed)] if expected else None
    each = [_reasons(error, config) for error in failed.exceptions]
    return None if None in each else [line for lines in each for line in lines or ()]
