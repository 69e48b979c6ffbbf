"""Requests between the controller and the brokers.

    key  name                from        content
    4    LeaderAndIsr        controller  leaders and ISRs of the broker's partitions
    5    StopReplica         controller  partitions that it no longer follows, or that it deletes
    6    UpdateMetadata      controller  metadata of the cluster for its clients
    7    ControlledShutdown  broker      asks to move the leadership of its partitions

Kafka removed these keys in 4.0, and kio has none of them, so they are declared here.  In memory
there is one form, that of the newest version.  Older versions differ in structure: partitions are
not grouped by topic, a broker has one address, there is one flag for all deletions.  `decode` and
`encode` convert them; a field that an old version lacks has its default, and is not sent.

Pure: values and bytes only.  `decode` raises ProtocolError.  (Kafka: the message definitions of
3.9, clients/src/main/resources/common/message.)
"""

from __future__ import annotations

import dataclasses
import functools
import re
import struct
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self
from uuid import UUID

from kserver.errors import ErrorCode, ProtocolError
from kserver.model import NO_EPOCH, BrokerId, LeaderEpoch
from kserver.wire.api_key import ApiKey
from kserver.wire.codec import is_flexible
from kserver.wire.schema import Schema, Values, schemas

NO_BROKER_EPOCH = -1
FULL = 2
"""`type` of a request with the full state of its receiver."""
DELETED_EPOCH: LeaderEpoch = -2
"""Leader epoch of a StopReplica for a deleted topic, which is above every other epoch."""
DURING_DELETION: BrokerId = -2
"""Leader of a partition in UpdateMetadata while its topic is being deleted."""

_LEADER_AND_ISR_PARTITION = """\
        partitionIndex int32
        controllerEpoch int32
        leader int32
        leaderEpoch int32
        isr []int32
        partitionEpoch int32
        replicas []int32
        addingReplicas []int32 3+
        removingReplicas []int32 3+
        isNew bool 1+
        leaderRecoveryState int8 6+
"""
_UPDATE_METADATA_PARTITION = """\
        partitionIndex int32
        controllerEpoch int32
        leader int32
        leaderEpoch int32
        isr []int32
        zkVersion int32
        replicas []int32
        offlineReplicas []int32 4+
"""


def _deeper(fields: str) -> str:
    return fields.replace("        ", "            ")


SCHEMAS = schemas(f"""\
LeaderAndIsrRequest 0-7 flexible 4+
    controllerId int32
    isKRaftController bool 7+
    controllerEpoch int32
    brokerEpoch int64 2+ = -1
    type int8 5+
    ungroupedPartitionStates [] 0-1
        topicName string
{_LEADER_AND_ISR_PARTITION}
    topicStates [] 2+
        topicName string
        topicId uuid 5+
        partitionStates []
{_deeper(_LEADER_AND_ISR_PARTITION)}
    liveLeaders []
        brokerId int32
        hostName string
        port int32
LeaderAndIsrResponse 0-7 flexible 4+
    errorCode int16
    partitionErrors [] 0-4
        topicName string
        partitionIndex int32
        errorCode int16
    topics [] 5+
        topicId uuid
        partitionErrors []
            partitionIndex int32
            errorCode int16
StopReplicaRequest 0-4 flexible 2+
    controllerId int32
    isKRaftController bool 4+
    controllerEpoch int32
    brokerEpoch int64 1+ = -1
    deletePartitions bool 0-2
    ungroupedPartitions [] 0
        topicName string
        partitionIndex int32
    topics [] 1-2
        name string
        partitionIndexes []int32
    topicStates [] 3+
        topicName string
        partitionStates []
            partitionIndex int32
            leaderEpoch int32 = -1
            deletePartition bool
StopReplicaResponse 0-4 flexible 2+
    errorCode int16
    partitionErrors []
        topicName string
        partitionIndex int32
        errorCode int16
UpdateMetadataRequest 0-8 flexible 6+
    controllerId int32
    isKRaftController bool 8+
    type int8 8+ tag 0
    controllerEpoch int32
    brokerEpoch int64 5+ = -1
    ungroupedPartitionStates [] 0-4
        topicName string
{_UPDATE_METADATA_PARTITION}
    topicStates [] 5+
        topicName string
        topicId uuid 7+
        partitionStates []
{_deeper(_UPDATE_METADATA_PARTITION)}
    liveBrokers []
        id int32
        v0Host string 0
        v0Port int32 0
        endpoints [] 1+
            port int32
            host string
            listener string 3+
            securityProtocol int16
        rack string? 2+ = null
UpdateMetadataResponse 0-8 flexible 6+
    errorCode int16
ControlledShutdownRequest 0-3 flexible 3+
    brokerId int32
    brokerEpoch int64 2+ = -1
ControlledShutdownResponse 0-3 flexible 3+
    errorCode int16
    remainingPartitions []
        topicName string
        partitionIndex int32
""")

_NO_ID = UUID(int=0)
_RESPONSE_HEAD = struct.Struct(">ii")


class ControlMessage:
    """Request or response of one of the four APIs."""

    __slots__ = ()
    api_key: ClassVar[int]

    @classmethod
    def schema(cls) -> Schema:
        return SCHEMAS[cls.__name__]

    @classmethod
    def decode(cls, version: int, data: bytes | memoryview) -> Self:
        values = cls.schema().decode(version, data)
        message: Self = _message_of(cls, cls._modern(version, values))
        return message

    def encode(self, version: int) -> bytes:
        return self.schema().encode(version, self._as_of(version, _values(self)))

    @classmethod
    def _modern(cls, _version: int, values: Values) -> Values:
        """Convert an older version's values to the newest one's."""
        return values

    @classmethod
    def _as_of(cls, _version: int, values: Values) -> Values:
        """Convert the newest version's values to an older one's."""
        return values


def write_control(
    api_key: int, version: int, correlation_id: int, response: ControlMessage
) -> bytes:
    """Return the complete frame, with its length prefix."""
    tags = b"\0" if is_flexible(api_key, version) else b""
    body = response.encode(version)
    return _RESPONSE_HEAD.pack(4 + len(tags) + len(body), correlation_id) + tags + body


def read_control_response(
    request: ControlMessage, version: int, frame: memoryview
) -> ControlMessage:
    """Decode the response to `request` of this version, from a frame that starts with the
    correlation id."""
    head = 5 if is_flexible(request.api_key, version) else 4
    return ANSWERS[type(request)].decode(version, frame[head:])


@dataclass(frozen=True, slots=True)
class LeaderAndIsrPartitionState:
    partition_index: int
    controller_epoch: int
    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    partition_epoch: int
    """Version of the partition's state znode."""
    replicas: tuple[BrokerId, ...]
    adding_replicas: tuple[BrokerId, ...] = ()
    removing_replicas: tuple[BrokerId, ...] = ()
    is_new: bool = False
    """Whether the replica has never been on that broker, so that a missing log is not a loss."""
    leader_recovery_state: int = 0
    """1 after an unclean election, until the leader has recovered (KIP-704)."""


@dataclass(frozen=True, slots=True)
class LeaderAndIsrTopicState:
    topic_name: str
    topic_id: UUID
    partition_states: tuple[LeaderAndIsrPartitionState, ...]


@dataclass(frozen=True, slots=True)
class LeaderAndIsrLiveLeader:
    broker_id: BrokerId
    host_name: str
    port: int


@dataclass(frozen=True, slots=True)
class LeaderAndIsrRequest(ControlMessage):
    api_key = ApiKey.LEADER_AND_ISR
    controller_id: BrokerId
    controller_epoch: int
    topic_states: tuple[LeaderAndIsrTopicState, ...] = ()
    live_leaders: tuple[LeaderAndIsrLiveLeader, ...] = ()
    """Addresses of the partitions' leaders."""
    broker_epoch: int = NO_BROKER_EPOCH
    """Registration of the receiver that the request is for."""
    type: int = 0
    """FULL if it names every partition of the receiver: others were deleted or moved while it was
    down (KIP-516)."""
    is_kraft_controller: bool = False

    @classmethod
    def _modern(cls, version: int, values: Values) -> Values:
        if version <= 1:
            values["topicStates"] = _grouped(values["ungroupedPartitionStates"])
        return values

    @classmethod
    def _as_of(cls, version: int, values: Values) -> Values:
        if version <= 1:
            values["ungroupedPartitionStates"] = _ungrouped(values["topicStates"])
        return values


@dataclass(frozen=True, slots=True)
class LeaderAndIsrPartitionError:
    partition_index: int
    error_code: ErrorCode


@dataclass(frozen=True, slots=True)
class LeaderAndIsrTopicError:
    """Versions up to 4 have the topic's name, later ones its id."""

    partition_errors: tuple[LeaderAndIsrPartitionError, ...]
    topic_name: str = ""
    topic_id: UUID = _NO_ID


@dataclass(frozen=True, slots=True)
class LeaderAndIsrResponse(ControlMessage):
    api_key = ApiKey.LEADER_AND_ISR
    error_code: ErrorCode
    topics: tuple[LeaderAndIsrTopicError, ...] = ()

    @classmethod
    def _modern(cls, version: int, values: Values) -> Values:
        if version <= 4:
            values["topics"] = _grouped(values["partitionErrors"], "partitionErrors")
        return values

    @classmethod
    def _as_of(cls, version: int, values: Values) -> Values:
        if version <= 4:
            values["partitionErrors"] = _ungrouped(values["topics"], "partitionErrors")
        return values


@dataclass(frozen=True, slots=True)
class StopReplicaPartitionState:
    partition_index: int
    leader_epoch: LeaderEpoch = NO_EPOCH
    delete_partition: bool = False


@dataclass(frozen=True, slots=True)
class StopReplicaTopicState:
    topic_name: str
    partition_states: tuple[StopReplicaPartitionState, ...]


@dataclass(frozen=True, slots=True)
class StopReplicaRequest(ControlMessage):
    """Below version 3, either all partitions are deleted or none."""

    api_key = ApiKey.STOP_REPLICA
    controller_id: BrokerId
    controller_epoch: int
    topic_states: tuple[StopReplicaTopicState, ...] = ()
    broker_epoch: int = NO_BROKER_EPOCH
    is_kraft_controller: bool = False

    @classmethod
    def _modern(cls, version: int, values: Values) -> Values:
        if version <= 2:
            deleted = {"deletePartition": values["deletePartitions"], "leaderEpoch": NO_EPOCH}
            ungrouped = values["ungroupedPartitions"] if version == 0 else [
                {"topicName": topic["name"], "partitionIndex": partition}
                for topic in values["topics"]
                for partition in topic["partitionIndexes"]
            ]  # fmt: skip
            values["topicStates"] = _grouped([state | deleted for state in ungrouped])
        return values

    @classmethod
    def _as_of(cls, version: int, values: Values) -> Values:
        if version <= 2:
            ungrouped = _ungrouped(values["topicStates"])
            deleted = {state["deletePartition"] for state in ungrouped}
            assert len(deleted) <= 1, f"StopReplica v{version} deletes all of them or none"
            values["deletePartitions"] = True in deleted
            values["ungroupedPartitions"] = ungrouped
            values["topics"] = [
                {
                    "name": topic["topicName"],
                    "partitionIndexes": [p["partitionIndex"] for p in topic["partitionStates"]],
                }
                for topic in values["topicStates"]
            ]
        return values


@dataclass(frozen=True, slots=True)
class StopReplicaPartitionError:
    topic_name: str
    partition_index: int
    error_code: ErrorCode


@dataclass(frozen=True, slots=True)
class StopReplicaResponse(ControlMessage):
    api_key = ApiKey.STOP_REPLICA
    error_code: ErrorCode
    partition_errors: tuple[StopReplicaPartitionError, ...] = ()


@dataclass(frozen=True, slots=True)
class UpdateMetadataPartitionState:
    partition_index: int
    controller_epoch: int
    leader: BrokerId
    """NO_BROKER if there is no leader, DURING_DELETION if the topic is being deleted."""
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    zk_version: int
    replicas: tuple[BrokerId, ...]
    offline_replicas: tuple[BrokerId, ...] = ()


@dataclass(frozen=True, slots=True)
class UpdateMetadataTopicState:
    topic_name: str
    topic_id: UUID
    partition_states: tuple[UpdateMetadataPartitionState, ...]


@dataclass(frozen=True, slots=True)
class UpdateMetadataEndpoint:
    port: int
    host: str
    listener: str
    security_protocol: int
    """Index in SECURITY_PROTOCOLS."""


SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True)
class UpdateMetadataBroker:
    id: BrokerId
    endpoints: tuple[UpdateMetadataEndpoint, ...]
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class UpdateMetadataRequest(ControlMessage):
    """The named brokers replace all others; topics that are not named stay unchanged."""

    api_key = ApiKey.UPDATE_METADATA
    controller_id: BrokerId
    controller_epoch: int
    topic_states: tuple[UpdateMetadataTopicState, ...] = ()
    live_brokers: tuple[UpdateMetadataBroker, ...] = ()
    broker_epoch: int = NO_BROKER_EPOCH
    type: int = 0
    is_kraft_controller: bool = False

    @classmethod
    def _modern(cls, version: int, values: Values) -> Values:
        if version <= 4:
            values["topicStates"] = _grouped(values["ungroupedPartitionStates"])
        for broker in values["liveBrokers"]:
            if version == 0:
                address = {"host": broker["v0Host"], "port": broker["v0Port"]}
                broker["endpoints"] = [address | {"listener": "", "securityProtocol": 0}]
            if version <= 2:
                for endpoint in broker["endpoints"]:
                    # Listeners had no names before KIP-103.
                    endpoint["listener"] = _protocol(endpoint["securityProtocol"])
        return values

    @classmethod
    def _as_of(cls, version: int, values: Values) -> Values:
        if version <= 4:
            values["ungroupedPartitionStates"] = _ungrouped(values["topicStates"])
        if version == 0:
            for broker in values["liveBrokers"]:
                for endpoint in broker["endpoints"]:
                    if endpoint["securityProtocol"] == 0:
                        broker |= {"v0Host": endpoint["host"], "v0Port": endpoint["port"]}
        return values


@dataclass(frozen=True, slots=True)
class UpdateMetadataResponse(ControlMessage):
    api_key = ApiKey.UPDATE_METADATA
    error_code: ErrorCode


@dataclass(frozen=True, slots=True)
class ControlledShutdownRequest(ControlMessage):
    """Version 0, of Kafka 0.8, has a header without a client id."""

    api_key = ApiKey.CONTROLLED_SHUTDOWN
    broker_id: BrokerId
    broker_epoch: int = NO_BROKER_EPOCH


@dataclass(frozen=True, slots=True)
class RemainingPartition:
    topic_name: str
    partition_index: int


@dataclass(frozen=True, slots=True)
class ControlledShutdownResponse(ControlMessage):
    api_key = ApiKey.CONTROLLED_SHUTDOWN
    error_code: ErrorCode
    remaining_partitions: tuple[RemainingPartition, ...] = ()
    """Partitions that the broker still leads, as no other replica can."""


ANSWERS: Mapping[type[ControlMessage], type[ControlMessage]] = {
    LeaderAndIsrRequest: LeaderAndIsrResponse,
    StopReplicaRequest: StopReplicaResponse,
    UpdateMetadataRequest: UpdateMetadataResponse,
    ControlledShutdownRequest: ControlledShutdownResponse,
}


def _grouped(partitions: Iterable[Values], name: str = "partitionStates") -> list[Values]:
    topics: dict[str, Values] = {}
    for partition in partitions:
        topic = partition["topicName"]
        group = topics.setdefault(topic, {"topicName": topic, "topicId": _NO_ID, name: []})
        group[name].append(partition)
    return list(topics.values())


def _ungrouped(topics: Iterable[Values], name: str = "partitionStates") -> list[Values]:
    return [{"topicName": t["topicName"], **partition} for t in topics for partition in t[name]]


def _protocol(number: int) -> str:
    if not 0 <= number < len(SECURITY_PROTOCOLS):
        raise ProtocolError(f"unknown security protocol {number}")
    return SECURITY_PROTOCOLS[number]


@functools.cache
def _fields(cls: Any) -> Mapping[str, tuple[str, Any]]:
    """Return Kafka's name of each field, and the dataclass of its elements if they have one."""
    hints = typing.get_type_hints(cls)
    fields = {}
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        if typing.get_origin(hint) is tuple:
            hint = typing.get_args(hint)[0]
        name = re.sub("_(.)", lambda letter: letter[1].upper(), field.name)
        name = name.replace("isKraft", "isKRaft")
        fields[field.name] = name, hint if dataclasses.is_dataclass(hint) else None
    return fields


def _message_of(cls: Any, values: Values) -> Any:
    values_by_field = {}
    for field, (name, inner) in _fields(cls).items():
        if name not in values:
            continue
        value = values[name]
        if inner is not None:
            value = tuple(_message_of(inner, element) for element in value)
        elif isinstance(value, list):
            value = tuple(value)
        elif name == "errorCode":
            value = _error(value)
        values_by_field[field] = value
    return cls(**values_by_field)


def _error(code: Any) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.unknown_server_error  # as Kafka reads an unknown code of a newer broker


def _values(message: Any) -> Values:
    fields: Values = {}
    for field, (name, inner) in _fields(message.__class__).items():
        value = getattr(message, field)
        fields[name] = value if inner is None else [_values(element) for element in value]
    return fields
