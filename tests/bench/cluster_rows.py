"""Rows of clusters: three brokers, ours next to those of two Apache releases.

Each row starts its own clusters in their own directories. After a kill, time is measured from the
signal to the acknowledgement, with acks=all, of a record that was sent after the signal.
"""

from __future__ import annotations

import itertools
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.bench import clients
from tests.bench.clusters import ALL_IN_SYNC, Cluster, running
from tests.bench.figures import at_least_times, at_most, at_most_times
from tests.bench.load import Outcome
from tests.bench.machine import BenchError
from tests.bench.row import Row, Work
from tests.bench.servers import OURS, Server
from tests.bench.shapes import MESSAGE_BYTES
from tests.bench.size_rows import IDLE_S, QUIET, SETTLE_S, during

MESSAGES_S = 60_000
"""Approximate rate of a producer; sets the number of messages for each second of a run."""
WARM_UP = 100_000
"""Messages before those of the producer's JVM are counted."""
FILL_BYTES = 1 << 28
KILLS_A_SECOND = 7
"""Kills of each role in our cluster for each of a run's seconds: 21 with the default --seconds."""
KILLS_OF_A_RIVAL = 1
"""The same for a rival's cluster, where each kill takes ten seconds or more."""
PARTITIONS = 1000
MEMBERS, GROUPS = (3, 30), 3
"""Group sizes, and how many groups of each size lose their coordinator."""
PRODUCER, GROUP = "tests.bench.python.failover", "tests.bench.python.group_failover"

ONE_S, THREE_S = "messages/s, 1 partition", "messages/s, 3 partitions"
CPU_GB = "brokers' CPU s/GB"
P50, P99 = "p50 us, one in flight", "p99 us, one in flight"
MB = "MB a broker"
LED_AGAIN, IDLE_CORE = "s to all led again", "% of a core a broker, idle"
FIRST = "s to first record"
PRODUCE_1, PRODUCE_2 = "MB/s in, 1 broker", "MB/s in, 2 brokers"
FETCH_1, FETCH_2 = "MB/s out, 1 broker", "MB/s out, 2 brokers"


@contextmanager
def alone(work: Work, server: Server, count: int = 3, *, warm: bool = True) -> Iterator[Cluster]:
    """Start a new cluster of the server's kind; remove its data at the end."""
    directory = new_directory(work)
    try:
        with running(server.kind, directory, count) as cluster:
            if warm:
                warm_up(work, cluster)
            yield cluster
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def new_directory(work: Work) -> Path:
    return work.directory / f"cluster-{time.monotonic_ns()}"


def warm_up(work: Work, cluster: Cluster) -> None:
    """Let each broker lead and follow for a while."""
    step_s = cluster.kind.warm_up_s / len(cluster.brokers) / 2
    for id_, broker in cluster.brokers.items():
        topic = cluster.create(1, leader=id_)
        for batch, in_flight in (("16k", 5), ("1", 1)):
            work.load.produce(
                broker, topic, batch, seconds=step_s, in_flight=in_flight, acks=ALL_IN_SYNC
            )


def produce(work: Work, server: Server, _: str) -> Mapping[str, float]:
    messages = WARM_UP + int(MESSAGES_S * work.seconds)
    with alone(work, server) as cluster:
        used, rates = 0.0, {}
        for figure, partitions in ((ONE_S, 1), (THREE_S, 3)):
            topic = cluster.create(partitions)
            before = cluster.cpu_s()
            rates[figure] = clients.perf_test(
                cluster.kind.name, cluster.address, topic, messages, WARM_UP
            )
            used += cluster.cpu_s() - before
            arrived = cluster.end_offsets(topic)
            if arrived != messages:
                raise BenchError(f"of {messages} messages {arrived} reached {cluster.kind.name}")
        (led, *_) = cluster.brokers
        topic = cluster.create(1, leader=led)
        one = work.load.produce(
            cluster.brokers[led], topic, "1", seconds=work.seconds, in_flight=1, acks=ALL_IN_SYNC
        )
        return rates | {
            CPU_GB: used / (2 * messages * MESSAGE_BYTES / 1e9),
            P50: one.p50_us,
            P99: one.p99_us,
            MB: statistics.mean(broker.resident_mb() for broker in cluster.brokers.values()),
        }


def killed(cluster: Cluster, leads: bool, is_controller: bool, *, terminate: bool) -> float:
    """End a broker of these roles; return the seconds from the signal to the next
    acknowledgement."""
    controller = cluster.controller()
    other = next(id_ for id_ in cluster.brokers if id_ != controller)
    leader = controller if leads and is_controller else other
    topic = cluster.create(1, leader=leader)
    cluster.until_whole(topic)
    victim = leader if leads else controller
    words = [cluster.address, topic]
    with clients.Timeline(cluster.kind.name, PRODUCER, words) as acknowledged:
        began = time.monotonic()
        if terminate:
            cluster.terminate(victim)
        else:
            cluster.brokers[victim].kill()
        found = acknowledged.next_after(began)
    cluster.bring_back(victim, topic)
    return found


ROLES = {
    "leader": (True, False, False),
    "controller": (False, True, False),
    "both": (True, True, False),
    "leader, SIGTERM": (True, False, True),
}
"""Flags of the broker that is ended: leader, controller, and SIGTERM instead of kill -9."""


def failover(work: Work, server: Server, _: str) -> Mapping[str, float]:
    kills = KILLS_A_SECOND if server.kind is OURS else KILLS_OF_A_RIVAL
    times = max(1, round(kills * work.seconds))
    found: dict[str, float] = {}
    with alone(work, server) as cluster:
        for role, (leads, is_controller, terminate) in ROLES.items():
            took = [
                killed(cluster, leads, is_controller, terminate=terminate) for _ in range(times)
            ]
            found |= {p50_s(role): statistics.median(took), worst_s(role): max(took)}
    return found


def groups(work: Work, server: Server, _: str) -> Mapping[str, float]:
    found: dict[str, float] = {}
    with alone(work, server) as cluster:
        for members in MEMBERS:
            figures = [group_failover(cluster, members, f"{members}-{n}") for n in range(GROUPS)]
            seconds, doubled = zip(*figures, strict=True)
            found |= {
                read_again_s(members): statistics.median(seconds),
                worst_s(f"{members} members"): max(seconds),
                doubled_of(members): max(doubled),
            }
    return found


def group_failover(cluster: Cluster, members: int, group: str) -> tuple[float, float]:
    """Kill the group's coordinator, which is not the controller.

    Returns the seconds until each member has read and committed again, and the number of records
    that were read twice.
    """
    topic = cluster.create(members)
    cluster.until_whole(topic)
    controller = cluster.controller()
    names = (f"{group}-{number}" for number in itertools.count())
    name, victim = next(
        (name, id_) for name in names if (id_ := cluster.coordinator(name)) != controller
    )
    words = [cluster.address, topic, name, str(members)]
    with clients.Timeline(cluster.kind.name, GROUP, words) as committed:
        began = time.monotonic()
        cluster.brokers[victim].kill()
        found = committed.next_after(began)
        cluster.bring_back(victim, topic)
        figures = committed.end()
    if figures["skipped"]:
        raise BenchError(f"{cluster.kind.name}: records that no member read: {figures}")
    return found, figures["doubled"]


def read_again_s(members: int) -> str:
    return f"{members} members: p50 s"


def doubled_of(members: int) -> str:
    return f"{members} members: records read twice"


def p50_s(role: str) -> str:
    return f"{role}: p50 s"


def worst_s(role: str) -> str:
    return f"{role}: worst s"


def partitions(work: Work, server: Server, _: str) -> Mapping[str, float]:
    """Measure a broker with many partitions: idle, and from the death of another one (not the
    controller) until the others serve all partitions that it led."""
    with alone(work, server, warm=False) as cluster:
        topic = cluster.create(PARTITIONS)
        cluster.until_whole(topic)
        idle = idle_core(cluster)
        mb = statistics.mean(broker.resident_mb() for broker in cluster.brokers.values())
        controller = cluster.controller()
        victim = next(id_ for id_ in cluster.brokers if id_ != controller)
        others = set(cluster.brokers) - {victim}
        began = time.perf_counter()
        cluster.brokers[victim].kill()
        cluster.until(lambda: cluster.is_led(topic, PARTITIONS, others), "is not led again")
        cluster.until(lambda: cluster.serves(topic), "does not serve what it leads")
        took = time.perf_counter() - began
    return {LED_AGAIN: took, IDLE_CORE: idle, MB: mb}


def idle_core(cluster: Cluster) -> float:
    """Return a broker's CPU use, in percent of a core, once the cluster has settled."""
    ends = time.monotonic() + SETTLE_S
    while cores(cluster, 1) > QUIET and time.monotonic() < ends:
        pass
    return cores(cluster, IDLE_S) * 100


def cores(cluster: Cluster, seconds: float) -> float:
    """Return the average CPU use of a broker, in cores, over the next `seconds`."""
    before = cluster.cpu_s()
    time.sleep(seconds)
    return (cluster.cpu_s() - before) / seconds / len(cluster.brokers)


def start(work: Work, server: Server, _: str) -> Mapping[str, float]:
    directory = new_directory(work)
    cluster = Cluster(server.kind, directory)
    try:
        return {FIRST: cluster.start()}
    finally:
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)


def scale(work: Work, server: Server, _: str) -> Mapping[str, float]:
    """Produce batches of 16 KB, then fetch 64 KB at a time, with two connections to each broker, on
    topics without other replicas whose partitions it leads."""
    found: dict[str, float] = {}
    with alone(work, server, 2) as cluster:
        topics = {id_: cluster.create(2, leader=id_, replicas=1) for id_ in cluster.brokers}

        def put(id_: int) -> Outcome:
            return work.load.produce(
                cluster.brokers[id_],
                topics[id_],
                "16k",
                seconds=work.seconds,
                connections=2,
                partitions=2,
            )

        def take(id_: int) -> Outcome:
            return work.load.fetch(
                cluster.brokers[id_],
                topics[id_],
                seconds=work.seconds,
                max_bytes=1 << 16,
                connections=2,
                partitions=2,
            )

        for figures, act in (((PRODUCE_1, PRODUCE_2), put), ((FETCH_1, FETCH_2), take)):
            for figure, ids in zip(figures, ((1,), (1, 2)), strict=True):
                found[figure] = together(act, ids)
    return found


def together(act: Callable[[int], Outcome], ids: tuple[int, ...]) -> float:
    """Return the sum of the MB/s of the brokers `ids`, loaded at the same time."""
    outcomes: list[Outcome] = []
    first, *others = ids
    if not others:
        return act(first).megabytes_s
    (second,) = others
    with during(lambda: outcomes.append(act(second))):
        outcomes.append(act(first))
    return sum(outcome.megabytes_s for outcome in outcomes)


ROWS = (
    Row(
        "cluster-produce",
        "three brokers, 3 replicas, acks=all: kafka-producer-perf-test.sh with messages of 200"
        " bytes; one record a request on one connection; memory after it",
        produce,
        {
            ONE_S: at_least_times(2),
            THREE_S: at_least_times(2),
            CPU_GB: at_most_times(0.5),
            P50: at_most_times(1),
            P99: at_most_times(1),
            MB: at_most(150),
        },
        of_cluster=True,
    ),
    Row(
        "cluster-failover",
        "from kill -9 (SIGTERM where it says so) of the leader, the controller or both in one to"
        " the next acknowledgement of k's producer",
        failover,
        {
            figure: at_most(bound)
            for role in ROLES
            for figure, bound in (
                ((p50_s(role), 0.2), (worst_s(role), 1))
                if "SIGTERM" in role
                else ((p50_s(role), 0.5), (worst_s(role), 1))
            )
        },
        of_cluster=True,
    ),
    Row(
        "cluster-groups",
        "groups of 3 and 30 consumers of librdkafka: from kill -9 of the coordinator until each"
        " member has read and committed again, and the records that were read twice",
        groups,
        {
            figure: bound
            for members in MEMBERS
            for figure, bound in (
                (read_again_s(members), at_most_times(1)),
                (worst_s(f"{members} members"), at_most_times(1)),
                (doubled_of(members), None),
            )
        },
        of_cluster=True,
    ),
    Row(
        "cluster-partitions",
        "1,000 partitions of 3 replicas: idle, and after kill -9 of a broker that led a third",
        partitions,
        {LED_AGAIN: at_most(2), IDLE_CORE: at_most(3), MB: at_most(150)},
        of_cluster=True,
    ),
    Row(
        "cluster-start",
        "three brokers' first start, ZooKeeper's aside, to the first record that all of them have",
        start,
        {FIRST: at_most(2)},
        of_cluster=True,
    ),
    Row(
        "cluster-scale",
        "one broker and two, one replica: batches of 16 KB in, 64 KB at a time out",
        scale,
        dict.fromkeys((PRODUCE_1, PRODUCE_2, FETCH_1, FETCH_2)),
        of_cluster=True,
    ),
)
