"""Keys of a KRaft quorum, known so that files written for one can be used unchanged."""

from __future__ import annotations

from kserver.config.known import known_keys
from kserver.config.setting import section, setting


@section
@known_keys("kraft")
class KRaftSettings:
    """KRaft controller."""

    controller_listener_names: tuple[str, ...] = setting(
        "controller.listener.names",
        (),
        doc=(
            "listeners of KRaft controllers; they are ignored in listeners and advertised.listeners"
        ),
    )
    controller_quorum_voters: tuple[str, ...] = setting(
        "controller.quorum.voters",
        (),
        doc="controllers, as id@host:port; either empty or only this node",
    )
    controller_quorum_bootstrap_servers: tuple[str, ...] = setting(
        "controller.quorum.bootstrap.servers",
        (),
        doc="controllers for finding the quorum; at most one",
    )
