"""The servers of a cluster on this machine: directories, ports, and the keys of each.

Pure: values in, keys and texts out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

HOST = "127.0.0.1"
REPLICAS = 3
"""The default replication factor of topics, and that of the cluster's own topics; fewer if there
are fewer brokers.
"""
SESSION_MS = 6000
"""Long enough for a busy machine; a killed broker is detected sooner."""
TICK_MS = 500
LAST_PORT = 65535

OWN_KEYS = {
    "broker.id": "each broker has its own",
    "node.id": "each broker has its own",
    "broker.id.generation.enable": "each broker has its own id",
    "process.roles": "ZooKeeper coordinates the brokers",
    "listeners": "use --port to choose where the brokers listen",
    "advertised.listeners": "use --port to choose where the brokers listen",
    "listener.security.protocol.map": "use --port to choose where the brokers listen",
    "inter.broker.listener.name": "use --port to choose where the brokers listen",
    "security.inter.broker.protocol": "use --port to choose where the brokers listen",
    "host.name": f"the brokers listen at {HOST}",
    "advertised.host.name": f"the brokers listen at {HOST}",
    "port": "use --port to choose where the brokers listen",
    "advertised.port": "use --port to choose where the brokers listen",
    "log.dir": "use --data to choose the directory of the data",
    "log.dirs": "use --data to choose the directory of the data",
    "zookeeper.connect": "the cluster has a ZooKeeper of its own",
}
"""Keys of server.properties that cannot be one value for all brokers, each with the reason."""
HTTP = "http.listener"


@dataclass(frozen=True, slots=True)
class LocalClusterPlan:
    """`port` is that of broker 1, and 0 means a free one for each; `overrides` are keys of
    server.properties for all brokers.
    """

    count: int
    port: int
    directory: str
    overrides: Mapping[str, str] = field(default_factory=dict)

    @property
    def ids(self) -> range:
        return range(1, self.count + 1)

    def port_of(self, id: int) -> int:
        return self.port and self.port + id - 1

    def broker(self, id: int, address: str, zookeeper: str) -> list[str]:
        """Return the keys of a broker that listens at `address` (HOST:PORT), each `key=value`."""
        own = {
            "broker.id": str(id),
            "listeners": f"PLAINTEXT://{address}",
            "log.dirs": f"{self.directory}/broker-{id}",
            "zookeeper.connect": zookeeper,
        }
        config = broker_defaults(self.count) | dict(self.overrides) | own
        return [f"{key}={value}" for key, value in config.items()]

    def zookeeper(self, address: str) -> str:
        """Return the text of its zookeeper.properties."""
        return zookeeper_properties(f"{self.directory}/zookeeper", address)

    def problem(self) -> str | None:
        """Return why this cannot be started on any machine, or None."""
        if self.port and self.port_of(self.count) > LAST_PORT:
            return (
                f"--port {self.port} is too high for {self.count} brokers: the last would listen "
                f"at port {self.port_of(self.count)}, and {LAST_PORT} is the highest port; choose "
                "a lower --port"
            )
        for key in self.overrides:
            if key in OWN_KEYS:
                return f"--override {key} is not supported: {OWN_KEYS[key]}"
        http = self.overrides.get(HTTP)
        if http is not None and self.count > 1 and not http.endswith(":0"):
            return (
                f"--override {HTTP}={http} would have all brokers listen at one port:"
                f" {HTTP}={http.rpartition(':')[0]}:0 takes a free one for each, which is logged"
            )
        return None


def broker_defaults(count: int) -> dict[str, str]:
    """Return keys for the brokers of a cluster of `count` brokers."""
    replicas = str(min(REPLICAS, count))
    return {
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": "2" if count >= REPLICAS else "1",
        "zookeeper.session.timeout.ms": str(SESSION_MS),
        # Here groups start one at a time: a wait for more members would only delay them.
        "group.initial.rebalance.delay.ms": "0",
    }


def zookeeper_properties(directory: str, address: str) -> str:
    host, _, port = address.rpartition(":")
    return (
        f"dataDir={directory}\nclientPort={port}\nclientPortAddress={host}\n"
        f"tickTime={TICK_MS}\nmaxClientCnxns=0\n4lw.commands.whitelist=*\n"
    )


def data_problem(directory: str, clusters: Mapping[int, str], *, has_zookeeper: bool) -> str | None:
    """Return why the data in a directory cannot be used, or None; `clusters` has the cluster id in
    each broker's data.
    """
    brokers = ", ".join(f"broker-{id}" for id in sorted(clusters))
    if clusters and not has_zookeeper:
        return (
            f"--data {directory} has the data of {brokers}, but not of their ZooKeeper:"
            f" restore {directory}/zookeeper, or choose another directory"
        )
    if len(set(clusters.values())) > 1:
        listed = ", ".join(f"broker-{id} {name}" for id, name in sorted(clusters.items()))
        return (
            f"--data {directory} has the data of different clusters ({listed}): move the data of"
            " the other cluster away, or choose another directory"
        )
    return None


def left_alone(names: Sequence[str], count: int) -> list[int]:
    """Return the brokers beyond `count` that have data among these names of a cluster's
    directory.
    """
    ids = (name.removeprefix("broker-") for name in names if name.startswith("broker-"))
    return sorted(int(id) for id in ids if id.isdecimal() and int(id) > count)
