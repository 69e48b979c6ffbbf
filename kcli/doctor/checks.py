"""The checks of `k doctor`: each examines a snapshot and yields its findings.

Pure. A finding is an error if requests of clients are refused, or would be after one more failure;
otherwise a warning.
"""

from __future__ import annotations

import ipaddress
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from kcli.client.admin.descriptions import PartitionDescription
from kcli.doctor.snapshot import REBALANCING, ClusterSnapshot, lags
from kserver.errors import KafkaError
from kserver.model import BrokerId, TopicPartition

ERROR, WARNING = "error", "warning"
MIN_FREE_SHARE = 0.1
"""Of a file system."""
CLOCK_MS = 60_000
"""Maximum time by which a record may be ahead of this machine's clock."""
SLOW_TRANSACTION_MS = 10_000
"""Time after its timeout within which a coordinator should abort a transaction."""
MAX_NAMES = 3
"""Maximum number of names in a finding."""
OWN = ("broker.id", "node.id", "listeners", "log.dir", "broker.rack", "metrics.", "host", "port")
"""Beginnings and ends of settings whose values belong to one broker."""


class Finding(NamedTuple):
    severity: str
    subject: str
    """Such as `broker 2`, `orders-0`, `group billing`."""
    found: str
    remedy: str


def addresses(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Yield addresses of brokers that clients on this machine cannot reach."""
    for address, why in snapshot.bootstrap.items():
        yield Finding(
            WARNING if snapshot.brokers else ERROR,
            f"bootstrap {address}",
            why,
            "start a broker there, or name one that runs in --bootstrap-server",
        )
    for broker, why in sorted(snapshot.unreachable.items()):
        yield Finding(
            ERROR,
            f"broker {broker}",
            f"cannot be reached at the address that it advertises: {why}",
            "set advertised.listeners to an address that this machine can reach, or open the "
            "network path to it",
        )
    hosts = {broker: node.host for broker, node in snapshot.brokers.items()}
    loopback = {broker for broker, host in hosts.items() if _is_loopback(host)}
    if loopback != hosts.keys():
        for broker in sorted(loopback):
            yield Finding(
                ERROR,
                f"broker {broker}",
                f"advertises {hosts[broker]}, which is a different machine for every other client",
                "set its advertised.listeners to a name that all of its clients know",
            )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def brokers(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Yield brokers that hold replicas and are down."""
    dead_replicas: Counter[BrokerId] = Counter()
    for _, partition in _partitions(snapshot):
        dead_replicas.update(set(partition.replicas) - snapshot.brokers.keys())
    for broker, replicas in sorted(dead_replicas.items()):
        yield Finding(
            ERROR,
            f"broker {broker}",
            f"is down, and {_count(replicas, 'replica')} should be on it",
            "start it; or, if it is lost for good, move them: k reassign-partitions",
        )


def partitions(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Yield partitions without a leader, or with replicas out of sync, and the reason; those with
    the same reason together.
    """
    failed = _failed_disks(snapshot)
    unled: defaultdict[str, list[TopicPartition]] = defaultdict(list)
    few: defaultdict[tuple[int | None, str], list[TopicPartition]] = defaultdict(list)
    for key, partition in _partitions(snapshot):
        missing = [b for b in partition.replicas if b not in partition.isr]
        if partition.leader is None:
            last = ", ".join(map(str, partition.isr)) or "none"
            why = _why(snapshot, key, partition.replicas, failed)
            unled[f"in sync: {last}; {why}"].append(key)
        elif missing:
            least = _setting(snapshot, key.topic, "min.insync.replicas")
            refuses = least is not None and len(partition.isr) < least
            few[least if refuses else None, _why(snapshot, key, missing, failed)].append(key)
    for why, keys in unled.items():
        yield Finding(
            ERROR,
            _list_of(map(str, keys), "partition"),
            f"no leader; {why}",
            "start one of those in sync; if none returns, what only they have is lost: "
            "k leader-election --election-type unclean",
        )
    for (least, why), keys in few.items():
        refused = f", fewer than min.insync.replicas={least}: acks=all is refused"
        yield Finding(
            WARNING if least is None else ERROR,
            _list_of(map(str, keys), "partition"),
            f"replicas out of sync{'' if least is None else refused}; {why}",
            "check the brokers that are named; k topics --describe shows when it is resolved",
        )


def _why(
    snapshot: ClusterSnapshot,
    key: TopicPartition,
    replicas: Iterable[BrokerId],
    failed: Mapping[BrokerId, str],
) -> str:
    moving = snapshot.reassignments.get(key)
    reasons = []
    for broker in replicas:
        if broker not in snapshot.brokers:
            reasons.append(f"broker {broker} is down")
        elif moving is not None and broker in moving.adding:
            reasons.append(f"broker {broker} is being added as a replica")
        elif broker in failed:
            reasons.append(f"a disk of broker {broker} failed ({failed[broker]})")
        else:
            reasons.append(f"broker {broker} is up, but behind")
    return ", ".join(reasons)


def _failed_disks(snapshot: ClusterSnapshot) -> dict[BrokerId, str]:
    return {
        broker: directory.path
        for broker, directories in snapshot.log_dirs.items()
        if not isinstance(directories, KafkaError)
        for directory in directories
        if directory.error is not None
    }


def disks(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    for broker, directories in sorted(snapshot.log_dirs.items()):
        if isinstance(directories, KafkaError):
            continue
        for directory in directories:
            where = f"{directory.path} of broker {broker}"
            if directory.error is not None:
                yield Finding(
                    ERROR,
                    where,
                    f"cannot be used: {directory.error}",
                    "repair or replace the disk, then restart the broker",
                )
            elif directory.total_bytes and directory.usable_bytes is not None:
                free = directory.usable_bytes / directory.total_bytes
                if free < MIN_FREE_SHARE:
                    yield Finding(
                        WARNING,
                        where,
                        f"has {free:.0%} left of its file system",
                        "keep less (retention.bytes, retention.ms), or move replicas: "
                        "k reassign-partitions",
                    )


def settings(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Yield settings that differ between brokers, or that contradict each other."""
    by_name: defaultdict[str, dict[BrokerId, str | None]] = defaultdict(dict)
    for broker, configs in snapshot.broker_configs.items():
        for name, entry in configs.items():
            if not entry.is_sensitive and not name.startswith(OWN) and not name.endswith(OWN):
                by_name[name][broker] = entry.value
    for name, values in sorted(by_name.items()):
        # A setting that some brokers lack belongs to another version.
        if len(values) == len(snapshot.broker_configs) and len(set(values.values())) > 1:
            differences = ", ".join(f"{value} at broker {b}" for b, value in sorted(values.items()))
            yield Finding(
                WARNING,
                name,
                f"differs: {differences}",
                f"k configs --alter --add-config {name}=...",
            )
    for broker in sorted(snapshot.broker_configs):
        yield from _config_combinations(snapshot, broker)
    yield from _replication_settings(snapshot)


LESS = (
    (
        "zookeeper.session.timeout.ms",
        "replica.lag.time.max.ms",
        "a follower that is cut off leaves the ISR while its session still stands",
    ),
    (
        "group.min.session.timeout.ms",
        "group.max.session.timeout.ms",
        "no session timeout of a consumer is accepted",
    ),
    (
        "replica.fetch.wait.max.ms",
        "replica.lag.time.max.ms",
        "followers leave the ISR while they wait for records",
    ),
    (
        "message.max.bytes",
        "socket.request.max.bytes",
        "the largest batches that are allowed are refused with their requests",
    ),
)
"""If the first is above the second, the third is the consequence."""


def _config_combinations(snapshot: ClusterSnapshot, broker: BrokerId) -> Iterator[Finding]:
    configs = snapshot.broker_configs[broker]

    def number(name: str) -> int | None:
        value = configs[name].value if name in configs else None
        return int(value) if value and value.lstrip("-").isdigit() else None

    for low, high, consequence in LESS:
        first, second = number(low), number(high)
        if first is not None and second is not None and first > second:
            yield Finding(
                WARNING,
                f"broker {broker}",
                f"{low}={first} is larger than {high}={second}: {consequence}",
                f"change one of the two: k configs --describe --broker {broker} --all",
            )
    factor, least = number("default.replication.factor"), number("min.insync.replicas")
    if factor is not None and least is not None and least > factor:
        yield Finding(
            ERROR,
            f"broker {broker}",
            f"min.insync.replicas={least} is larger than default.replication.factor={factor}: "
            "topics created with the default replication factor reject records with acks=all",
            "set default.replication.factor to one more than min.insync.replicas",
        )


def _replication_settings(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    single = []
    for topic in sorted(snapshot.topics.values()):
        replicas = min((len(p.replicas) for p in topic.partitions), default=0)
        least = _setting(snapshot, topic.name, "min.insync.replicas")
        if least is not None and 0 < replicas < least:
            yield Finding(
                ERROR,
                f"topic {topic.name}",
                f"has {_count(replicas, 'replica')} and min.insync.replicas={least}: records with "
                "acks=all are rejected",
                f"k configs --alter --topic {topic.name} --add-config "
                f"min.insync.replicas={replicas}, or add replicas: k reassign-partitions",
            )
        elif least is not None and replicas == least > 1:
            yield Finding(
                WARNING,
                f"topic {topic.name}",
                f"has {replicas} replicas and min.insync.replicas={least}: with one broker down, "
                "records with acks=all are rejected",
                f"k configs --alter --topic {topic.name} --add-config "
                f"min.insync.replicas={replicas - 1}, or add a replica: k reassign-partitions",
            )
        if replicas == 1 and len(snapshot.brokers) > 1:
            single.append(topic.name)
    if single:
        yield Finding(
            WARNING,
            _list_of(single, "topic"),
            "on one broker only: if it is down they are unavailable, and if its disk fails they "
            "are lost",
            "add replicas: k reassign-partitions",
        )


def clocks(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Yield partitions with records from the future, due to a producer's clock, or the broker's."""
    for key, newest in sorted(snapshot.newest_ms.items()):
        if newest > snapshot.now_ms + CLOCK_MS:
            ahead_s = (newest - snapshot.now_ms) / 1000
            yield Finding(
                WARNING,
                str(key),
                f"has a record {ahead_s:,.0f} s ahead of this machine's clock: retention by time "
                "keeps it, and all before it in its segment, that much longer",
                "set the clocks of producers, brokers and this machine by NTP",
            )


def groups(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Yield groups that stay in a rebalance, or whose members make no progress."""
    for name, group in sorted(snapshot.groups.items()):
        if group.state in REBALANCING and group.later_state in REBALANCING:
            yield Finding(
                WARNING,
                f"group {name}",
                f"stays in state {group.later_state}",
                "a member may be slow to join again: max.poll.interval.ms bounds that; "
                f"k consumer-groups --describe --members --group {name}",
            )
            continue
        stuck = {
            partition: lag
            for partition, lag in lags(snapshot, group).items()
            if group.after.get(partition) == group.before[partition]
        }
        if stuck:
            first, lag = max(stuck.items(), key=lambda item: item[1])
            yield Finding(
                WARNING,
                f"group {name}",
                f"does not move in {_count(len(stuck), 'partition')} of {len(group.before)}: "
                f"{first} is {lag:,} behind",
                "check what its members wait for: k consumer-groups --describe --members --group "
                f"{name}",
            )


def transactions(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Yield transactions that block readers of read_committed."""
    kept_back = {p for p, end in snapshot.stable_ends.items() if end < snapshot.ends.get(p, 0)}
    explained: set[TopicPartition] = set()
    for transaction in snapshot.transactions:
        explained.update(transaction.partitions)
        if transaction.open_ms > transaction.timeout_ms + SLOW_TRANSACTION_MS:
            yield Finding(
                ERROR,
                f"transaction {transaction.transactional_id}",
                f"is {transaction.state} after {transaction.open_ms / 1000:,.0f} s, with a timeout "
                f"of {transaction.timeout_ms / 1000:,.0f} s; readers of read_committed wait in "
                f"{_list_of(map(str, transaction.partitions), 'partition')}",
                f"k transactions describe --transactional-id {transaction.transactional_id}; its "
                "coordinator cannot reach the leaders of these partitions, or cannot write",
            )
    for key in sorted(kept_back - explained):
        yield Finding(
            ERROR,
            str(key),
            f"keeps readers of read_committed back at {snapshot.stable_ends[key]} of "
            f"{snapshot.ends[key]}, and no coordinator knows of a transaction there",
            "k transactions find-hanging, then k transactions abort",
        )


def versions(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Yield a finding if brokers support different versions of the protocol."""
    kinds: defaultdict[tuple[tuple[int, tuple[int, int]], ...], list[BrokerId]] = defaultdict(list)
    for broker, offered in sorted(snapshot.api_versions.items()):
        kinds[tuple(sorted(offered.items()))].append(broker)
    if len(kinds) > 1:
        sides = " and ".join(_list_of(map(str, of), "broker") for of in kinds.values())
        yield Finding(
            WARNING,
            "versions",
            f"{sides} are of different versions",
            "complete the upgrade; k broker-api-versions shows the version of each",
        )


def _partitions(snapshot: ClusterSnapshot) -> Iterator[tuple[TopicPartition, PartitionDescription]]:
    """Yield all partitions, those of internal topics last."""
    topics = snapshot.topics.items()
    for name, topic in sorted(topics, key=lambda item: (item[1].is_internal, item[0])):
        for partition in topic.partitions:
            yield TopicPartition(name, partition.partition), partition


def _setting(snapshot: ClusterSnapshot, topic: str, name: str) -> int | None:
    entry = snapshot.topic_configs.get(topic, {}).get(name)
    return int(entry.value) if entry is not None and entry.value else None


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _list_of(names: Iterable[str], what: str) -> str:
    """Return `topics a, b, c and 4 more`."""
    all_of = list(names)
    rest = len(all_of) - MAX_NAMES
    text = ", ".join(all_of[:MAX_NAMES]) + (f" and {rest} more" if rest > 0 else "")
    return f"{what}{'' if len(all_of) == 1 else 's'} {text}"


CHECKS: Mapping[str, Callable[[ClusterSnapshot], Iterator[Finding]]] = {
    "addresses": addresses,
    "brokers": brokers,
    "partitions": partitions,
    "disks": disks,
    "settings": settings,
    "clocks": clocks,
    "groups": groups,
    "transactions": transactions,
    "versions": versions,
}
