"""`k storage`: rebuilds a lost metadata store from the logs, and gives up lost records."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import click

from kcli.command.command import Integer, Manual, Options, command
from kcli.command.options import Refused, option, option_group, refuse, require
from kcli.command.output import print_output

if TYPE_CHECKING:
    from kserver.config.broker import BrokerConfig

MANUAL = Manual(
    kafka="kafka-storage.sh",
    examples=(
        ("k storage rebuild server.properties", "After coordination.msgpack was lost."),
        (
            "k storage rebuild --override log.dirs=/data/k",
            "For a broker that runs without a file.",
        ),
        (
            "k storage accept-loss server.properties --topic orders --partition 3",
            "A disk is lost for good, and no other replica has its records.",
        ),
    ),
    environment=(("XDG_DATA_HOME", "Parent of the data directory, k, if no file is given."),),
    statuses=(
        (0, "The store was written, or the checkpoints no longer name the lost records."),
        (1, "The action failed; the reason is on standard error.  rebuild has changed nothing."),
    ),
    differences=(
        "Kafka's script formats the directories of KRaft; there is nothing to format here.  "
        "rebuild and accept-loss are this broker's own.",
    ),
    see_also=("k-server-start", "kserver.properties(5)"),
)

REBUILD, ACCEPT_LOSS = ACTIONS = ("rebuild", "accept-loss")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@command(manual=MANUAL)
@click.argument("words", nargs=-1, metavar="rebuild|accept-loss [server.properties]")
@option_group(
    option("--topic", "With accept-loss: the topic.", "TOPIC"),
    option("--partition", "With accept-loss: the partition.", "NUMBER", type=Integer(32)),
    option(
        "--override",
        "A config that overrides the file.  Repeatable.",
        "KEY=VALUE",
        multiple=True,
    ),
)
def storage(options: Options) -> int:
    """Rebuilds a lost metadata store, or lets a partition begin without records it has lost.

    rebuild writes the metadata store of a broker without zookeeper.connect from its logs.  The
    logs contain the names, ids, partitions and leader epochs of topics, and the cluster id.  They
    do not contain the configs of topics and brokers, quotas, or the levels of features: set those
    again.  Until then a topic keeps all its records (retention.ms=-1), unless it was compacted:
    then it is compacted again.  The store must not exist.

    accept-loss is for a partition that the broker refuses because its log is missing, or because
    the log's first segments, or all of them, are missing.  The next start takes what is left of
    the log.  When nothing is left, the partition begins empty, at the offset after the last one
    that the checkpoints know, or at 0 when its whole log directory is lost.  First try to mount
    the disk, or to start a broker that has another replica in sync.

    The broker must not be running.  The file and the overrides are those of k server-start.
    """
    from kserver.broker import process

    action, *files = options.words or ("",)
    if action not in ACTIONS or len(files) > 1:
        refuse(f"name an action, {' or '.join(ACTIONS)}, and at most one file after it")
    config = process.load(files[0] if files else None, options.override)
    return _rebuild(config) if action == REBUILD else _accept_loss(config, options)


def _rebuild(config: BrokerConfig) -> int:
    from kserver.broker import process
    from kserver.broker.rebuild import Rebuild
    from kserver.errors import StorageError
    from kserver.world.embedded import EmbeddedZooKeeper

    world = process.real_world(config)
    if not isinstance(world.zookeeper, EmbeddedZooKeeper):
        refuse(
            f"zookeeper.connect={config.zookeeper_connect}: the topics are stored there, so there "
            "is no store to rebuild"
        )
    try:
        topics = asyncio.run(Rebuild(world, config, world.zookeeper).run())
    except StorageError as error:
        raise Refused(str(error)) from None
    for topic in topics:
        line = f"{topic.name}: {topic.partitions} partition(s)"
        if topic.missing:
            line += (
                f", of which {', '.join(map(str, topic.missing))} had no log and will be empty, or"
                " refused where a checkpoint names it"
            )
        print_output(line)
    print_output(f"{world.zookeeper.path} has {len(topics)} topic(s); set their configs again.")
    return 0


def _accept_loss(config: BrokerConfig, options: Options) -> int:
    from kserver.errors import StorageError
    from kserver.log.directory import LogDirectory
    from kserver.log.missing import accept_loss
    from kserver.model import TopicPartition
    from kserver.world.disk import OsDisk

    require(options, "topic", "partition")
    if options.partition < 0 or not _TOPIC.fullmatch(options.topic):
        refuse(
            f"{options.topic}-{options.partition} is not a valid partition name; correct --topic "
            "and --partition"
        )
    disk = OsDisk()
    topic_partition = TopicPartition(options.topic, options.partition)
    directories = [LogDirectory(disk, path) for path in config.log_directories]
    try:
        path, begin = accept_loss(disk, directories, topic_partition)
    except (OSError, StorageError) as error:
        raise Refused(str(error)) from None
    if begin is None:
        print_output(f"{topic_partition} continues with the records that are left in {path}.")
    else:
        print_output(f"{topic_partition} starts empty at offset {begin}, in {path}.")
    return 0
