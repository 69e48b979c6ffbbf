"""Kafka's znodes: their paths, and their data as written by Kafka 3.9 in ZooKeeper mode.

Pure: paths, encode and decode; no I/O.

    /brokers/ids/N                        a live broker (ephemeral)
    /brokers/seqid                        its version is used to generate broker ids
    /brokers/topics/T                     topic id, and the replicas of every partition
    /brokers/topics/T/partitions/P/state  leader, epochs, in-sync replicas
    /cluster/id
    /config/topics/T, /config/brokers/N   overrides; `<default>` is for all brokers
    /config/groups/G                      overrides of a consumer group
    /config/clients/C, /config/users/U, /config/users/U/clients/C, /config/ips/A
                                          quotas; names URL-encoded, `<default>` for all others
    /config/changes/config_change_n       names a config that brokers have to read again
    /controller, /controller_epoch        the controller (ephemeral), and its epoch
    /admin/delete_topics/T                T is to be deleted
    /admin/preferred_replica_election     partitions whose preferred leader is to be elected
    /admin/reassign_partitions            partitions with their new replicas
    /isr_change_notification/...          partitions whose ISR was written by a broker
    /log_dir_event_notification/...       a broker with a failed disk
    /broker_log_dirs/N                    the ids and paths of a broker's log directories
    /latest_producer_id_block             the block of producer ids allocated last
    /consumers/G/ids/C                    a member of a group that balances itself, with its
                                          subscription (ephemeral); Kafka 0.8 and the first paper
    /consumers/G/owners/T/P               thread of a member that reads a partition (ephemeral)
    /consumers/G/offsets/T/P              the next offset to read, as text

Keys are in the order in which Kafka 3.9.2 writes them, which is that of Scala's maps; partitions
are sorted.  Older versions of a znode are read too.  Decoding raises UnreadableZnode if the bytes
are not what Kafka would have written.  (Kafka: kafka.zk.ZkData, KafkaZkClient.)
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from kserver.errors import UnreadableZnode
from kserver.model import (
    BrokerId,
    Endpoint,
    LeaderAndIsr,
    Offset,
    ProducerId,
    TopicPartition,
)
from kserver.world.zookeeper import Access

BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
TOPICS = "/brokers/topics"
CLUSTER_ID = "/cluster/id"
CONSUMERS = "/consumers"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = f"{CONFIG_CHANGES}/config_change_"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
DELETE_TOPICS = "/admin/delete_topics"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
ISR_CHANGES = "/isr_change_notification"
ISR_CHANGE_PREFIX = f"{ISR_CHANGES}/isr_change_"
LOG_DIR_EVENTS = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX = f"{LOG_DIR_EVENTS}/log_dir_event_"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
BROKER_LOG_DIRS = "/broker_log_dirs"
"""Not in Kafka, where the controllers store the directory of each replica (KIP-858)."""
FEATURES = "/finalized_features"
"""Not Kafka's /feature, but in its format: a broker of 3.x stops if that names an unknown feature,
and it knows none."""

TOPIC_CONFIGS = "topics"
BROKER_CONFIGS = "brokers"
GROUP_CONFIGS = "groups"
CLIENT_CONFIGS = "clients"
USER_CONFIGS = "users"
IP_CONFIGS = "ips"
DEFAULT_ENTITY = "<default>"

PERSISTENT_PATHS = (
    CONSUMERS,
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE,
    ISR_CHANGES,
    LOG_DIR_EVENTS,
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
    "/config/groups",
)
"""Paths that each broker creates at its start, without data, if they are missing.  Kafka also
creates PRODUCER_ID_BLOCK, but with null data instead of empty data, which it could not read."""


SENSITIVE_PATHS = ("/config/users", "/config/brokers", "/delegation_token")
"""Paths below which passwords are stored, in any form."""


def access_to(path: str) -> Access:
    """Return the access of clients other than brokers, with `zookeeper.set.acl` (Kafka:
    ZkData.defaultAcls)."""
    if path == CONSUMERS:
        return Access.ALL  # written by members of groups that balance themselves
    return Access.NONE if path.startswith(SENSITIVE_PATHS) else Access.READ


def broker_path(broker: BrokerId) -> str:
    return f"{BROKER_IDS}/{broker}"


def log_dirs_path(broker: BrokerId) -> str:
    return f"{BROKER_LOG_DIRS}/{broker}"


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}"


def state_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def delete_topic_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"


def group_path(group: str) -> str:
    return f"{CONSUMERS}/{group}"


def members_path(group: str) -> str:
    return f"{CONSUMERS}/{group}/ids"


def member_path(group: str, member: str) -> str:
    return f"{CONSUMERS}/{group}/ids/{member}"


def owner_path(group: str, topic: str, partition: int) -> str:
    return f"{CONSUMERS}/{group}/owners/{topic}/{partition}"


def offset_path(group: str, topic: str, partition: int) -> str:
    return f"{CONSUMERS}/{group}/offsets/{topic}/{partition}"


def config_path(entity_type: str, name: str) -> str:
    """Return the path of an entity's configs.  The name is a topic for TOPIC_CONFIGS, an id or
    DEFAULT_ENTITY for BROKER_CONFIGS; for groups and quotas see cluster_config/entity_names."""
    return f"/config/{entity_type}/{name}"


def parents_of(path: str) -> list[str]:
    """Return the paths above `path`, the topmost first."""
    names = path.split("/")[1:-1]
    return ["/" + "/".join(names[: n + 1]) for n in range(len(names))]


def uuid_to_text(value: UUID) -> str:
    """Return 22 characters of URL-safe base64, as Kafka writes topic ids and cluster ids."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def uuid_from_text(text: str) -> UUID:
    """Raises ValueError if it is not a UUID in base64."""
    try:
        return UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except binascii.Error as error:
        raise ValueError(str(error)) from error


_JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


def _to_json(value: Mapping[str, object]) -> bytes:
    return _JSON.encode(value).encode()


@contextmanager
def _decoding(path: str, data: bytes) -> Iterator[Any]:
    """Yield the parsed JSON.  Raises UnreadableZnode on any error while its fields are read."""
    try:
        yield json.loads(data)
    except _UNREADABLE as error:
        raise UnreadableZnode(path, data, error) from error


_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


def _int32(value: object) -> int:
    """Return a number that fits into an int32 field of a message."""
    number = int(value)  # type: ignore[call-overload]
    if not -(1 << 31) <= number < 1 << 31:
        raise ValueError(f"{number} is not an int32")
    return int(number)


def _brokers(ids: Iterable[object]) -> tuple[BrokerId, ...]:
    brokers = tuple(map(_int32, ids))
    if len(set(brokers)) < len(brokers) or any(broker < 0 for broker in brokers):
        raise ValueError(f"{brokers} are not distinct broker ids")
    return brokers


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """Registration of a live broker."""

    id: BrokerId
    endpoints: tuple[Endpoint, ...]
    """Advertised endpoints, in the order of `listeners`."""
    timestamp_ms: int
    rack: str | None = None
    jmx_port: int = -1
    incarnation_id: str = ""
    """Id of this start of the broker (log/incarnation).  Kafka has neither this nor the next
    field."""
    may_lack_records: bool = False
    """Whether the machine failed since its last clean stop, or its disk is new."""
    features: Mapping[str, int] = field(default_factory=dict)
    """Highest supported level by feature (KIP-584); brokers of Kafka 3 support none."""


def encode_broker(broker: BrokerRegistration) -> bytes:
    """Encode version 5."""
    # Clients older than named listeners read host and port; they support only PLAINTEXT.
    plain = next((e for e in broker.endpoints if e.protocol == "PLAINTEXT"), None)
    return _to_json(
        {
            "features": {
                # Kafka before 3.3 rejects level 0, which means that the feature is disabled.
                name: {"min_version": 1, "max_version": level}
                for name, level in sorted(broker.features.items())
            },
            "listener_security_protocol_map": {e.listener: e.protocol for e in broker.endpoints},
            "endpoints": [str(e) for e in broker.endpoints],
            **({} if broker.rack is None else {"rack": broker.rack}),
            "jmx_port": broker.jmx_port,
            "port": plain.port if plain else -1,
            "host": plain.host if plain else None,
            "version": 5,
            "timestamp": str(broker.timestamp_ms),
            **({"incarnation_id": broker.incarnation_id} if broker.incarnation_id else {}),
            **({"may_lack_records": True} if broker.may_lack_records else {}),
        }
    )


def decode_broker(broker: BrokerId, data: bytes) -> BrokerRegistration:
    with _decoding(broker_path(broker), data) as fields:
        if fields["version"] < 2:
            endpoints = [f"PLAINTEXT://{fields['host']}:{fields['port']}"]
        else:
            endpoints = fields["endpoints"]
        protocols = fields.get("listener_security_protocol_map", {})
        return BrokerRegistration(
            broker,
            tuple(_endpoint(text, protocols) for text in endpoints),
            int(fields.get("timestamp", -1)),
            None if fields.get("rack") is None else str(fields["rack"]),
            _int32(fields.get("jmx_port", -1)),
            str(fields.get("incarnation_id", "")),
            bool(fields.get("may_lack_records", False)),
            {str(k): int(v["max_version"]) for k, v in fields.get("features", {}).items()},
        )


def _endpoint(text: str, protocols: Mapping[str, str]) -> Endpoint:
    """Parse `LISTENER://host:port`; before version 4 a listener is named after its protocol."""
    listener, rest = text.split("://")
    host, port = rest.rsplit(":", 1)
    return Endpoint(
        listener,
        protocols.get(listener, listener),
        host.removeprefix("[").removesuffix("]"),
        _int32(port),
    )


def encode_log_dirs(paths: Mapping[str, str]) -> bytes:
    """Encode paths by directory id."""
    return _to_json({"version": 1, "log_dirs": paths})


def decode_log_dirs(broker: BrokerId, data: bytes) -> dict[str, str]:
    with _decoding(log_dirs_path(broker), data) as fields:
        return {str(id_): str(path) for id_, path in fields["log_dirs"].items()}


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """Replicas of a topic's partitions; `adding` and `removing` during a reassignment (KIP-455)."""

    topic_id: UUID | None
    """None if a broker older than 2.8 created the topic."""
    replicas: Mapping[int, tuple[BrokerId, ...]]
    """Replicas by partition, the preferred one first."""
    adding: Mapping[int, tuple[BrokerId, ...]] = field(default_factory=dict)
    removing: Mapping[int, tuple[BrokerId, ...]] = field(default_factory=dict)


def encode_topic(topic: TopicAssignment) -> bytes:
    """Encode version 3."""

    def as_json(replicas: Mapping[int, tuple[BrokerId, ...]]) -> dict[str, list[BrokerId]]:
        return {str(p): list(r) for p, r in sorted(replicas.items())}

    return _to_json(
        {
            "partitions": as_json(topic.replicas),
            **({} if topic.topic_id is None else {"topic_id": uuid_to_text(topic.topic_id)}),
            "adding_replicas": as_json(topic.adding),
            "removing_replicas": as_json(topic.removing),
            "version": 3,
        }
    )


def decode_topic(topic: str, data: bytes) -> TopicAssignment:
    with _decoding(topic_path(topic), data) as fields:

        def replicas(key: str) -> dict[int, tuple[BrokerId, ...]]:
            assignment = fields.get(key, {}).items()
            return {int(p): _brokers(brokers) for p, brokers in assignment}

        topic_id = fields.get("topic_id")
        partitions = replicas("partitions")
        if not partitions or sorted(partitions) != list(range(len(partitions))):
            raise ValueError("the partitions are not 0, 1, ...")
        if not all(partitions.values()):
            raise ValueError("a partition has no replicas")
        return TopicAssignment(
            None if topic_id is None else uuid_from_text(topic_id),
            partitions,
            replicas("adding_replicas"),
            replicas("removing_replicas"),
        )


def encode_state(state: LeaderAndIsr) -> bytes:
    """Encode version 1.  The partition epoch is the znode's version, so it is not in the data."""
    return _to_json(
        {
            "controller_epoch": state.controller_epoch,
            "leader": state.leader,
            "version": 1,
            "leader_epoch": state.leader_epoch,
            "isr": list(state.isr),
            **({"leader_recovery_state": 1} if state.is_recovering else {}),
        }
    )


def decode_state(topic: str, partition: int, data: bytes, znode_version: int) -> LeaderAndIsr:
    with _decoding(state_path(topic, partition), data) as fields:
        return LeaderAndIsr(
            _int32(fields["leader"]),
            _int32(fields["leader_epoch"]),
            _brokers(fields["isr"]),
            _int32(fields["controller_epoch"]),
            znode_version,
            fields.get("leader_recovery_state", 0) == 1,
        )


def encode_config(overrides: Mapping[str, str]) -> bytes:
    return _to_json({"version": 1, "config": dict(sorted(overrides.items()))})


def decode_config(entity_type: str, name: str, data: bytes) -> dict[str, str]:
    """Return overrides by key; none if the znode is empty."""
    if not data:
        return {}
    with _decoding(config_path(entity_type, name), data) as fields:
        return {str(key): str(value) for key, value in fields.get("config", {}).items()}


def encode_config_change(entity_type: str, name: str) -> bytes:
    """Encode the data of a sequential znode under CONFIG_CHANGE_PREFIX, on which each broker reads
    that entity again."""
    return _to_json({"version": 2, "entity_path": f"{entity_type}/{name}"})


def decode_config_change(data: bytes) -> tuple[str, str]:
    """Return entity type and name."""
    with _decoding(CONFIG_CHANGES, data) as fields:
        if fields["version"] == 1:
            return str(fields["entity_type"]), str(fields["entity_name"])
        entity_type, name = fields["entity_path"].split("/", 1)
        return entity_type, name


def encode_controller(broker: BrokerId, timestamp_ms: int) -> bytes:
    return _to_json(
        {
            "version": 2,
            "brokerid": broker,
            "timestamp": str(timestamp_ms),
            "kraftControllerEpoch": -1,
        }
    )


def decode_controller(data: bytes) -> BrokerId:
    with _decoding(CONTROLLER, data) as fields:
        return int(fields["brokerid"])


def encode_controller_epoch(epoch: int) -> bytes:
    return str(epoch).encode()


def decode_controller_epoch(data: bytes) -> int:
    with _decoding(CONTROLLER_EPOCH, data) as epoch:
        return _int32(epoch)


def encode_cluster_id(cluster_id: str) -> bytes:
    return _to_json({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    with _decoding(CLUSTER_ID, data) as fields:
        return str(fields["id"])


def encode_log_dir_event(broker: BrokerId) -> bytes:
    """Encode the data of a sequential znode under LOG_DIR_EVENT_PREFIX, on which the controller
    asks the broker for its offline replicas."""
    return _to_json({"version": 1, "broker": broker, "event": 1})


def decode_log_dir_event(data: bytes) -> BrokerId:
    with _decoding(LOG_DIR_EVENTS, data) as fields:
        return int(fields["broker"])


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode partitions for PREFERRED_ELECTION, or for a sequential znode under
    ISR_CHANGE_PREFIX."""
    entries = [{"topic": topic, "partition": partition} for topic, partition in partitions]
    return _to_json({"version": 1, "partitions": entries})


def decode_isr_change(data: bytes) -> list[TopicPartition]:
    return _partitions(ISR_CHANGES, data)


def decode_preferred_election(data: bytes) -> list[TopicPartition]:
    return _partitions(PREFERRED_ELECTION, data)


def decode_reassignments(data: bytes) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    with _decoding(REASSIGN_PARTITIONS, data) as fields:
        return {
            TopicPartition(str(p["topic"]), int(p["partition"])): tuple(map(_int32, p["replicas"]))
            for p in fields["partitions"]
        }


def _partitions(path: str, data: bytes) -> list[TopicPartition]:
    with _decoding(path, data) as fields:
        entries = [(p["topic"], p["partition"]) for p in fields["partitions"]]
        return [TopicPartition(str(topic), int(number)) for topic, number in entries]


class ProducerIdBlock(NamedTuple):
    """Producer ids from `first` to `last`, both included, allocated to `broker`."""

    broker: BrokerId
    first: ProducerId
    last: ProducerId


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    return _to_json(
        {
            "version": 1,
            "broker": block.broker,
            "block_start": str(block.first),
            "block_end": str(block.last),
        }
    )


def decode_producer_id_block(data: bytes) -> ProducerIdBlock:
    with _decoding(PRODUCER_ID_BLOCK, data) as fields:
        return ProducerIdBlock(
            int(fields["broker"]), int(fields["block_start"]), int(fields["block_end"])
        )


def encode_features(levels: Mapping[str, int]) -> bytes:
    """Encode finalized levels; none of them is 0."""
    features = {name: {"max_version_level": level} for name, level in levels.items()}
    return _to_json({"version": 2, "status": 1, "features": features})


def decode_features(data: bytes) -> dict[str, int]:
    """Return levels by name; none if the status says that they are disabled."""
    with _decoding(FEATURES, data) as fields:
        features = fields["features"] if fields["status"] == 1 else {}
        return {
            str(name): _int32(feature["max_version_level"]) for name, feature in features.items()
        }


STATIC = "static"


@dataclass(frozen=True, slots=True)
class MemberRegistration:
    """Registration of a member of a group that balances itself."""

    subscription: Mapping[str, int]
    """Number of threads by topic; by pattern if `pattern` is not STATIC."""
    timestamp_ms: int
    pattern: str = STATIC


def encode_member(member: MemberRegistration) -> bytes:
    return _to_json(
        {
            "version": 1,
            "subscription": dict(member.subscription),
            "pattern": member.pattern,
            "timestamp": str(member.timestamp_ms),
        }
    )


def decode_member(group: str, member: str, data: bytes) -> MemberRegistration:
    with _decoding(member_path(group, member), data) as fields:
        return MemberRegistration(
            {str(topic): int(threads) for topic, threads in fields["subscription"].items()},
            int(fields.get("timestamp", -1)),
            str(fields.get("pattern", STATIC)),
        )


def encode_offset(offset: Offset) -> bytes:
    return str(offset).encode()


def decode_offset(group: str, partition: TopicPartition, data: bytes) -> Offset:
    path = offset_path(group, partition.topic, partition.partition)
    with _decoding(path, data) as offset:
        return int(offset)
