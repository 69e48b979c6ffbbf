"""Rules to create, extend and delete topics, and the writes that result.

Pure: a request and the present image go in; a TopicInfo, or its writes, come out.

Rules and error texts are those of Kafka 4's controller (ReplicationControlManager,
ControllerApis). Each item of a request is validated on its own; the first rule that it breaks is
its error:

    create   named twice in the request, name, collision, exists, configs, then
             explicit assignments: replicas, brokers, one replication factor, partitions 0..n-1
             counts: replication factor, partitions, enough brokers
    grow     named twice, unknown, no increase, assignments as above
    both     open files, which is this broker's own rule (POLICY_VIOLATION)
    delete   deletion disabled, named twice, unknown

A topic's znode is written before its partitions' states, or together with them.  States that are
missing after a crash are written when the next controller starts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from kserver import znodes
from kserver.config.broker import BrokerConfig
from kserver.config.topic import TopicConfig
from kserver.controller.placement import place
from kserver.errors import RAISE_OPEN_FILES, ConfigError, ErrorCode, KafkaError
from kserver.log.segment import FILES_A_LOG
from kserver.metadata import PartitionInfo, TopicInfo, check_topic_name
from kserver.model import NO_BROKER, BrokerId, LeaderAndIsr
from kserver.world.zookeeper import Create, Op, SetData

MAX_PARTITIONS_PER_REQUEST = 10_000
CLUSTER_METADATA = "__cluster_metadata"

UNKNOWN_TOPIC = "This server does not host this topic-partition."


@dataclass(frozen=True, slots=True)
class CreatableTopic:
    """-1 means `num.partitions` or `default.replication.factor`."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[BrokerId]] | None = None
    """Replicas by partition, instead of the two counts."""
    config: Mapping[str, str | None] = field(default_factory=dict)
    """Config overrides; None is rejected."""


@dataclass(frozen=True, slots=True)
class CreatablePartitions:
    name: str
    count: int
    """Total number of partitions after the change."""
    assignments: Sequence[Sequence[BrokerId]] | None = None
    """Replicas of the added partitions."""


def colliding(name: str, topics: Iterable[str]) -> str | None:
    """Return a topic with the same name in metrics, where '.' and '_' are one character."""
    unified = name.replace(".", "_")
    if "_" not in unified:
        return None
    return next((t for t in topics if t.replace(".", "_") == unified), None)


def refused(names: Sequence[str], partitions: int = 0) -> dict[str, KafkaError]:
    """Return errors by topic name that need no lookup: for all items if there are too many
    partitions in total, else for those that are named more than once."""
    if partitions > MAX_PARTITIONS_PER_REQUEST:
        text = "Excessively large number of partitions per request."
        return dict.fromkeys(names, KafkaError(ErrorCode.policy_violation, text))
    twice = KafkaError(ErrorCode.invalid_request, "Duplicate topic name.")
    return {name: twice for name, times in Counter(names).items() if times > 1}


class FileBudget:
    """Files that a request's new partitions may still open on this broker, `own`; initially
    `count`.

    Without this check they would be created but get no leader.
    """

    def __init__(self, own: BrokerId, count: int) -> None:
        self._own = own
        self._remaining = count

    def take(self, topic: str, partitions: Sequence[PartitionInfo]) -> None:
        """Raises KafkaError if too few files are left."""
        files = FILES_A_LOG * sum(self._own in p.replicas for p in partitions)
        if files > self._remaining:
            text = (
                f"Topic '{topic}' needs {files} open files on broker {self._own}, which may open"
                f" {max(self._remaining, 0)} more: {RAISE_OPEN_FILES}."
            )
            raise KafkaError(ErrorCode.policy_violation, text)
        self._remaining -= files


def requested_partitions(new: CreatableTopic, config: BrokerConfig) -> int:
    if new.assignments:
        return len(new.assignments)
    return config.num_partitions if new.partitions == -1 else max(new.partitions, 0)


def added_partitions(request: CreatablePartitions, topic: TopicInfo | None) -> int:
    return 0 if topic is None else max(request.count - len(topic.partitions), 0)


def create(
    new: CreatableTopic,
    topics: Collection[str],
    racks: Mapping[BrokerId, str | None],
    config: BrokerConfig,
    *,
    topic_id: UUID,
    start: int,
    shift: int,
) -> TopicInfo:
    """Return the new topic.  `topics` are the existing names; `racks`, `start` and `shift` are as
    for `place`.  Raises KafkaError."""
    if new.name == CLUSTER_METADATA:
        text = f"Creation of internal topic {CLUSTER_METADATA} is prohibited."
        raise KafkaError(ErrorCode.invalid_request, text)
    check_topic_name(new.name)
    if new.name in topics:
        text = f"Topic '{new.name}' already exists."
        raise KafkaError(ErrorCode.topic_already_exists, text)
    if other := colliding(new.name, topics):
        text = f"Topic '{new.name}' collides with existing topic: {other}"
        raise KafkaError(ErrorCode.invalid_topic_exception, text)
    if nulls := [key for key, value in new.config.items() if value is None]:
        text = f"Null value not supported for topic configs: {','.join(nulls)}"
        raise KafkaError(ErrorCode.invalid_config, text)
    overrides = {key: value for key, value in new.config.items() if value is not None}
    try:
        TopicConfig.of(overrides, config)
    except ConfigError as error:
        raise KafkaError(ErrorCode.invalid_config, str(error)) from error
    if new.assignments:
        replicas = _given_assignments(new, racks)
    else:
        replicas = _placed(new, racks, config, start, shift)
    return TopicInfo(new.name, topic_id, _partitions(replicas), overrides)


def grow(
    request: CreatablePartitions, topic: TopicInfo | None, racks: Mapping[BrokerId, str | None]
) -> TopicInfo:
    """Return the topic with its new partitions.  Raises KafkaError."""
    if topic is None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, UNKNOWN_TOPIC)
    present = len(topic.partitions)
    if request.count == present:
        text = f"Topic already has {present} partition(s)."
        raise KafkaError(ErrorCode.invalid_partitions, text)
    if request.count < present:
        raise KafkaError(
            ErrorCode.invalid_partitions,
            f"The topic {topic.name} currently has {present} partition(s); {request.count} would "
            "not be an increase.",
        )
    added = request.count - present
    first = topic.partitions[0].replicas
    if request.assignments is None:
        # Continues the round of `place` for the topic's first partitions.
        at = next((i for i, b in enumerate(sorted(racks)) if b >= first[0]), 0)
        replicas = place(racks, added, len(first), start=at, shift=at, first_partition=present)
    else:
        if len(request.assignments) != added:
            raise KafkaError(
                ErrorCode.invalid_replica_assignment,
                f"Attempted to add {added} additional partition(s), but only "
                f"{len(request.assignments)} assignment(s) were specified.",
            )
        replicas = [
            _checked_replicas(assignment, racks, len(first)) for assignment in request.assignments
        ]
    return replace(topic, partitions=topic.partitions + _partitions(replicas, present))


def delete(topic: TopicInfo | None, config: BrokerConfig) -> TopicInfo:
    """Return the topic if it may be deleted.  Raises KafkaError."""
    if not config.delete_topic_enable:
        raise KafkaError(ErrorCode.topic_deletion_disabled, "Topic deletion is disabled.")
    if topic is None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, UNKNOWN_TOPIC)
    return topic


def _given_assignments(
    new: CreatableTopic, brokers: Collection[BrokerId]
) -> list[tuple[BrokerId, ...]]:
    assert new.assignments
    if new.replication_factor != -1:
        text = "replication factor was not set to -1."
    elif new.partitions != -1:
        text = "numPartitions was not set to -1."
    else:
        factor = None
        for assignment in new.assignments.values():
            factor = len(_checked_replicas(assignment, brokers, factor))
        if sorted(new.assignments) == list(range(len(new.assignments))):
            return [tuple(new.assignments[p]) for p in range(len(new.assignments))]
        raise KafkaError(
            ErrorCode.invalid_replica_assignment,
            "partitions should be a consecutive 0-based integer sequence",
        )
    raise KafkaError(
        ErrorCode.invalid_request, f"A manual partition assignment was specified, but {text}"
    )


def _checked_replicas(
    replicas: Sequence[BrokerId], brokers: Collection[BrokerId], factor: int | None
) -> tuple[BrokerId, ...]:
    """Validate an explicit assignment of one partition; `factor` is that of the partitions before
    it."""
    text = None
    unknown = sorted(b for b in replicas if b not in brokers)
    twice = sorted(b for b, times in Counter(replicas).items() if times > 1)
    if not replicas:
        text = "an empty replica list."
    elif unknown:
        text = f"broker {unknown[0]}, but no such broker is registered."
    elif twice:
        text = f"the broker {twice[0]} more than once."
    elif factor is not None and len(replicas) != factor:
        text = (
            f"a partition with {len(replicas)} replica(s), but this is not consistent with "
            f"previous partitions, which have {factor} replica(s)."
        )
    if text is not None:
        raise KafkaError(
            ErrorCode.invalid_replica_assignment,
            f"The manual partition assignment includes {text}",
        )
    return tuple(replicas)


def _placed(
    new: CreatableTopic,
    racks: Mapping[BrokerId, str | None],
    config: BrokerConfig,
    start: int,
    shift: int,
) -> list[tuple[BrokerId, ...]]:
    if new.replication_factor < -1 or new.replication_factor == 0:
        text = "Replication factor must be larger than 0, or -1 to use the default value."
        raise KafkaError(ErrorCode.invalid_replication_factor, text)
    if new.partitions < -1 or new.partitions == 0:
        text = "Number of partitions was set to an invalid non-positive value."
        raise KafkaError(ErrorCode.invalid_partitions, text)
    partitions = config.num_partitions if new.partitions == -1 else new.partitions
    factor = new.replication_factor
    if factor == -1:
        factor = config.default_replication_factor
    try:
        return place(racks, partitions, factor, start=start, shift=shift)
    except KafkaError as error:
        text = f"Unable to replicate the partition {factor} time(s): {error.message}"
        raise KafkaError(error.code, text) from error


def _partitions(
    replicas: Sequence[tuple[BrokerId, ...]], first: int = 0
) -> tuple[PartitionInfo, ...]:
    """Return new partitions, with the preferred leader, and all replicas in sync as there are no
    records."""
    return tuple(
        PartitionInfo(partition, leader=r[0], leader_epoch=0, replicas=r, isr=r)
        for partition, r in enumerate(replicas, first)
    )


def restore(
    name: str,
    assignment: znodes.TopicAssignment,
    states: Mapping[int, LeaderAndIsr],
    next_state: Callable[[Sequence[BrokerId], int], LeaderAndIsr | None],
) -> tuple[TopicInfo, list[Op]]:
    """Return a topic as stored in its znodes, and the writes that update its states.  `next_state`
    returns a partition's new state, given its replicas and number, or None if it is unchanged."""
    assert assignment.topic_id is not None
    partitions: list[PartitionInfo] = []
    ops: list[Op] = []
    for partition, replicas in sorted(assignment.replicas.items()):
        last = states.get(partition)
        state = next_state(replicas, partition)
        if state is not None:
            path = znodes.state_path(name, partition)
            data = znodes.encode_state(state)
            ops.append(SetData(path, data, last.partition_epoch) if last else Create(path, data))
        else:
            state = last or LeaderAndIsr(NO_BROKER, 0, ())
        partitions.append(
            PartitionInfo(
                partition,
                state.leader,
                state.leader_epoch,
                replicas,
                state.isr,
                state.partition_epoch,
                assignment.adding.get(partition, ()),
                assignment.removing.get(partition, ()),
                state.is_recovering,
            )
        )
    return TopicInfo(name, assignment.topic_id, tuple(partitions)), ops


def writes_to_create(
    topic: TopicInfo, controller_epoch: int, *, has_config_znode: bool = False
) -> list[Op]:
    """Return the writes that create the topic; an earlier topic may have left its config znode."""
    config_path = znodes.config_path(znodes.TOPIC_CONFIGS, topic.name)
    config = znodes.encode_config(topic.config)
    assignment = znodes.TopicAssignment(
        topic.id, {p.partition: p.replicas for p in topic.partitions}
    )
    return [
        Create(znodes.topic_path(topic.name), znodes.encode_topic(assignment)),
        SetData(config_path, config) if has_config_znode else Create(config_path, config),
        Create(znodes.partitions_path(topic.name)),
        *writes_of_states(topic, topic.partitions, controller_epoch),
    ]


def writes_to_grow(
    topic: TopicInfo, old: znodes.TopicAssignment, znode_version: int, controller_epoch: int
) -> list[Op]:
    """Return the writes that add the partitions of `topic` that its znode, `old`, does not have."""
    added = topic.partitions[len(old.replicas) :]
    # The others stay as they are: those of a reassignment that ends name its removed replicas.
    placed = {p.partition: p.replicas for p in added}
    grown = replace(old, replicas={**old.replicas, **placed})
    return [
        SetData(znodes.topic_path(topic.name), znodes.encode_topic(grown), znode_version),
        *writes_of_states(topic, added, controller_epoch),
    ]


def writes_of_states(
    topic: TopicInfo, partitions: Iterable[PartitionInfo], controller_epoch: int
) -> list[Op]:
    """Return the writes that create the states of partitions without znodes."""
    ops: list[Op] = []
    for p in partitions:
        state = LeaderAndIsr(p.leader, p.leader_epoch, p.isr, controller_epoch)
        ops.append(Create(znodes.partition_path(topic.name, p.partition)))
        ops.append(Create(znodes.state_path(topic.name, p.partition), znodes.encode_state(state)))
    return ops
