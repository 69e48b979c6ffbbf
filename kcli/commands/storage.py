"""`k storage`: a broker's coordination store, made anew from its logs where it was lost."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import click

from kcli.command import Manual, command
from kcli.options import Refused, option, refuse, together
from kcli.output import answer

MANUAL = Manual(
    kafka="kafka-storage.sh",
    examples=(
        ("k storage rebuild server.properties", "After coordination.msgpack was lost."),
        (
            "k storage rebuild --override log.dirs=/data/k",
            "For a broker that runs without a file.",
        ),
    ),
    environment=(("XDG_DATA_HOME", "Where the data lies without a file: its directory k."),),
    statuses=(
        (0, "The store was written."),
        (1, "It could not be; standard error says why, and nothing was changed."),
    ),
    differences=(
        "Kafka's script formats the directories of KRaft; there is nothing to format here, and "
        "only rebuild is taken.",
    ),
    see_also=("k-server-start", "kserver.properties(5)"),
)

ACTION = "rebuild"


@command(manual=MANUAL)
@click.argument("words", nargs=-1, metavar="rebuild [server.properties]")
@together(
    option(
        "--override",
        "A key whose value wins over the file.  Repeatable.",
        "KEY=VALUE",
        multiple=True,
    ),
)
def storage(given: SimpleNamespace) -> int:
    """Rebuilds the coordination store of a broker without zookeeper.connect from its logs.

    The logs have the topics' names, ids, partitions and leader epochs, and the cluster's id.  They
    do not have the settings of topics and brokers, quotas, or the levels of features: set those
    again.  Until then a topic keeps all its records (retention.ms=-1), unless it was compacted:
    then it is compacted again.

    The broker must not run, and the store must not be there.  The file and the overrides are those
    of k server-start.
    """
    from kserver import process
    from kserver.errors import StorageError
    from kserver.rebuild import Rebuild
    from kserver.world.embedded import EmbeddedZooKeeper

    action, *files = given.words or ("",)
    if action != ACTION or len(files) > 1:
        refuse(f"k storage takes the word {ACTION}, and at most a file after it")
    config = process.load(files[0] if files else None, given.override)
    world = process.real_world(config)
    if not isinstance(world.zookeeper, EmbeddedZooKeeper):
        refuse(f"zookeeper.connect={config.zookeeper_connect}: the topics are kept there")
    try:
        topics = asyncio.run(Rebuild(world, config, world.zookeeper).run())
    except StorageError as error:
        raise Refused(str(error)) from None
    for topic in topics:
        line = f"{topic.name}: {topic.partitions} partition(s)"
        if topic.missing:
            line += f", of which {', '.join(map(str, topic.missing))} had no log and will be empty"
        answer(line)
    answer(f"{world.zookeeper.path} has {len(topics)} topic(s); set their settings again.")
    return 0
