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
