"""Table of the APIs that this broker serves, in key order, and the dispatch from frame to handler.

ApiVersions lists this table: an unfinished API is not in it, since clients use at once every API
that is listed.  A module is one of

    hot       `handle_frame(header, frame, at, session, parts)`: no task, answers or parks at once
    plain     `async handle(request, context)`: runs as a task, returns kio's response or None; its
              connection waits for it

Left out, each with its reason:

    SCRAM (50, 51)                         to come with security, as do SASL and ACLs (17, 29-31,
                                           36), which are served to report that there are none
    delegation tokens (38-41)              a cluster of this size authenticates its clients itself
    client telemetry (71, 72)              the broker does not collect client metrics
    KRaft (52-55, 58, 59, 62-64, 70, 73, 80-82)
                                           coordination is ZooKeeper's protocol here
    share and streams groups (76-79, 83-92)
                                           not planned
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from kserver.api import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    allocate_producer_ids,
    alter_client_quotas,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    controlled_shutdown,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leader_and_isr,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl_authenticate,
    sasl_handshake,
    stop_replica,
    sync_group,
    throttling,
    txn_offset_commit,
    update_features,
    update_metadata,
    write_txn_markers,
)
from kserver.api.context import Context, Parts, Session
from kserver.api.requests import Requests
from kserver.config.broker import BrokerConfig
from kserver.errors import NotReady, ProtocolError
from kserver.model import Endpoint
from kserver.network.conversation import Dispatch, Pending, Response, ResponseData
from kserver.network.listener import AnyConnection
from kserver.wire.codec import (
    RequestHeader,
    api_name,
    read_request,
    read_request_header,
    write_response,
)
from kserver.wire.control import ControlMessage, write_control
from kserver.world.zookeeper import ConnectionLost, SessionExpired

log = logging.getLogger(__name__)

MODULES: tuple[ModuleType, ...] = (
    produce,
    fetch,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    find_coordinator,
    join_group,
    heartbeat,
    leave_group,
    sync_group,
    describe_groups,
    list_groups,
    sasl_handshake,
    api_versions,
    create_topics,
    delete_topics,
    delete_records,
    init_producer_id,
    offset_for_leader_epoch,
    add_partitions_to_txn,
    add_offsets_to_txn,
    end_txn,
    write_txn_markers,
    txn_offset_commit,
    describe_acls,
    create_acls,
    delete_acls,
    describe_configs,
    alter_configs,
    alter_replica_log_dirs,
    describe_log_dirs,
    sasl_authenticate,
    create_partitions,
    delete_groups,
    elect_leaders,
    incremental_alter_configs,
    alter_partition_reassignments,
    list_partition_reassignments,
    offset_delete,
    describe_client_quotas,
    alter_client_quotas,
    update_features,
    describe_cluster,
    describe_producers,
    describe_transactions,
    list_transactions,
    consumer_group_heartbeat,
    consumer_group_describe,
    list_config_resources,
    describe_topic_partitions,
)

BETWEEN_BROKERS: tuple[ModuleType, ...] = (
    leader_and_isr,
    stop_replica,
    update_metadata,
    alter_partition,
    allocate_producer_ids,
    controlled_shutdown,
)
"""APIs served on `inter.broker.listener.name` of a broker that others may join."""

HotHandler = Callable[[RequestHeader, memoryview, int, Session, Parts], Response]
PlainHandler = Callable[[Any, Context], Coroutine[Any, Any, Any]]


class ApiEntry(NamedTuple):
    versions: range
    hot: HotHandler | None
    plain: PlainHandler | None
    message: type[ControlMessage] | None
    """Class of the request, if kio has none."""


def _table(modules: Sequence[ModuleType]) -> Mapping[int, ApiEntry]:
    return {
        module.KEY: ApiEntry(
            module.VERSIONS,
            getattr(module, "handle_frame", None),
            getattr(module, "handle", None),
            getattr(module, "MESSAGE", None),
        )
        for module in sorted(modules, key=lambda module: module.KEY)
    }


def _versions(table: Mapping[int, ApiEntry]) -> Mapping[int, range]:
    return {key: entry.versions for key, entry in table.items()}


TABLE = _table(MODULES)
TABLE_BETWEEN_BROKERS = _table((*MODULES, *BETWEEN_BROKERS))
SERVED = _versions(TABLE)
SERVED_BETWEEN_BROKERS = _versions(TABLE_BETWEEN_BROKERS)


def served_by(config: BrokerConfig) -> Mapping[int, range]:
    """Return the versions by API key that any listener of the broker serves."""
    return SERVED if config.zookeeper_connect is None else SERVED_BETWEEN_BROKERS


def open_session(
    endpoint: Endpoint,
    connection: AnyConnection,
    parts: Parts,
    requests: Requests,
    on_bug: Callable[[str, BaseException], None],
) -> Dispatch:
    """Return the dispatch function of one connection: a frame in, its response out.

    It raises ProtocolError.  An unexpected exception in a handler is a bug: it closes that
    connection only, and `on_bug` is called with the request's name.
    """
    table, versions, config = TABLE, SERVED, parts.config()
    if endpoint.listener == config.inter_broker_listener:
        versions = served_by(config)
        table = TABLE if versions is SERVED else TABLE_BETWEEN_BROKERS
    session = Session(endpoint, connection.address, connection.throttle, versions)
    clock = requests.clock
    meters = requests.meters

    def dispatch(frame: memoryview) -> Response:
        # The request came with the connection's last bytes, whose time is known.  The handler of a
        # throttled connection changes it.
        began_s = connection.last_active_s
        header, at = read_request_header(frame)
        # Unpacked at once: reading a field of a named tuple by name takes three times as long.
        key, version, _, client_id = header
        entry = table.get(key)
        if entry is None or version not in entry.versions:
            if key == api_versions.KEY:
                return api_versions.refuse_version(header)
            # As in Kafka: a request for a version that is not listed closes the connection.
            raise ProtocolError(f"{api_name(key)} v{version} is not served")
        _, hot, plain, message = entry
        if hot is not None:
            try:
                response = hot(header, frame, at, session, parts)
            except ProtocolError:
                raise
            except Exception as bug:
                on_bug(_named(header, session), bug)
                raise ProtocolError("internal error") from bug
            if response.__class__ is Pending:
                assert isinstance(response, Pending)
                if not response.ready:
                    watch(response, header, len(frame), began_s)
                    return response
            took_s = clock() - began_s
            meters[key].add(version, took_s)
            if took_s >= requests.slow_s:
                data = response.data if isinstance(response, Pending) else response
                log_slow(header, len(frame), data, took_s, took_s)
            return response
        assert plain is not None
        request = (
            read_request(header, frame, at)
            if message is None
            else message.decode(version, frame[at:])
        )
        pending = Pending(exclusive=True)
        watch(pending, header, len(frame), began_s)
        context = Context(parts, session, version, client_id)
        parts.spawn(run(plain, request, context, header, pending))
        return pending

    def watch(pending: Pending, header: RequestHeader, size: int, began_s: float) -> None:
        handled_s = clock() - began_s

        def completed(response: ResponseData | None) -> None:
            took_s = clock() - began_s
            meters[header.api_key].add(header.api_version, took_s)
            if took_s >= requests.slow_s:
                log_slow(header, size, response, took_s, handled_s)

        pending.on_complete = completed

    def log_slow(
        header: RequestHeader,
        size: int,
        response: ResponseData | None,
        took_s: float,
        handled_s: float,
    ) -> None:
        listener = endpoint.listener
        requests.log_slow(header, session.address, listener, size, response, took_s, handled_s)

    async def run(
        handle: PlainHandler,
        request: Any,
        context: Context,
        header: RequestHeader,
        pending: Pending,
    ) -> None:
        try:
            work = handle(request, context)
            if parts.quotas.request is None:
                response = await work
            else:
                response = await throttling.timed(work, header, session, parts)
            write = write_control if isinstance(response, ControlMessage) else write_response
            frame = write(header.api_key, header.api_version, header.correlation_id, response)
        except (ConnectionLost, SessionExpired) as error:
            # The sender retries on its next connection.
            log.warning("%s not handled, ZooKeeper failed: %r", _named(header, session), error)
            connection.close("ZooKeeper failed")
            return
        except NotReady as error:
            log.info("%s not handled: %s", _named(header, session), error)
            connection.close(str(error))
            return
        except Exception as bug:
            on_bug(_named(header, session), bug)
            connection.close("internal error")
            return
        pending.complete(frame)

    return dispatch


def _named(header: RequestHeader, session: Session) -> str:
    return (
        f"{api_name(header.api_key)} v{header.api_version} from {session.address}"
        f" (client id {header.client_id!r})"
    )
