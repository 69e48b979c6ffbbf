"""`k client-metrics`: refused, with its reason and with where figures are found instead."""

from __future__ import annotations

from types import SimpleNamespace

from kcli.command import Manual, command
from kcli.options import Refused, cluster, option, together

REASON = (
    "brokers of k collect no metrics from clients (KIP-714), so no subscriptions are kept; "
    "a broker's own figures are at /metrics of its metrics listener, a client's with the client"
)

MANUAL = Manual(
    kafka="kafka-client-metrics.sh",
    differences=(
        "Every action is refused with exit status 1: brokers of k collect no metrics from clients "
        "(KIP-714), and against others k does not speak these requests.",
    ),
    see_also=("k-broker-api-versions",),
)


@command(manual=MANUAL)
@together(
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
def client_metrics(given: SimpleNamespace) -> int:
    """Says why subscriptions to clients' metrics cannot be kept, and where figures are found.

    The options are those of kafka-client-metrics.sh, so that a script that calls it is told the
    reason and not that an option is unknown.
    """
    raise Refused(REASON)
