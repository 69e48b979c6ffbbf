"""`k preferred-election`: elects preferred replicas as leaders, like the tool of Kafka 2.8."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kcli.command.command import Manual, Options, command
from kcli.command.command_runner import CLUSTER, EXPECTED, admin_config, run
from kcli.command.options import (
    Refused,
    cluster,
    dry_run,
    is_set,
    older_config,
    option,
    option_group,
    refuse,
)
from kcli.command.output import print_output, would
from kcli.command.statuses import DONE
from kcli.partitions.leader_elections import ElectionWords, preview, print_outcomes, print_refusal
from kcli.partitions.partition_files import PartitionFileWords, read_partitions
from kserver.errors import StorageError
from kserver.model import ElectionType, TopicPartition

if TYPE_CHECKING:
    from kazoo.client import KazooClient

DEPRECATED = (
    "This tool is deprecated. Please use kafka-leader-election tool. Tracking issue: KAFKA-8405"
)
ZOOKEEPER_DEPRECATED = (
    "Warning: --zookeeper is deprecated and will be removed in a future version of Kafka.\n"
    "Use --bootstrap-server instead to specify a broker to connect to."
)
FILE = PartitionFileWords(
    "Preferred replica election data", "is empty", list_format="{}", separator=","
)
WORDS = ElectionWords(
    "preferred leader election", "Preferred replica already elected", "preferred replica(s)"
)
API_TIMEOUT_MS, REQUEST_TIMEOUT_MS = "60000", "30000"
SESSION_TIMEOUT_S = 30.0

MANUAL = Manual(
    kafka="kafka-preferred-replica-election.sh",
    examples=(
        ("k preferred-election", "Every partition is led by its first replica, if possible."),
        (
            "k preferred-election --zookeeper localhost:2181 --path-to-json-file partitions.json",
            "Request the election of an old cluster through ZooKeeper.",
        ),
    ),
    differences=(
        "The script is that of Kafka 2.8.2, the last that had it; k leader-election does the same "
        "and more.",
        "Partitions are printed in the order of their names.",
        "The line about partitions whose preferred replica already leads names these partitions; "
        "the script names those that it has elected.",
        "--zookeeper supports neither login nor TLS.",
    ),
    see_also=("k-leader-election", "k-topics"),
)


@command(manual=MANUAL)
@option_group(
    option(
        "--path-to-json-file",
        'The partitions of a file: {"partitions": [{"topic": "foo", "partition": 1}]}.  Default: '
        "all that there are.",
        "FILE",
    ),
    option(
        "--zookeeper",
        "Request the election through the cluster's ZooKeeper, and do not wait for its outcome.",
        "HOST:PORT,...[/CHROOT]",
    ),
    dry_run,
    cluster,
    older_config("--admin.config"),
)
def preferred_election(options: Options) -> int:
    """Makes the first replica of each partition its leader, if it is in sync.

    By default the request is sent to the controller, and its response is printed.
    """
    if is_set(options, "zookeeper"):
        if is_set(options, "bootstrap-server"):
            refuse("Exactly one of '[bootstrap-server]' or '[zookeeper]' must be provided")
        if is_set(options, "command-config"):
            text = "are unavailable given other options on the command line"
            refuse(f"Option(s) [command-config] {text}: --zookeeper")
    print_output(DEPRECATED)
    file = options.path_to_json_file
    partitions = None if file is None else read_partitions(file, FILE)
    if options.zookeeper is not None:
        print_output(ZOOKEEPER_DEPRECATED)
        return _through_zookeeper(options, partitions)
    try:
        return run(_elect(options, partitions), options.timeout, CLUSTER)
    except EXPECTED as error:
        print_refusal(error)
        raise


async def _elect(options: Options, partitions: Sequence[TopicPartition] | None) -> int:
    from kcli.client.admin.admin import Admin

    config = admin_config(
        options, default_api_timeout_ms=API_TIMEOUT_MS, request_timeout_ms=REQUEST_TIMEOUT_MS
    )
    async with Admin(config) as admin:
        if options.dry_run:
            return await preview(admin, ElectionType.PREFERRED, partitions)
        return print_outcomes(await admin.elect_leaders(ElectionType.PREFERRED, partitions), WORDS)


def _through_zookeeper(options: Options, partitions: Sequence[TopicPartition] | None) -> int:
    from kazoo.client import KazooClient
    from kazoo.exceptions import KazooException
    from kazoo.handlers.threading import KazooTimeoutError

    from kcli.zookeeper_shell import NOBODY, look

    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    look(options.zookeeper)
    timeout_s = options.timeout or SESSION_TIMEOUT_S
    try:
        client = KazooClient(options.zookeeper, timeout=timeout_s)
    except ValueError as error:
        raise Refused(f"--zookeeper {options.zookeeper}: {error}") from error
    try:
        client.start(timeout_s)
        return _leave_note(options, client, partitions)
    except KazooTimeoutError as error:
        raise Refused(NOBODY.format(options.zookeeper)) from error
    except KazooException as error:
        text = str(error) or type(error).__name__
        raise Refused(f"ZooKeeper at {options.zookeeper} refused it: {text}") from error
    finally:
        client.stop()
        client.close()


def _leave_note(
    options: Options, client: KazooClient, partitions: Sequence[TopicPartition] | None
) -> int:
    from kazoo.exceptions import NodeExistsError, NoNodeError

    from kserver import znodes

    there = _partitions(
        client, None if partitions is None else {partition.topic for partition in partitions}
    )
    noted = sorted(there if partitions is None else there & set(partitions))
    if options.dry_run:
        would(f"create {znodes.PREFERRED_ELECTION} with {_joined_names(noted, ',')}")
    else:
        try:
            client.create(znodes.PREFERRED_ELECTION, znodes.encode_partitions(noted))
        except NodeExistsError as error:
            try:
                under_way = znodes.decode_preferred_election(
                    client.get(znodes.PREFERRED_ELECTION)[0]
                )
            except (NoNodeError, StorageError):
                under_way = []  # it has just ended, or cannot be read
            raise Refused(
                "Preferred replica leader election currently in progress for "
                f"{_joined_names(under_way, ',')}. Aborting operation"
            ) from error
        print_output(f"Created preferred replica election path with {_joined_names(noted, ',')}")
        listed = _joined_names(noted, ", ")
        print_output(
            f"Successfully started preferred replica election for partitions Set({listed})"
        )
    for partition in sorted(set(partitions or ()) - there):
        print_output(
            f"Skipping preferred replica leader election for partition {partition} since it "
            "doesn't exist."
        )
    return DONE


def _partitions(client: KazooClient, topics: set[str] | None) -> set[TopicPartition]:
    """Return the partitions of these topics, or of all."""
    from kazoo.exceptions import NoNodeError

    from kserver import znodes

    try:
        names = set(client.get_children(znodes.TOPICS))
    except NoNodeError as error:
        raise Refused(
            f"ZooKeeper has no {znodes.TOPICS} there: add the cluster's chroot, as in "
            "HOST:PORT/kafka"
        ) from error
    existing: set[TopicPartition] = set()
    for name in names if topics is None else names & topics:
        try:
            data, _ = client.get(znodes.topic_path(name))
            numbers = znodes.decode_topic(name, data).replicas
        except NoNodeError:
            continue  # it has just been deleted
        except StorageError as error:
            raise Refused(str(error)) from error
        existing |= {TopicPartition(name, number) for number in numbers}
    return existing


def _joined_names(partitions: Sequence[TopicPartition], between: str) -> str:
    return between.join(map(str, partitions))
