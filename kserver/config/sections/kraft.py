"""Keys of a KRaft quorum, known so that its files can be used as they are."""

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
            "listeners of KRaft controllers; they are left out of listeners and "
            "advertised.listeners"
        ),
    )
    controller_quorum_voters: tuple[str, ...] = setting(
        "controller.quorum.voters", (), doc="controllers, id@host:port; this node alone, if any"
    )
    controller_quorum_bootstrap_servers: tuple[str, ...] = setting(
        "controller.quorum.bootstrap.servers",
        (),
        doc="controllers to find the quorum by; one, if any",
    )
