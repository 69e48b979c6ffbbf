"""A group member with confluent-kafka."""

from __future__ import annotations

from confluent_kafka import Consumer
from events import options, stopped_by_sigterm, tell, tell_partitions, tell_record


def main() -> None:
    given = options()
    settings = {
        "bootstrap.servers": given.bootstrap_server,
        "group.id": given.group_id,
        "group.protocol": given.group_protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 50,
        "log_level": 0,
    }
    if given.group_protocol == "classic":
        settings["session.timeout.ms"] = given.session_timeout
        settings["heartbeat.interval.ms"] = min(given.session_timeout // 3, 500)
    if given.assignment_strategy:
        settings["partition.assignment.strategy"] = given.assignment_strategy
    if given.group_instance_id:
        settings["group.instance.id"] = given.group_instance_id
    consumer = Consumer(settings)
    stopped = stopped_by_sigterm()
    consumer.subscribe(
        [given.topic],
        on_assign=lambda _, partitions: tell_partitions("partitions_assigned", partitions),
        on_revoke=lambda _, partitions: tell_partitions("partitions_revoked", partitions),
        on_lost=lambda _, partitions: tell_partitions("partitions_revoked", partitions),
    )
    while not stopped.is_set():
        read = [m for m in consumer.consume(100, timeout=0.1) if m.error() is None]
        for message in read:
            tell_record(message.topic(), message.partition(), message.offset(), message.value())
        if read:
            # After a refused commit the records are read again by the member that owns the
            # partition now.
            consumer.commit(asynchronous=True)
    consumer.close()
    tell("shutdown_complete")


main()
