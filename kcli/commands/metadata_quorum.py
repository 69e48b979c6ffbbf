"""`k metadata-quorum`: refused, with its reason and with another way to find the controller."""

from __future__ import annotations

import click

from kcli.command.command import Manual, Options, command
from kcli.command.options import Refused, cluster, option, option_group

REASON = (
    "The node does not support DESCRIBE_QUORUM: brokers of k have no quorum of their own "
    "(KRaft), ZooKeeper keeps the cluster's metadata; run k doctor to check the cluster, and k "
    "zookeeper-shell ... get /controller to see its controller"
)

MANUAL = Manual(
    kafka="kafka-metadata-quorum.sh",
    differences=(
        "Every action is refused with exit status 1, as by brokers of Kafka 3.9 that have a "
        "ZooKeeper; against controllers of KRaft k does not speak these requests.",
    ),
    see_also=("k-doctor", "k-zookeeper-shell", "k-cluster"),
)


@command(manual=MANUAL)
@click.argument("action", nargs=-1, metavar="describe|add-controller|remove-controller")
@option_group(
    option("--status", "Refused."),
    option("--replication", "Refused."),
    option("--human-readable", "Refused."),
    option("--controller-id", "Refused.", "ID"),
    option("--controller-directory-id", "Refused.", "ID"),
    option("--dry-run", "Refused."),
    option("--bootstrap-controller", "Refused.", "HOST:PORT,..."),
    cluster,
)
def metadata_quorum(options: Options) -> int:
    """Explains why there is no quorum of controllers to describe or to change.

    The options are those of kafka-metadata-quorum.sh, so a script that calls it gets this reason
    and not an unknown option error.
    """
    raise Refused(REASON)
