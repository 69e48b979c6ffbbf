"""A whole broker: builds all parts, and starts and stops them in order.

    start   log directory locked, addresses bound, ZooKeeper reached, configs read, logs recovered,
            registered, roles received from the controller, clients accepted
    stop    leaders moved, no more requests read, the session closed, requests in flight answered
            (`_shut_down`), logs flushed and marked clean, the lock released

Clients are accepted only once every service they need is running.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kserver.api.requests import Requests
from kserver.api.table import open_session, served_by
from kserver.broker import registration
from kserver.broker.assembly import Assembly
from kserver.broker.observation import BrokerState, Observation
from kserver.broker.registration import Registration
from kserver.cluster_config.configs import overrides_of
from kserver.cluster_config.znode_store import make_persistent
from kserver.config import dynamic
from kserver.config.broker import BrokerConfig
from kserver.config.dynamic import BrokerOverrides
from kserver.config.topic import TopicConfig
from kserver.errors import StorageError
from kserver.log.manager import LogManager
from kserver.metadata import BrokerInfo, ClusterMetadata, MetadataCache
from kserver.model import NO_BROKER, BrokerId, Endpoint
from kserver.network.conversation import Dispatch
from kserver.network.http import HttpServer
from kserver.network.listener import AnyConnection, ConnectionLimits, Listeners, own_name
from kserver.network.quota import ConnectionRates, RateWindow
from kserver.world import World
from kserver.world.embedded import EmbeddedZooKeeper
from kserver.world.zookeeper import ConnectionLost

log = logging.getLogger(__name__)

_KEPT = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""Configs of logs whose topic the cluster does not know, so that their records are kept."""


class Broker:
    """`await run(stop, ready)`: serves from the call of `ready` until the event `stop` is set.

    `sockets` False listens on the loop's own transports instead: a simulated network.
    """

    def __init__(
        self,
        config: BrokerConfig,
        world: World,
        *,
        sockets: bool = True,
        on_bug: Callable[[str, BaseException], None] | None = None,
    ) -> None:
        self.config = config
        """Current config; replaced with each change of the broker's dynamic configs."""
        self._static = config
        self._overrides = BrokerOverrides({}, {})
        self._bound: dict[Endpoint, Endpoint] = {}
        """Bound endpoints by configured endpoint; port 0 is replaced by the port that was free."""
        self._configurable: list[Callable[[BrokerConfig], None]] = []
        """Functions that apply a new config, in this order.  All other parts take `config`, a
        function that returns the current one."""
        self._world = world
        self._sockets = sockets
        self._on_bug = on_bug or _report
        self.endpoints: Sequence[Endpoint] = ()
        """Advertised endpoints, once the broker runs."""
        self.http_address: str | None = None
        """host:port of `http.listener`, once it is open."""
        self.id: BrokerId = NO_BROKER
        self.cluster_id = ""
        self.observation = Observation()

    async def run(self, stop: asyncio.Event, ready: Callable[[], None] = lambda: None) -> None:
        """Start, serve and stop.  Raises ConfigError, StorageError or OSError if the broker cannot
        start. A part that fails later stops the broker, and its error is raised."""
        async with contextlib.AsyncExitStack() as stack:
            logs = await self._lock_logs(stack)
            await self._open_http(stack)
            window = RateWindow(
                self._static.quota_window_num, self._static.quota_window_size_seconds * 1000
            )
            rates = ConnectionRates(window)
            listeners = self._bind(rates, stack)
            alive = await self._connect(logs, stack)
            assembly = Assembly(
                self._world,
                logs,
                self.cluster_id,
                self._own_info(),
                alive,
                rates,
                window,
                lambda: self.config,
                self._configure,
            )
            self._configurable = [
                lambda changed: listeners.configure(_limits(changed)),
                lambda _: self._listen(listeners, alive, assembly.metadata),
                logs.configure,
            ]
            # The configs have to be read before the logs are opened, whose topics have overrides.
            await assembly.configure()
            self.observation.state = BrokerState.RECOVERY
            await logs.open(_topic_configs(assembly.configs.topics, lambda: self.config))
            stack.push_async_callback(logs.close)
            # Logs are recovered before the broker registers: from then on it can become a leader.
            await assembly.join()
            stack.callback(assembly.purgatory.close)
            await self._serve(assembly, listeners, alive, stop, ready)

    async def _lock_logs(self, stack: contextlib.AsyncExitStack) -> LogManager:
        logs = LogManager(self._world, self._static)
        stack.callback(logs.unlock)
        await logs.lock()
        return logs

    async def _open_http(self, stack: contextlib.AsyncExitStack) -> None:
        http = HttpServer(self.observation.pages(self._static.metrics_naming))
        stack.callback(http.close)
        if self._static.http_listener is not None:
            host, _, port = self._static.http_listener.rpartition(":")
            bound = await http.open(host.strip("[]"), int(port))
            self.http_address = f"{host or own_name()}:{bound}"

    def _bind(self, rates: ConnectionRates, stack: contextlib.AsyncExitStack) -> Listeners:
        """Bind the addresses, without accepting connections yet."""
        config = self._static
        listeners = Listeners(_limits(config), rates, self._world.disk, self._open_session)
        stack.callback(listeners.close)
        self._bound = {e: listeners.bind(e) if self._sockets else e for e in config.endpoints}
        self.endpoints = _advertised(config, self._bound.values())
        return listeners

    async def _connect(self, logs: LogManager, stack: contextlib.AsyncExitStack) -> Registration:
        """Connect to ZooKeeper, and verify that the log directories belong to this broker."""
        config, world = self._static, self._world
        zookeeper = world.zookeeper
        if logs.stored_cluster_id is not None and isinstance(zookeeper, EmbeddedZooKeeper):
            zookeeper.check_there(logs.stored_cluster_id)
        try:
            await zookeeper.start()
        except ConnectionLost as error:
            raise StorageError(
                f"no ZooKeeper responds at {config.zookeeper_connect} (zookeeper.connect):"
                " start it, correct the address, or remove the key to use the embedded store"
            ) from error
        stack.push_async_callback(zookeeper.close)
        await make_persistent(zookeeper)
        self.cluster_id = await registration.cluster_id(zookeeper, world.random)
        self.id = await registration.broker_id(zookeeper, config, logs.stored_broker_id)
        logs.identify(self.id, self.cluster_id)
        logs.missing.lost_directories = await registration.note_directories(
            zookeeper, self.id, logs.directories
        )
        return Registration(world, config, self.id, self.endpoints, logs)

    async def _serve(
        self,
        assembly: Assembly,
        listeners: Listeners,
        alive: Registration,
        stop: asyncio.Event,
        ready: Callable[[], None],
    ) -> None:
        """Accept clients until `stop` is set, then answer the requests in flight."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as parts, asyncio.TaskGroup() as requests:
            counted = Requests(self.observation.clock or loop.time, served_by(self._static))
            unanswered: dict[asyncio.Task[None], None] = {}

            def spawn(work: Coroutine[Any, Any, None]) -> None:
                unanswered[task := requests.create_task(work)] = None
                task.add_done_callback(unanswered.pop)

            self._parts, self._requests = assembly.parts(spawn), counted
            self._configurable.append(counted.configure)
            counted.configure(self.config)
            self.observation.observe(self._parts, counted, assembly.group_meters, listeners)
            sampled = self._static.metrics_sample_window_ms, self._static.metrics_num_samples
            running = [
                parts.create_task(work)
                for work in (
                    assembly.run(),
                    alive.run(),
                    listeners.run(),
                    self.observation.run(*sampled),
                )
            ]
            try:
                # The controller gets its roles from itself; any other broker gets them through its
                # listener, so that has to be open first.
                if assembly.controller.is_active:
                    await assembly.wait_for_metadata()
                if self._sockets:
                    listeners.accept()
                else:
                    for endpoint in self._bound:
                        await listeners.open_stream(endpoint)
                if not assembly.controller.is_active:
                    await _unless(stop, assembly.wait_for_metadata())
                self.observation.state = BrokerState.RUNNING
                ready()
                await stop.wait()
                log.info("shutting down")
                self.observation.state = BrokerState.STOPPING
                await self._shut_down(assembly, listeners)
            finally:
                self.observation.state = BrokerState.STOPPING
                # A part that failed ends the tasks that serve requests: let no more in.
                listeners.close()
                assembly.purgatory.close()
            # Requests without a response by now have lost their connection.
            for task in (*running, *unanswered):
                task.cancel()

    async def _shut_down(self, assembly: Assembly, listeners: Listeners) -> None:
        """Leave the cluster, and answer the requests in flight.

        step                             clients                      other brokers
        1 the controller moves leaders   served                       followers are served
        2 no more requests are read      connections stay open        fetches are not answered
        3 coordinators stop              NOT_COORDINATOR              another broker loads them
        4 roles are given up             acks=all: committed, or      this broker does not fetch
                                         NOT_LEADER_OR_FOLLOWER
        5 the session is closed          -                            the registration is gone
          and, meanwhile, requests in    answered within 2 s, then    -
          flight are answered            disconnected

        The logs are flushed and marked clean after that, still under the directory lock: a broker
        with this id on the same directories cannot start before it is released.  The embedded
        store has no other clients, so it is closed last.
        (Kafka: KafkaServer.shutdown, which closes the session after the logs.)
        """
        await assembly.hand_over()
        listeners.stop_reading()
        assembly.resign()
        async with asyncio.TaskGroup() as leaving:
            if not isinstance(self._world.zookeeper, EmbeddedZooKeeper):
                leaving.create_task(self._world.zookeeper.close())
            leaving.create_task(listeners.finish())

    def _configure(self, image: ClusterMetadata) -> None:
        """Apply the dynamic configs of `image` for this broker."""
        overrides = overrides_of(image, self.id)
        if overrides == self._overrides:
            return
        self._overrides = overrides
        self.config, problems = dynamic.merged_as_stored(self._static, overrides)
        for problem in problems:
            log.error("ignoring an invalid dynamic config: %s", problem)
        for name in sorted({*overrides.cluster, *overrides.broker}):
            if dynamic.type_of(name) is None:
                log.warning("ignoring the unknown dynamic config %s", name)
        for configure in self._configurable:
            configure(self.config)

    def _own_info(self) -> BrokerInfo:
        endpoints = {endpoint.listener: endpoint for endpoint in self.endpoints}
        return BrokerInfo(self.id, endpoints, self._static.broker_rack)

    def _listen(self, listeners: Listeners, alive: Registration, metadata: MetadataCache) -> None:
        """Listen at the currently configured addresses, and advertise changes to clients."""
        if not self._sockets or not self._rebind(self.config, listeners):
            return
        if self.observation.state is BrokerState.RUNNING:
            listeners.accept()
        alive.advertise(self.endpoints)
        image = metadata.current
        metadata.update(replace(image, brokers={**image.brokers, self.id: self._own_info()}))

    def _rebind(self, config: BrokerConfig, listeners: Listeners) -> bool:
        """Bind the addresses in `config`; return whether they have changed.  An address that
        cannot be bound is logged, and tried again at the next change."""
        endpoints = config.endpoints
        closed = [endpoint for endpoint in self._bound if endpoint not in endpoints]
        for endpoint in closed:
            listeners.drop(endpoint.listener)
            del self._bound[endpoint]
        added = [endpoint for endpoint in endpoints if endpoint not in self._bound]
        for endpoint in added:
            try:
                self._bound[endpoint] = listeners.bind(endpoint)
            except OSError as error:
                log.error("%s", error)
        before, self.endpoints = self.endpoints, _advertised(config, self._bound.values())
        return bool(closed or added) or self.endpoints != before

    def _open_session(self, endpoint: Endpoint, connection: AnyConnection) -> Dispatch:
        return open_session(endpoint, connection, self._parts, self._requests, self._on_bug)


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Wait for `work`, until `stop` is set."""
    async with asyncio.TaskGroup() as either:
        tasks = [either.create_task(work), either.create_task(stop.wait())]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()


def _report(request: str, bug: BaseException) -> None:
    log.error("%s failed: internal error", request, exc_info=bug)


def _topic_configs(
    overrides_by_topic: Mapping[str, Mapping[str, str]], broker: Callable[[], BrokerConfig]
) -> Callable[[str], TopicConfig]:
    """Return the config of a topic, one object for all its partitions while nothing changes."""
    cached: dict[str, tuple[Mapping[str, str], BrokerConfig, TopicConfig]] = {}

    def of(topic: str) -> TopicConfig:
        overrides, config = overrides_by_topic.get(topic, _KEPT), broker()
        before = cached.get(topic)
        if before is None or before[0] != overrides or before[1] is not config:
            before = cached[topic] = (overrides, config, TopicConfig.stored(overrides, config))
        return before[2]

    return of


def _limits(config: BrokerConfig) -> ConnectionLimits:
    return ConnectionLimits(
        max_connections=config.max_connections,
        max_connections_per_ip=config.max_connections_per_ip,
        max_connections_per_ip_overrides=config.connection_limits,
        max_connection_creation_rate=config.max_connection_creation_rate,
        connections_max_idle_ms=config.connections_max_idle_ms,
        max_frame_bytes=config.socket_request_max_bytes,
        max_request_bytes=config.queued_max_request_bytes,
        send_buffer_bytes=config.socket_send_buffer_bytes,
        receive_buffer_bytes=config.socket_receive_buffer_bytes,
        backlog=config.socket_listen_backlog_size,
    )


def _advertised(config: BrokerConfig, bound: Iterable[Endpoint]) -> tuple[Endpoint, ...]:
    """Return the advertised endpoints; port 0 becomes the bound port, an empty host this
    machine's."""
    ports = {endpoint.listener: endpoint.port for endpoint in bound}
    return tuple(
        replace(
            endpoint,
            host=endpoint.host or own_name(),
            port=endpoint.port or ports.get(endpoint.listener, 0),
        )
        for endpoint in config.advertised_endpoints
    )
