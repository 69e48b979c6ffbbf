"""`k client-metrics`: refused, with its reason and with the place of the metrics instead."""

from __future__ import annotations

from kcli.command.command import Manual, Options, command
from kcli.command.options import Refused, cluster, option, option_group

REASON = (
    "brokers of k do not collect metrics from clients (KIP-714), so they store no subscriptions; "
    "read a broker's own metrics at /metrics of its metrics listener, and a client's in the "
    "client"
)

MANUAL = Manual(
    kafka="kafka-client-metrics.sh",
    differences=(
        "Every action is refused with exit status 1: brokers of k do not collect metrics from "
        "clients (KIP-714), and k does not support these requests to other brokers.",
    ),
    see_also=("k-broker-api-versions",),
)


@command(manual=MANUAL)
@option_group(
    option("--list", "Refused."),
    option("--describe", "Refused."),
    option("--alter", "Refused."),
    option("--delete", "Refused."),
    option("--name", "Refused.", "NAME"),
    option("--generate-name", "Refused."),
    option("--interval", "Refused.", "MS"),
    option("--match", "Refused.", "K1=V1,K2=V2"),
    option("--metrics", "Refused.", "M1,M2"),
    cluster,
)
def client_metrics(options: Options) -> int:
    """Explains why subscriptions to clients' metrics are not supported, and where to find metrics.

    The options are those of kafka-client-metrics.sh, so a script that calls it gets this reason and
    not an unknown option error.
    """
    raise Refused(REASON)
