"""Test the codec of requests between controller and brokers against bytes that Apache Kafka 3.9.2
wrote (golden/ControlFrames.java), in every version: decoding and encoding must match."""

from pathlib import Path
from uuid import UUID

import pytest

from kserver.errors import ErrorCode, ProtocolError
from kserver.wire import codec, control

CORRELATION_ID = 77
ORDERS, LOGS = (UUID(bytes=a.to_bytes(8) + b.to_bytes(8)) for a, b in ((1, 2), (3, 4)))
TOPICS = (("orders", ORDERS), ("logs", LOGS))
NO_ID = UUID(int=0)

GOLDEN = {}
for line in (Path(__file__).parent / "golden" / "control_frames.txt").read_text().splitlines():
    kind, key, version, digits = line.split()
    GOLDEN[kind, int(key), int(version)] = bytes.fromhex(digits)

CLASSES = {
    ("request", 4): control.LeaderAndIsrRequest,
    ("answer", 4): control.LeaderAndIsrResponse,
    ("request", 5): control.StopReplicaRequest,
    ("answer", 5): control.StopReplicaResponse,
    ("request", 6): control.UpdateMetadataRequest,
    ("answer", 6): control.UpdateMetadataResponse,
    ("request", 7): control.ControlledShutdownRequest,
    ("answer", 7): control.ControlledShutdownResponse,
}


def leader_and_isr(version):
    def partition(index):
        return control.LeaderAndIsrPartitionState(
            index, 5, 2, 6 + index, (2, 3), 7, (2, 3, 4),
            adding_replicas=(4,) if version >= 3 else (),
            removing_replicas=(3,) if version >= 3 else (),
            is_new=version >= 1 and index == 1,
            leader_recovery_state=index if version >= 6 else 0,
        )  # fmt: skip

    return control.LeaderAndIsrRequest(
        controller_id=1,
        controller_epoch=5,
        topic_states=tuple(
            control.LeaderAndIsrTopicState(
                name, topic_id if version >= 5 else NO_ID, (partition(0), partition(1))
            )
            for name, topic_id in TOPICS
        ),
        live_leaders=(control.LeaderAndIsrLiveLeader(2, "h\u00f6st", 9092),),
        broker_epoch=99 if version >= 2 else -1,
    )


def stop_replica(version):
    def partition(index):
        epoch, is_deleted = (8, index == 1) if version >= 3 else (-1, True)
        return control.StopReplicaPartitionState(index, epoch, is_deleted)

    return control.StopReplicaRequest(
        controller_id=1,
        controller_epoch=5,
        topic_states=tuple(
            control.StopReplicaTopicState(name, (partition(0), partition(1))) for name, _ in TOPICS
        ),
        broker_epoch=99 if version >= 1 else -1,
    )


def update_metadata(version):
    def partition(index):
        return control.UpdateMetadataPartitionState(
            index, 5, -2 + index, 6, (2,), 7, (2, 3), (3,) if version >= 4 else ()
        )

    def endpoint(port, listener, protocol):
        return control.UpdateMetadataEndpoint(port, "h\u00f6st", listener, protocol)

    second = [endpoint(9093, "IN" if version >= 3 else "SSL", 1)] if version >= 1 else []
    return control.UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=5,
        topic_states=tuple(
            control.UpdateMetadataTopicState(
                name, topic_id if version >= 7 else NO_ID, (partition(0), partition(1))
            )
            for name, topic_id in TOPICS
        ),
        live_brokers=(
            control.UpdateMetadataBroker(
                2, (endpoint(9092, "PLAINTEXT", 0), *second), "r1" if version >= 2 else None
            ),
            control.UpdateMetadataBroker(3, (endpoint(9094, "PLAINTEXT", 0),)),
        ),
        broker_epoch=99 if version >= 5 else -1,
    )


def expected(kind, key, version):
    match kind, key:
        case "request", 4:
            return leader_and_isr(version)
        case "request", 5:
            return stop_replica(version)
        case "request", 6:
            return update_metadata(version)
        case "request", 7:
            return control.ControlledShutdownRequest(2, 99 if version >= 2 else -1)
        case "answer", 4:
            errors = (control.LeaderAndIsrPartitionError(1, ErrorCode.kafka_storage_error),)
            topic = {"topic_name": "orders"} if version < 5 else {"topic_id": ORDERS}
            return control.LeaderAndIsrResponse(
                ErrorCode.stale_controller_epoch, (control.LeaderAndIsrTopicError(errors, **topic),)
            )
        case "answer", 5:
            error = control.StopReplicaPartitionError("orders", 1, ErrorCode.fenced_leader_epoch)
            return control.StopReplicaResponse(ErrorCode.stale_broker_epoch, (error,))
        case "answer", 6:
            return control.UpdateMetadataResponse(ErrorCode.stale_controller_epoch)
    remaining = (control.RemainingPartition("orders", 1),)
    return control.ControlledShutdownResponse(ErrorCode.stale_broker_epoch, remaining)


def body_of(kind, key, version):
    """Return the bytes after the frame's header, which is checked too."""
    frame = memoryview(GOLDEN[kind, key, version])[4:]
    if kind == "request":
        header, at = codec.read_request_header(frame)
        assert header == (key, version, CORRELATION_ID, "client-1")
    else:
        assert int.from_bytes(frame[:4]) == CORRELATION_ID
        at = 5 if codec.is_flexible(key, version) else 4
    return frame[at:]


@pytest.mark.parametrize(("kind", "key", "version"), GOLDEN)
def test_apaches_bytes_are_read_and_written(kind, key, version):
    message = expected(kind, key, version)
    assert CLASSES[kind, key].decode(version, body_of(kind, key, version)) == message
    assert message.encode(version) == body_of(kind, key, version)


def test_every_version_is_there():
    for (kind, key), cls in CLASSES.items():
        schema = cls.schema()
        found = {v for k, n, v in GOLDEN if (k, n) == (kind, key)}
        # ControlledShutdown v0 has its own header format.
        assert found == set(range(int(key == 7), schema.last + 1))
        assert cls.api_key == key
        assert codec.versions_of(key) == (schema.first, schema.last)
        assert [codec.is_flexible(key, v) for v in range(schema.last + 2)] == [
            schema.flexible <= v <= schema.last for v in range(schema.last + 2)
        ]
        assert schema.name.startswith(codec.api_name(key))


@pytest.mark.parametrize(("kind", "key", "version"), GOLDEN)
def test_what_is_cut_short_is_refused(kind, key, version):
    body = body_of(kind, key, version)
    for end in range(len(body)):
        with pytest.raises(ProtocolError):
            CLASSES[kind, key].decode(version, body[:end])


def test_a_code_of_a_newer_broker_is_unknown():
    answer = control.UpdateMetadataResponse.decode(8, (9999).to_bytes(2) + b"\0")
    assert answer.error_code is ErrorCode.unknown_server_error


@pytest.mark.parametrize("version", [1, 2])
def test_a_security_protocol_that_there_is_not_is_refused(version):
    request = update_metadata(version)
    data = request.encode(version)
    # The last broker's only endpoint ends with the protocol; version 2 has a rack after it.
    at = len(data) - (2 if version == 1 else 4)
    with pytest.raises(ProtocolError, match="unknown security protocol 9"):
        control.UpdateMetadataRequest.decode(version, data[:at] + b"\0\x09" + data[at + 2 :])


def test_an_old_stop_replica_deletes_all_or_none():
    mixed = stop_replica(4)
    with pytest.raises(AssertionError):
        mixed.encode(2)
